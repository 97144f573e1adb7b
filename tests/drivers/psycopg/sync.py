"""psycopg 3 against the server that the PG* environment names."""

import os

import psycopg
from psycopg import sql

import shared
from shared import say


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


def types():
    with psycopg.connect(autocommit=True) as conn:
        for name, value in shared.types():
            simple = conn.execute(f"select {shared.literal(name, value)}")
            say(name, simple.description[0].type_code, repr(simple.fetchone()[0]))
            for binary in (False, True):
                cur = conn.cursor(binary=binary)
                cur.execute(f"select %s::{name}, null::{name}", (value,), prepare=True)
                say(name, binary, repr(cur.fetchone()))


def prepared():
    """prepare_threshold: statements become named after two runs, and many more than the driver keeps."""
    with psycopg.connect(autocommit=True, prepare_threshold=2) as conn:
        conn.prepared_max = 10
        for round_ in range(6):
            for number in range(25):
                got = conn.execute(f"select {number} + %s", (round_,)).fetchone()
                assert got == (number + round_,), got
        assert conn.execute("select %s::int", (7,), prepare=True).fetchone() == (7,)
        cur = conn.cursor()
        cur.execute("create table many(a int, b text)")
        cur.executemany("insert into many values (%s, %s) returning a", [(n, str(n)) for n in range(100)], returning=True)
        say(conn.execute("select count(*), sum(a), max(b) from many").fetchone())


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
        conn.add_notice_handler(lambda notice: say("notice", notice.severity, notice.message_primary))
        for statement in shared.errors():
            for arguments in (None, ("unused",)):
                try:
                    conn.execute(statement if arguments is None else f"{statement} -- %s", arguments)
                    say("no error")
                except psycopg.Error as error:
                    diag = error.diag
                    say(error.sqlstate, diag.message_primary, diag.message_detail, diag.message_hint, diag.statement_position)
                say(conn.execute("select %s::int", (3,)).fetchone(), conn.info.transaction_status.name)
        conn.execute("do $$ begin raise warning 'be warned'; end $$")
    with psycopg.connect() as conn:
        for statement in ("select 1/0", "select 1"):
            try:
                conn.execute(statement)
            except psycopg.Error as error:
                say(error.sqlstate, conn.info.transaction_status.name)
        conn.rollback()
        say(conn.execute("select 1").fetchone())


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


def binary_copies():
    with psycopg.connect() as conn:
        conn.execute("create table bcp(a int, b text, c timestamptz, d bytea)")
        cur = conn.cursor()
        with cur.copy("copy bcp from stdin (format binary)") as copy:
            copy.set_types(["int4", "text", "timestamptz", "bytea"])
            for number in range(500):
                copy.write_row((number, f"row {number}", None, bytes([number % 256]) * 100))
        with cur.copy("copy bcp to stdout (format binary)") as copy:
            copy.set_types(["int4", "text", "timestamptz", "bytea"])
            rows = list(copy.rows())
        say(len(rows), rows[-1])


def notifications():
    with psycopg.connect(autocommit=True) as listener, psycopg.connect(autocommit=True) as sender:
        listener.execute("listen psy")
        sender.execute("select pg_notify('psy', 'one')")
        with sender.transaction():
            sender.execute("notify psy, 'two'")
            sender.execute("notify psy, 'three'")
        for notify in listener.notifies(timeout=20, stop_after=3):
            say(notify.channel, notify.payload)
        listener.execute("unlisten *")


def large_objects():
    with psycopg.connect() as conn:
        oid = conn.execute("select lo_create(0)").fetchone()[0]
        fd = conn.execute("select lo_open(%s, 393216)", (oid,)).fetchone()[0]
        for number in range(5):
            say("wrote", conn.execute("select lowrite(%s, %s)", (fd, bytes([number]) * 3000)).fetchone())
        say(conn.execute("select lo_lseek(%s, 2998, 0)", (fd,)).fetchone())
        say(conn.execute("select loread(%s, 4)", (fd,)).fetchone())
        conn.commit()
        say(len(conn.execute("select lo_get(%s)", (oid,)).fetchone()[0]))
        say(conn.execute("select lo_unlink(%s)", (oid,)).fetchone())
        conn.commit()


def cancels():
    with psycopg.connect(autocommit=True) as conn, psycopg.connect(autocommit=True) as other:
        count = lambda text: other.execute(text).fetchone()[0]  # noqa: E731
        for cancel in (conn.cancel, conn.cancel_safe):
            thread = shared.when_asleep(count, cancel)
            try:
                conn.execute("select pg_sleep(30)")
                say("not cancelled")
            except psycopg.errors.QueryCanceled as error:
                say(error.sqlstate, error.diag.message_primary)
            thread.join()
            say(conn.execute("select 4").fetchone())


def fifty():
    def work(number):
        with psycopg.connect(autocommit=True, prepare_threshold=0) as conn:
            total = 0
            for round_ in range(20):
                got = conn.execute("select %s::int, %s::text", (number, str(round_))).fetchone()
                total += got[0] + int(got[1])
                with conn.transaction():
                    assert conn.execute(sql.SQL("select {}").format(number)).fetchone() == (number,)
            return total

    shared.fifty(work)


assert os.environ["PGHOST"]
shared.main(
    parameters, queries, types, prepared, transactions, errors, copies, binary_copies, cursors, notifications,
    large_objects, cancels, fifty,
)
