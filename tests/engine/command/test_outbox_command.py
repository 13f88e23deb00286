"""`ironclaim outbox`: the relay as a command."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from engine import Queue, outbox
from engine.testing import start_guarded
from tests.engine.command.running import ROOT, ironclaim
from tests.engine.helpers.waiting import wait_until

SHOP = """
import sqlite3
from engine import AsyncQueue, Queue

def connect():
    return sqlite3.connect({file!r}, timeout=30)

number = 3
def broken():
    raise OSError("no route to the database")

mails = Queue("mails", url={url!r})
bills = AsyncQueue("bills", url={url!r})

@mails.job("send")
@bills.job("pay")
def send(number: int) -> None: ...
"""


def add(file: Path, url: str, queue: str, name: str, *numbers: int) -> None:
    connection = sqlite3.connect(file, timeout=30)
    outbox.create_table(connection)
    with Queue(queue, url=url) as own:
        task = own.job(name)(pay)
        for number in numbers:
            outbox.add(connection, task, number)
    connection.commit()
    connection.close()


def pay(number: int) -> None: ...


def test_the_command_relays_the_rows_of_the_queues_it_is_given(
    ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "shop.db"
    (tmp_path / "outbox_shop.py").write_text(SHOP.format(file=str(file), url=ironclaim_url))
    add(file, ironclaim_url, "mails", "send", 1, 2)
    add(file, ironclaim_url, "bills", "pay", 3)
    done = ironclaim("outbox", "outbox_shop:connect", "outbox_shop:mails", "--burst")
    assert (done.returncode, done.stdout) == (0, "2 rows sent\n"), done.stderr
    done = ironclaim("outbox", "outbox_shop.connect", "outbox_shop:mails", "outbox_shop:bills", "--burst")
    assert (done.returncode, done.stdout) == (0, "1 rows sent\n"), done.stderr
    with Queue("mails", url=ironclaim_url) as mails, Queue("bills", url=ironclaim_url) as bills:
        assert (mails.counts().waiting, bills.counts().waiting) == (2, 1)


@pytest.mark.slow
def test_it_runs_until_sigterm(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "shop.db"
    (tmp_path / "outbox_stay.py").write_text(SHOP.format(file=str(file), url=ironclaim_url))
    add(file, ironclaim_url, "mails", "send", 1)
    command = [sys.executable, "-m", "engine", "outbox", "outbox_stay:connect", "outbox_stay:mails", "--poll-ms", "10"]
    relay = start_guarded(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True
    )
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


def test_what_it_cannot_use_is_one_line(ironclaim_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "shop.db"
    (tmp_path / "outbox_bad.py").write_text(SHOP.format(file=str(file), url=ironclaim_url))
    for arguments, words in (
        (("outbox_bad:connct", "outbox_bad:mails"), "has no connct"),
        (("outbox_bad:number", "outbox_bad:mails"), "connect: "),
        (("outbox_bad:connect", "outbox_bad:send"), "object: "),
        (("outbox_bad:connect", "nowhere:mails"), "no module nowhere"),
        (("outbox_bad:broken", "outbox_bad:mails"), "no route to the database"),
        (("outbox_bad:connect", "outbox_bad:mails", "--batch", "0"), "batch: "),
        (("outbox_bad:connect", "outbox_bad:mails"), "table: ironclaim_outbox is missing, it must be there: "),
    ):
        done = ironclaim("outbox", *arguments, "--burst")
        assert done.returncode == 2, (arguments, done.stderr)
        assert words in done.stderr and len(done.stderr.splitlines()) == 1
