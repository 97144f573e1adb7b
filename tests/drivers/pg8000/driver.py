"""pg8000, a driver in pure Python: text format only, everything by the extended protocol."""

import os

import pg8000.dbapi
import pg8000.native

import shared
from shared import say


def options():
    return {
        "user": os.environ["PGUSER"],
        "password": os.environ["PGPASSWORD"],
        "host": os.environ["PGHOST"],
        "port": int(os.environ["PGPORT"]),
        "database": os.environ["PGDATABASE"],
        "ssl_context": shared.tls(),
    }


def connect():
    return pg8000.native.Connection(**options())


def parameters():
    conn = connect()
    say(conn.parameter_statuses["client_encoding"], conn.parameter_statuses["standard_conforming_strings"])
    conn.close()


def types():
    conn = connect()
    for name, value in shared.types():
        say(name, repr(conn.run(f"select {shared.literal(name, value)}")))
        say(name, repr(conn.run(f"select cast(:v as {name})", v=value)))
    conn.close()


def prepared():
    conn = connect()
    statements = [conn.prepare(f"select cast(:v as int) * {number}") for number in range(20)]
    for round_ in range(5):
        say([statement.run(v=round_)[0][0] for statement in statements])
    for statement in statements:
        statement.close()
    conn.close()


def transactions():
    conn = pg8000.dbapi.connect(**options())
    cur = conn.cursor()
    cur.execute("create table p8(a int primary key, b text)")
    conn.commit()
    cur.executemany("insert into p8 values (%s, %s)", [(number, str(number)) for number in range(50)])
    cur.execute("savepoint s")
    try:
        cur.execute("insert into p8 values (%s, 'again')", (1,))
    except pg8000.dbapi.DatabaseError as error:
        say(error.args[0]["C"], error.args[0]["M"], error.args[0]["n"])
        cur.execute("rollback to s")
    cur.execute("select count(*), sum(a) from p8")
    say(cur.fetchone())
    conn.rollback()
    cur.execute("select count(*) from p8")
    say(cur.fetchone())
    conn.commit()
    # Names of prepared transactions are the cluster's, not the database's.
    name = "pg8000 " + os.environ["PGDATABASE"]
    conn.autocommit = True
    for end in ("rollback", "commit"):
        cur.execute("begin")
        cur.execute("insert into p8 values (1, 'two phases')")
        cur.execute(f"prepare transaction '{name}'")
        cur.execute("select count(*) from p8")
        say(cur.fetchone())
        cur.execute(f"{end} prepared '{name}'")
    cur.execute("select * from p8")
    say(cur.fetchall())
    conn.close()


def errors():
    conn = connect()
    for statement in shared.errors():
        try:
            conn.run(statement)
            say("no error")
        except pg8000.native.DatabaseError as error:
            fields = error.args[0]
            say(fields["C"], fields["M"], fields.get("D"), fields.get("H"), fields.get("P"))
        say(conn.run("select cast(:v as int)", v=3))
    conn.run("do $$ begin raise notice 'take note'; end $$")
    say([notice[b"M"] for notice in conn.notices])
    conn.close()


def copies():
    conn = connect()
    conn.run("create table p8c(a int, b text)")
    conn.run("copy p8c from stdin", stream=(f"{number}\trow {number}\n" for number in range(1000)))
    say(conn.row_count)
    with open(os.devnull, "wb") as sink:
        conn.run("copy p8c to stdout", stream=sink)
    say(conn.row_count, conn.run("select sum(a), max(b) from p8c"))
    try:
        conn.run("copy p8c from stdin", stream=["no number\tx\n"] * 100)
    except pg8000.native.DatabaseError as error:
        say(error.args[0]["C"], error.args[0]["M"])
    say(conn.run("select 1"))
    conn.close()


def notifications():
    listener, sender = connect(), connect()
    listener.run("listen p8n")
    sender.run("notify p8n, 'one'")
    sender.run("select pg_notify('p8n', cast(:v as text))", v="two")
    while len(listener.notifications) < 2:
        listener.run("select 1")
    say([(channel, payload) for _pid, channel, payload in listener.notifications])
    listener.close()
    sender.close()


def large_objects():
    conn = pg8000.dbapi.connect(**options())
    cur = conn.cursor()
    cur.execute("select lo_from_bytea(0, %s)", (b"\x00\x01" * 5000,))
    (oid,) = cur.fetchone()
    cur.execute("select lo_get(%s, 4999, 4), lo_unlink(%s)", (oid, oid))
    say(cur.fetchone())
    conn.commit()
    conn.close()


def fifty():
    def work(number):
        conn = connect()
        total = 0
        for round_ in range(10):
            total += conn.run("select cast(:a as int) + cast(:b as int)", a=number, b=round_)[0][0]
            conn.run("start transaction")
            total += conn.run("select cast(:a as int)", a=number)[0][0]
            conn.run("commit")
        conn.close()
        return total

    shared.fifty(work)


shared.main(
    parameters, types, prepared, transactions, errors, copies, notifications, large_objects, fifty
)
