"""psycopg 3 against the server that the PG* environment names. Any wrong answer ends the program with a traceback."""

import sys
import threading

import psycopg
from psycopg import sql


def parameters():
    """ParameterStatus reaches the driver: libpq knows the server's version and encodings."""
    with psycopg.connect() as conn:
        assert conn.info.server_version >= 130000, conn.info.server_version
        assert conn.info.encoding == "utf-8", conn.info.encoding
        assert conn.info.parameter_status("standard_conforming_strings") == "on"
        assert conn.info.timezone is not None


def queries():
    with psycopg.connect(autocommit=True) as conn:
        assert conn.execute("select 1").fetchone() == (1,)
        assert conn.execute("select %s::int + %s", (20, 22)).fetchone() == (42,)
        assert conn.execute("select %s::text", ("käse 'n\" \\ brot",)).fetchone() == ("käse 'n\" \\ brot",)
        cur = conn.cursor(binary=True)
        assert cur.execute("select %s::bytea", (b"\x00\xff",)).fetchone() == (b"\x00\xff",)
        rows = conn.execute("select i from generate_series(1, 5000) i").fetchall()
        assert rows[-1] == (5000,) and len(rows) == 5000


def prepared():
    """prepare_threshold: statements become named after two runs, and many more than the driver keeps."""
    with psycopg.connect(autocommit=True, prepare_threshold=2) as conn:
        conn.prepared_max = 10
        for round_ in range(6):
            for number in range(25):
                got = conn.execute(f"select {number} + %s", (round_,)).fetchone()
                assert got == (number + round_,), got
        assert conn.execute("select %s::int", (7,), prepare=True).fetchone() == (7,)


def transactions():
    with psycopg.connect() as conn:
        conn.execute("create table if not exists psy(a int)")
        conn.commit()
        try:
            with conn.transaction():
                conn.execute("insert into psy values (1)")
                try:
                    with conn.transaction():
                        conn.execute("insert into psy values (2)")
                        conn.execute("select 1/0")
                except psycopg.errors.DivisionByZero:
                    pass
                assert conn.execute("select array_agg(a) from psy").fetchone() == ([1],)
                raise psycopg.Rollback()
        except psycopg.Rollback:
            pass
        conn.rollback()
        assert conn.execute("select count(*) from psy").fetchone() == (0,)
        conn.execute("drop table psy")


def errors():
    with psycopg.connect(autocommit=True) as conn:
        for _ in range(3):
            try:
                conn.execute("select * from no_such_table")
                raise AssertionError("no error")
            except psycopg.errors.UndefinedTable as error:
                assert error.sqlstate == "42P01"
        assert conn.execute("select 3").fetchone() == (3,)


def pipelines():
    with psycopg.connect(autocommit=True) as conn:
        conn.execute("create table if not exists pipe(a int)")
        with conn.pipeline():
            cursors = [conn.execute("select %s::int", (number,)) for number in range(200)]
        assert [cur.fetchone() for cur in cursors] == [(number,) for number in range(200)]
        try:
            with conn.pipeline() as pipeline:
                conn.execute("insert into pipe values (%s)", (1,))
                conn.execute("select 1/0")
                conn.execute("insert into pipe values (%s)", (2,))
                pipeline.sync()
            raise AssertionError("no error")
        except psycopg.errors.DivisionByZero:
            pass
        assert conn.execute("select count(*) from pipe").fetchone() == (0,)
        conn.execute("drop table pipe")


def copies():
    with psycopg.connect() as conn:
        conn.execute("create table if not exists cp(a int, b text)")
        cur = conn.cursor()
        with cur.copy("copy cp from stdin") as copy:
            for number in range(3000):
                copy.write_row((number, f"row {number}\t\\"))
        with cur.copy("copy cp to stdout") as copy:
            rows = list(copy.rows())
        assert len(rows) == 3000
        try:
            with cur.copy("copy cp from stdin") as copy:
                copy.write("no number\tx\n" * 1000)
            raise AssertionError("no error")
        except psycopg.errors.InvalidTextRepresentation:
            conn.rollback()


def cursors():
    """Server-side cursors fetch in pieces inside a transaction."""
    with psycopg.connect() as conn:
        with conn.cursor(name="big") as cur:
            cur.itersize = 100
            cur.execute("select i from generate_series(1, 1000) i")
            assert sum(row[0] for row in cur) == 500500


def cancels():
    with psycopg.connect(autocommit=True) as conn:
        timer = threading.Timer(0.3, conn.cancel)
        timer.start()
        try:
            conn.execute("select pg_sleep(30)")
            raise AssertionError("not cancelled")
        except psycopg.errors.QueryCanceled:
            pass
        timer.join()
        assert conn.execute("select 4").fetchone() == (4,)


def many():
    """Sixteen threads over a few servers, each with its own prepared statements."""
    failures = []

    def work(number):
        try:
            with psycopg.connect(autocommit=True, prepare_threshold=0) as conn:
                for round_ in range(20):
                    got = conn.execute("select %s::int, %s::text", (number, str(round_))).fetchone()
                    assert got == (number, str(round_)), got
                    with conn.transaction():
                        assert conn.execute(sql.SQL("select {}").format(number)).fetchone() == (number,)
        except BaseException as error:  # noqa: B902 - reported below, with its thread
            failures.append((number, repr(error)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


for test in (parameters, queries, prepared, transactions, errors, pipelines, copies, cursors, cancels, many):
    print(test.__name__, flush=True)
    test()
sys.exit(0)
