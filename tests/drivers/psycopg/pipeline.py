"""psycopg 3's pipeline mode, synchronous and asynchronous."""

import asyncio

import psycopg
from psycopg import pq

import shared
from shared import say


def connect(**options):
    return psycopg.connect(autocommit=True, **options)


def deep():
    for threshold in (0, 5, None):
        with connect(prepare_threshold=threshold) as conn:
            with conn.pipeline():
                cursors = [conn.execute("select %s::int, %s::text", (number, "x" * number)) for number in range(300)]
            rows = [cur.fetchone() for cur in cursors]
            say(len(rows), sum(row[0] for row in rows), sum(len(row[1]) for row in rows))


def failing():
    """An error takes the rest of its batch with it, and nothing of the next one.

    Nothing is prepared: psycopg would keep a name whose Parse the failed batch has skipped, or would not, by whether
    the error had arrived when it looked.
    """
    with connect(prepare_threshold=None) as conn:
        conn.execute("create table pipe(a int)")
        for place in range(4):
            try:
                with conn.pipeline():
                    for number in range(4):
                        divided = "1/" if number == place else ""
                        conn.execute(f"insert into pipe values ({divided}%s)", (0,))
                say("no error")
            except psycopg.Error as error:
                say(place, type(error).__name__, error.sqlstate)
            say(conn.execute("select count(*), sum(a) from pipe").fetchone())


def batches():
    """libpq's own functions: nine batches are under way at once, every third of which fails in its middle."""
    with connect() as conn:
        pgconn = conn.pgconn
        pgconn.enter_pipeline_mode()
        for batch in range(9):
            pgconn.send_query_params(b"insert into pipe values ($1) returning a", [b"%d" % batch])
            divisor = b"0" if batch % 3 == 0 else b"1"
            pgconn.send_query_params(b"select 100 / $1::int", [divisor])
            pgconn.send_prepare(b"same", b"select $1::int + %d" % batch)
            pgconn.send_query_prepared(b"same", [b"1000"], result_format=1)
            pgconn.send_query_params(b"deallocate same", None)
            pgconn.pipeline_sync()
        synced = 0
        while synced < 9:
            result = pgconn.get_result()
            if result is None:
                continue
            status = pq.ExecStatus(result.status)
            synced += status == pq.ExecStatus.PIPELINE_SYNC
            value = result.get_value(0, 0) if status == pq.ExecStatus.TUPLES_OK else None
            say(status.name, value, result.command_status, result.error_field(pq.DiagnosticField.SQLSTATE))
        pgconn.exit_pipeline_mode()
        say(conn.execute("select count(*), sum(a) from pipe").fetchone())


def transactions():
    with connect() as conn:
        with conn.pipeline():
            with conn.transaction():
                conn.execute("insert into pipe values (10)")
                try:
                    with conn.transaction():
                        conn.execute("insert into pipe values (1/0)")
                except psycopg.errors.DivisionByZero as error:
                    say(error.sqlstate)
                conn.execute("insert into pipe values (20)")
        say(conn.execute("select count(*), sum(a) from pipe").fetchone())


def many_values():
    with connect() as conn:
        cur = conn.cursor()
        cur.executemany("insert into pipe values (%s) returning a", [(number,) for number in range(1000)], returning=True)
        total = 0
        while True:
            total += cur.fetchone()[0]
            if not cur.nextset():
                break
        say(total)


def errors():
    with connect(prepare_threshold=None) as conn:
        for statement in shared.errors():
            try:
                with conn.pipeline():
                    conn.execute("select 1")
                    conn.execute(statement)
                    conn.execute("select 2")
            except psycopg.Error as error:
                say(error.sqlstate, error.diag.message_primary)
            say(conn.execute("select 3").fetchone())


def asynchronous():
    async def work(number):
        async with await psycopg.AsyncConnection.connect(autocommit=True, prepare_threshold=number % 4) as conn:
            total = 0
            for _ in range(3):
                async with conn.pipeline():
                    cursors = [await conn.execute("select %s::int * %s", (number, round_)) for round_ in range(50)]
                for cur in cursors:
                    total += (await cur.fetchone())[0]
            return total

    async def all_of_them():
        for total in await asyncio.gather(*(work(number) for number in range(shared.CLIENTS))):
            say(total)

    asyncio.run(all_of_them())


shared.main(deep, failing, batches, transactions, many_values, errors, asynchronous)
