"""`ironclaim outbox`: the relay as a command."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine import Queue, outbox, testing
from tests.engine.command.running import ROOT, ironclaim, refused
from tests.engine.helpers.waiting import wait_until

#: The module is written in a folder of the test: its database, and what is enqueued from it.
SHOP = """
import sqlite3
from engine import AsyncQueue, Handlers, Queue

def connect():
    return sqlite3.connect({file!r}, timeout=30)

number = 3
def broken():
    raise OSError("no route to the database")

mails = Queue("mails", url={url!r})
bills = AsyncQueue("bills", url={url!r})
handlers = Handlers()

@mails.job("send")
@bills.job("pay")
def send(number: int) -> None: ...
"""


@pytest.fixture
def file(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The database of the module that the test names."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "shop.db"
    (tmp_path / f"{request.param}.py").write_text(SHOP.format(file=str(file), url=ironclaim_url))
    return file


def add(file: Path, url: str, queue: str, name: str, *numbers: int) -> None:
    with closing(sqlite3.connect(file, timeout=30)) as connection, Queue(queue, url=url) as own:
        outbox.create_table(connection)
        task = own.job(name)(pay)
        for number in numbers:
            outbox.add(connection, task, number)
        connection.commit()


def pay(number: int) -> None: ...


@pytest.mark.parametrize("file", ["outbox_shop"], indirect=True)
def test_the_command_relays_the_rows_of_the_queues_it_is_given(ironclaim_url: str, file: Path) -> None:
    add(file, ironclaim_url, "mails", "send", 1, 2)
    add(file, ironclaim_url, "bills", "pay", 3)
    for words, told in ((":connect outbox_shop:mails", "2 rows"), (".connect outbox_shop:mails outbox_shop:bills", "1 row")):
        done = ironclaim("outbox", *f"outbox_shop{words}".split(), "--burst")
        assert (done.returncode, done.stdout) == (0, f"{told} sent\n"), done.stderr
    with Queue("mails", url=ironclaim_url) as mails, Queue("bills", url=ironclaim_url) as bills:
        assert (mails.counts().waiting, bills.counts().waiting) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["outbox_stay"], indirect=True)
def test_it_runs_until_sigterm(ironclaim_url: str, file: Path) -> None:
    add(file, ironclaim_url, "mails", "send", 1)
    command = [sys.executable, "-m", "engine", "outbox", "outbox_stay:connect", "outbox_stay:mails", "--poll-ms", "10"]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    relay = testing.start_guarded(command, cwd=file.parent, env=env, stdout=subprocess.PIPE, text=True)
    try:
        with Queue("mails", url=ironclaim_url) as mails:
            wait_until(lambda: mails.counts().waiting == 1, "the first row is sent", 120)
            add(file, ironclaim_url, "mails", "send", 2)
            wait_until(lambda: mails.counts().waiting == 2, "the second row is sent", 120)
        relay.send_signal(signal.SIGTERM)
        out, _ = relay.communicate(timeout=120)
    finally:
        # Else it would write into the server of the tests that follow.
        relay.kill()
        relay.wait()
    assert (relay.returncode, out) == (0, "2 rows sent\n")


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("file", ["outbox_bad"], indirect=True)
def test_what_it_cannot_use_is_one_line() -> None:
    for arguments, words in (
        (("outbox_bad:connct", "outbox_bad:mails"), "has no connct"), (("outbox_bad:number", "outbox_bad:mails"), "connect: "),
        (("outbox_bad:connect", "outbox_bad:send"), "object: "),
        (("outbox_bad:connect", "outbox_bad:handlers"), "queue: 'outbox_bad:handlers' is not allowed, it must be a Queue or "),
        (("outbox_bad:connect", "nowhere:mails"), "no module nowhere"),
        (("outbox_bad:broken", "outbox_bad:mails"), "no route to the database"),
        (("outbox_bad:connect", "outbox_bad:mails", "--batch", "0"), "batch: "),
        (("outbox_bad:connect", "outbox_bad:mails"), "table: ironclaim_outbox is missing, it must be there: "),
    ):  # fmt: skip
        assert words in refused("outbox", *arguments, "--burst"), arguments
