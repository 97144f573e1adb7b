"""asyncpg with 50 clients against the server that the PG* environment names. It prepares everything by name."""

import asyncio
import datetime
import decimal
import os

import asyncpg

import shared
from shared import say


async def types():
    conn = await asyncpg.connect()
    row = await conn.fetchrow(
        "select $1::int8 a, $2::numeric b, $3::text c, $4::bytea d, $5::timestamptz e, $6::int[] f, $7::float8 g",
        2**60, decimal.Decimal("1.50"), "x", b"\x00\xff",
        datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc), [1, None, 3], 0.1,
    )
    assert row["a"] == 2**60 and row["b"] == decimal.Decimal("1.50") and row["d"] == b"\x00\xff"
    assert row["f"] == [1, None, 3] and row["g"] == 0.1
    await conn.close()


async def list_of_types():
    conn = await asyncpg.connect()
    for name, value in shared.types():
        for _ in range(2):
            value_ = await conn.fetchval(f"select {shared.literal(name, value)}")
            say(name, type(value_).__name__, list(value_) if isinstance(value_, asyncpg.Path) else value_)
        # Asked for as text: the driver knows no text format of parameters but for text.
        say(await conn.fetchrow(f"select $1::text::{name}::text, null::{name}", value))
    # Without the extended protocol.
    say(await conn.execute("select 1; select 2"))
    await conn.close()


async def parameters():
    conn = await asyncpg.connect()
    say(conn.get_server_version().major, conn.get_settings().client_encoding, conn.get_settings().is_superuser)
    await conn.close()


async def errors():
    conn = await asyncpg.connect()
    conn.add_log_listener(lambda _, message: say(message.severity, message.message))
    for statement in shared.errors():
        for run in (conn.execute, conn.fetch):
            try:
                await run(statement)
                say("no error")
            except asyncpg.PostgresError as error:
                say(type(error).__name__, error.sqlstate, error.message, error.detail, error.hint, error.position)
            say(await conn.fetchval("select $1::int", 3))
    await conn.execute("do $$ begin raise warning 'be warned'; end $$")
    await conn.close()


async def notifications():
    listener, sender = await asyncpg.connect(), await asyncpg.connect()
    got = asyncio.Queue()
    await listener.add_listener("apn", lambda _conn, _pid, channel, payload: got.put_nowait((channel, payload)))
    await sender.execute("notify apn, 'one'")
    async with sender.transaction():
        await sender.fetch("select pg_notify('apn', $1)", "two")
        await sender.fetch("select pg_notify('apn', $1)", "three")
    for _ in range(3):
        say(await asyncio.wait_for(got.get(), 20))
    await listener.close()
    await sender.close()


async def large_objects():
    conn = await asyncpg.connect()
    async with conn.transaction():
        oid = await conn.fetchval("select lo_create(0)")
        fd = await conn.fetchval("select lo_open($1, 393216)", oid)
        for number in range(5):
            say(await conn.fetchval("select lowrite($1, $2)", fd, bytes([number]) * 3000))
        say(await conn.fetchval("select lo_lseek($1, 2998, 0)", fd), await conn.fetchval("select loread($1, 4)", fd))
    say(len(await conn.fetchval("select lo_get($1)", oid)), await conn.fetchval("select lo_unlink($1)", oid))
    await conn.close()


async def transactions():
    conn = await asyncpg.connect()
    await conn.execute("create table if not exists apg(a int)")
    try:
        async with conn.transaction():
            await conn.execute("insert into apg values ($1)", 1)
            async with conn.transaction():
                await conn.execute("insert into apg values ($1)", 2)
            assert await conn.fetchval("select count(*) from apg") == 2
            raise RuntimeError("take it back")
    except RuntimeError:
        pass
    assert await conn.fetchval("select count(*) from apg") == 0
    await conn.executemany("insert into apg values ($1)", [(number,) for number in range(100)])
    assert await conn.fetchval("select sum(a) from apg") == 4950
    async with conn.transaction():
        total = 0
        async for record in conn.cursor("select a from apg", prefetch=7):
            total += record["a"]
        assert total == 4950
    await conn.execute("drop table apg")
    await conn.close()


async def iter_bytes(data):
    for start in range(0, len(data), 1000):
        yield data[start : start + 1000]


async def copies():
    conn = await asyncpg.connect()
    await conn.execute("create table if not exists apc(a int, b text)")
    await conn.copy_records_to_table("apc", records=[(number, str(number)) for number in range(2000)])
    assert await conn.fetchval("select count(*) from apc") == 2000
    taken = []

    async def take(data):
        taken.append(data)

    say(await conn.copy_from_query("select a, b from apc where a < $1", 3, output=take, format="csv"), b"".join(taken))
    taken.clear()
    say(await conn.copy_from_table("apc", output=take, format="binary"), len(b"".join(taken)))
    try:
        await conn.copy_to_table("apc", source=iter_bytes(b"no number\tx\n" * 1000))
    except asyncpg.PostgresError as error:
        say(error.sqlstate, error.message)
    await conn.execute("drop table apc")
    await conn.close()


async def cancels():
    """A timeout of the driver is a CancelRequest, as is a task that is cancelled; the session lives."""
    conn, other = await asyncpg.connect(), await asyncpg.connect()
    try:
        await conn.fetchval("select pg_sleep(30)", timeout=0.3)
        say("no timeout")
    except (asyncio.TimeoutError, TimeoutError):
        say("timeout")
    say(await conn.fetchval("select 5"))
    task = asyncio.create_task(conn.fetchval("select pg_sleep(30)"))
    while not await other.fetchval(shared.SLEEPERS):
        await asyncio.sleep(0.01)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        say("cancelled")
    say(await conn.fetchval("select 6"))
    await conn.close()
    await other.close()


async def client(number):
    cache = {} if number % 3 else {"statement_cache_size": 0}
    conn = await asyncpg.connect(**cache)
    statement = await conn.prepare("select $1::int * 2")
    total = 0
    for round_ in range(20):
        total += await statement.fetchval(number)
        assert await conn.fetchval(f"select $1::text || '{number % 7}'", str(round_)) == f"{round_}{number % 7}"
        async with conn.transaction():
            total += await conn.fetchval("select $1::int + 1", number)
            assert await statement.fetchval(round_) == round_ * 2
    await conn.close()
    return total


async def fifty():
    for total in await asyncio.gather(*(client(number) for number in range(shared.CLIENTS))):
        say(total)


assert os.environ["PGHOST"]
asyncio.run(
    shared.main_async(
        parameters, types, list_of_types, errors, transactions, copies, notifications, large_objects, cancels, fifty
    )
)
