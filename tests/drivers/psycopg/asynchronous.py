"""psycopg 3's asynchronous connections."""

import asyncio

import psycopg

import shared
from shared import say


async def connect(**options):
    return await psycopg.AsyncConnection.connect(autocommit=True, **options)


async def types():
    async with await connect() as conn:
        for name, value in shared.types():
            for binary in (False, True):
                cur = conn.cursor(binary=binary)
                await cur.execute(f"select %s::{name}", (value,), prepare=binary)
                say(name, repr(await cur.fetchone()))


async def transactions():
    async with await connect() as conn:
        await conn.execute("create table apsy(a int)")
        async with conn.transaction(force_rollback=True):
            await conn.execute("insert into apsy values (1)")
            try:
                async with conn.transaction():
                    await conn.execute("insert into apsy select 1/0")
            except psycopg.errors.DivisionByZero as error:
                say(error.sqlstate)
            say(await (await conn.execute("select array_agg(a) from apsy")).fetchone())
        say(await (await conn.execute("select count(*) from apsy")).fetchone())


async def copies():
    async with await connect() as conn:
        cur = conn.cursor()
        async with cur.copy("copy apsy from stdin") as copy:
            for number in range(1000):
                await copy.write_row((number,))
        async with cur.copy("copy (select a from apsy order by a) to stdout") as copy:
            say([row async for row in copy.rows()][-1], cur.rowcount)


async def streams():
    async with await connect() as conn:
        cur = conn.cursor()
        say(sum([row[0] async for row in cur.stream("select i from generate_series(1, 1000) i")]))
        async with conn.transaction(), conn.cursor(name="c", scrollable=True) as named:
            await named.execute("select i from generate_series(1, 100) i")
            await named.scroll(50)
            say(await named.fetchmany(3))
            await named.scroll(-10)
            say(await named.fetchone())


async def notifications():
    async with await connect() as listener, await connect() as sender:
        await listener.execute("listen apsyn")
        for word in ("one", "two"):
            await sender.execute("select pg_notify('apsyn', %s)", (word,))
        async for notify in listener.notifies(timeout=20, stop_after=2):
            say(notify.channel, notify.payload)


async def cancels():
    """A task that is cancelled has its query cancelled."""
    async with await connect() as conn, await connect() as other:
        task = asyncio.create_task(conn.execute("select pg_sleep(30)"))
        while (await (await other.execute(shared.SLEEPERS)).fetchone())[0] == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
            say("not cancelled")
        except (asyncio.CancelledError, psycopg.errors.QueryCanceled):
            say("cancelled")
        say(await (await conn.execute("select 4")).fetchone())


async def fifty():
    async def work(number):
        async with await connect(prepare_threshold=number % 3) as conn:
            total = 0
            for round_ in range(20):
                total += (await (await conn.execute("select %s::int + %s", (number, round_))).fetchone())[0]
                async with conn.transaction():
                    total += (await (await conn.execute("select %s::int * %s", (number, round_))).fetchone())[0]
            return total

    for total in await asyncio.gather(*(work(number) for number in range(shared.CLIENTS))):
        say(total)


asyncio.run(shared.main_async(types, transactions, copies, streams, notifications, cancels, fifty))
