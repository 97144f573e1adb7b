"""asyncpg with 50 clients against the server that the PG* environment names. It prepares everything by name."""

import asyncio
import datetime
import decimal
import os

import asyncpg

CLIENTS = 50


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


async def copies():
    conn = await asyncpg.connect()
    await conn.execute("create table if not exists apc(a int, b text)")
    await conn.copy_records_to_table("apc", records=[(number, str(number)) for number in range(2000)])
    assert await conn.fetchval("select count(*) from apc") == 2000
    await conn.execute("drop table apc")
    await conn.close()


async def timeouts():
    """A timeout of the driver is a CancelRequest; the session lives."""
    conn = await asyncpg.connect()
    try:
        await conn.fetchval("select pg_sleep(30)", timeout=0.3)
        raise AssertionError("no timeout")
    except (asyncio.TimeoutError, TimeoutError):
        pass
    assert await conn.fetchval("select 5") == 5
    await conn.close()


async def client(number):
    cache = {} if number % 3 else {"statement_cache_size": 0}
    conn = await asyncpg.connect(**cache)
    statement = await conn.prepare("select $1::int * 2")
    for round_ in range(20):
        assert await statement.fetchval(number) == number * 2
        assert await conn.fetchval(f"select $1::text || '{number % 7}'", str(round_)) == f"{round_}{number % 7}"
        async with conn.transaction():
            assert await conn.fetchval("select $1::int + 1", number) == number + 1
            assert await statement.fetchval(round_) == round_ * 2
    await conn.close()


async def main():
    for test in (types, transactions, copies, timeouts):
        print(test.__name__, flush=True)
        await test()
    print("clients", flush=True)
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


assert os.environ["PGHOST"]
asyncio.run(main())
