"""What the Python drivers share: the lists of types and errors, and how to show what came back.

Whatever a driver prints must be the same direct and through pgmux, so no process ids, ports and times are shown.
"""

import os
import ssl
import sys
import threading
import time

CLIENTS = 50
HERE = os.path.dirname(os.path.abspath(__file__))


def _lines(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read().splitlines()


def types():
    """Pairs of a type and a value of it as text."""
    return [line.split("\t") for line in _lines("types.txt")]


def errors():
    """Statements that fail."""
    return _lines("errors.txt")


def literal(name, value):
    """The value as an expression."""
    return "'" + value.replace("'", "''") + "'::" + name


def say(*values):
    print(*values, flush=True)


def main(*sections):
    for section in sections:
        say("==", section.__name__)
        section()
    say("== end")


async def main_async(*sections):
    for section in sections:
        say("==", section.__name__)
        await section()
    say("== end")


SLEEPERS = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
)


def when_asleep(count, act):
    """Starts a thread that acts when `count` says that the query to be cancelled runs."""

    def wait():
        deadline = time.monotonic() + 20
        while count(SLEEPERS) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def fifty(work):
    """Runs `work(number)` on fifty threads at once; each gives its own answer back."""
    answers = [None] * CLIENTS

    def run(number):
        try:
            answers[number] = work(number)
        except BaseException as error:  # noqa: B902 - shown below, with its number
            answers[number] = repr(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, answer in enumerate(answers):
        say(number, answer)


def tls():
    """What PGSSLMODE and PGSSLROOTCERT demand, for drivers that do not read them themselves; None is no TLS."""
    mode = os.environ.get("PGSSLMODE", "prefer")
    if mode in ("disable", "allow", "prefer"):
        return None
    context = ssl.create_default_context(cafile=os.environ.get("PGSSLROOTCERT"))
    if mode != "verify-full":
        context.check_hostname = False
    if mode == "require":
        context.verify_mode = ssl.CERT_NONE
    return context


def fail(text):
    say(text)
    sys.exit(1)
