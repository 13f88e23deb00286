"""Recording that the environment switches on: one file for a process and all of its queues, and for no other process."""

import atexit
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import Malformed, Queue
from record import environment, history
from record.environment import FILE, led, recording
from tests.engine.helpers import schema, warm
from tests.engine.helpers.producing import refused

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, subprocess, sys
from engine import Queue

def enqueue(*jobs):
    for job in jobs:
        with Queue(sys.argv[1], url=sys.argv[2]) as queue:
            queue.enqueue("work", {}, id=job)

mails = Queue("mails", url=sys.argv[2])
mails.enqueue("work", {}, id=sys.argv[3])
if sys.argv[3] == "child":
    sys.exit()
if not (pid := os.fork()):
    mails.enqueue("work", {}, id="forked")
    enqueue("forked-too")
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
subprocess.run([sys.executable, *sys.orig_argv[1:-1], "child"], check=True)
enqueue("second")
mails.enqueue("work", {}, id="third")
"""


def run(told: Mapping[str, str], program: str, *words: str, folder: Path = ROOT) -> str:
    """What a program prints that ends well, with these variables in its environment."""
    done = warm.run(["-c", program, *words], env={**os.environ, "PYTHONPATH": str(ROOT), **told}, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_has_one_file_for_all_its_queues_and_its_children_have_none(ironclaim_url: str, tmp_path: Path) -> None:
    file = tmp_path / "shop-1.jsonl"
    run(recording(file), PROGRAM, "bills", ironclaim_url, "first")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    rows = schema.checked_rows(file)
    assert {row["proc"] for row in rows} == {"shop-1"}
    assert [row["kind"] for row in rows if row["kind"] in ("open", "close")] == ["open", "close"]
    assert (rows[0]["kind"], rows[0]["role"], rows[-1]["kind"], rows[-1]["rows"]) == ("open", "worker", "close", len(rows))
    enqueues = [row for row in rows if row["kind"] == "operation" and row["f"] == "enqueue" and row["type"] == "ok"]
    sent = [(row["queue"], row["items"][0]["job"]) for row in enqueues]
    assert sent == [("mails", "first"), ("bills", "second"), ("mails", "third")] and len({row["op"] for row in enqueues}) == 3


def test_a_file_that_cannot_be_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_recorder", None)
    monkeypatch.delenv(FILE, raising=False)
    refused(Malformed, f"^{FILE}: None is not allowed, it must be the file", environment.observer, "q")
    for file, error in ((tmp_path / "none" / "w.jsonl", OSError), (tmp_path / 'a"b.jsonl', Malformed)):
        monkeypatch.setenv(FILE, str(file))
        for _ in range(2):  # Also the second queue of the process.
            refused(error, None, environment.observer, "q")
    assert not list(tmp_path.iterdir())


def test_a_file_in_which_another_process_records_is_refused(ironclaim_url: str, tmp_path: Path) -> None:
    """Two writers would number their rows alike: a prefork server's children, or a command beside a service."""
    file = tmp_path / "shop-1.jsonl"
    program = (
        "import os, subprocess, sys\nfrom engine import Queue\n"
        "queue = Queue('mails', url=sys.argv[1])\nqueue.enqueue('work', {})\n"
        "told = {**os.environ, 'IRONCLAIM_HISTORY': sys.argv[2]}\n"
        "for words in (['-c', 'from engine import Queue; Queue(\"mails\")'],"
        " ['-m', 'engine', 'pause', 'work', '--queue', 'mails', '--url', sys.argv[1]]):\n"
        "    done = subprocess.run([sys.executable, *words], env=told, capture_output=True, text=True)\n"
        "    print(done.returncode, *done.stderr.splitlines()[-1:])\n"
    )
    library, command_line = run(recording(file), program, ironclaim_url, str(file)).splitlines()
    assert library.startswith("1 engine.errors.Malformed: IRONCLAIM_HISTORY: ") and "another one records in it" in library
    assert command_line == "0", "a command that only administers is observed by nobody"
    rows = schema.checked_rows(file)
    assert [row["seq"] for row in rows] == list(range(len(rows))) and [row["kind"] for row in rows].count("open") == 1


def test_a_child_that_is_forked_while_the_file_opens_records_nothing_nor_hangs(ironclaim_url: str, tmp_path: Path) -> None:
    file = tmp_path / "shop-1.jsonl"
    os.mkfifo(file)
    program = (
        "import os, sys, threading\nfrom engine import Queue\nfrom record import environment\n"
        "thread = threading.Thread(target=Queue, args=('mails',), kwargs={'url': sys.argv[1]})\nthread.start()\n"
        "while os.environ['IRONCLAIM_HISTORY']: pass\n"
        "if not (pid := os.fork()):\n    Queue('mails', url=sys.argv[1]).enqueue('work', {})\n    os._exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n"
        "os.close(os.open(sys.argv[2], os.O_RDONLY))\nthread.join()\nos._exit(0)\n"
    )
    assert run(recording(file), program, ironclaim_url, str(file)) == "5\n"


LED = """
import os, subprocess, sys
from engine import Queue

own = "redis://127.0.0.1:1"
mails, bills = Queue("mails", url=own), Queue("bills", url=own)
bills.enqueue("work", {}, id=sys.argv[1])
mails.enqueue("work", {}, id=sys.argv[1])
if sys.argv[1] == "first":
    subprocess.run([sys.executable, *sys.orig_argv[1:-1], "child"], check=True)
"""


def test_queues_are_led_to_the_server_of_a_drill_also_in_children_and_one_is_recorded(ironclaim_url: str, tmp_path: Path) -> None:
    file = tmp_path / "shop-1.jsonl"
    run(led(ironclaim_url, "mails", file), LED, "first")
    enqueues = [row for row in schema.checked_rows(file) if row["kind"] == "operation" and row["type"] == "ok"]
    assert [(row["queue"], row["items"][0]["job"]) for row in enqueues] == [("mails", "first")]
    for name in ("mails", "bills"):
        with Queue(name, url=ironclaim_url) as queue:
            assert sorted(job for job, _ in queue.snapshot().states["waiting"]) == ["child", "first"]


def test_a_process_that_is_only_led_records_nothing(ironclaim_url: str, tmp_path: Path) -> None:
    run(led(ironclaim_url, "mails", None), LED, "alone", folder=tmp_path)
    with Queue("mails", url=ironclaim_url) as queue:
        assert queue.counts().waiting == 1 and not list(tmp_path.iterdir())


def test_what_a_process_is_told_of_its_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue of that name is recorded, all are led, and errors of a service are private."""
    closing: list[Any] = []
    monkeypatch.setattr(atexit, "register", closing.append)

    def told(variables: Mapping[str, str]) -> None:
        monkeypatch.setattr(environment, "_recorder", None)
        for name in (FILE, environment.URL, environment.QUEUE, environment.UNDER):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    def seen(queue: str) -> tuple[Any, ...]:
        found = environment.observer(queue)
        return type(found).__name__, *(getattr(found, name, None) for name in ("leads_to", "under", "_private", "_queue"))

    told(led("redis://x", "mails", tmp_path / "a.jsonl", "u:"))
    assert seen("bills") == ("Leading", "redis://x", "u:", None, None) and not closing
    assert seen("mails") == ("Recorder", "redis://x", "u:", True, "mails")
    recorder = environment._recorder
    assert recorder is not None and closing == [recorder.close]
    told(recording(tmp_path / "a.jsonl"))
    refused(Malformed, "a file of this process alone: another one records in it", environment.observer, "mails")
    assert os.environ[FILE] == str(tmp_path / "a.jsonl")
    told(recording(tmp_path / "b.jsonl"))
    assert [seen(name) for name in ("x", "y")] == [("Recorder", None, "", False, name) for name in ("x", "y")]
    told(led("redis://x", "mails", None))
    assert seen("mails") == ("Leading", "redis://x", "", None, None)
    told({FILE: ""})
    assert environment.observer("mails") is None
    monkeypatch.setattr(environment, "_recorder", recorder)
    environment._in_a_forked_child()
    assert recorder.file.broken and [row["kind"] for row in schema.checked_rows(tmp_path / "a.jsonl")] == ["open"]
    history.HistoryFile(tmp_path / "a.jsonl", proc="a", role="worker", alone=True).close()
