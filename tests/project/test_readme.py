"""The Python snippets of the README and of docs/ run as they stand, against a real server."""

import inspect
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import engine
from tests.engine.helpers.producing import raw_client

ROOT = Path(__file__).resolve().parents[2]
#: But for the programs of migrating.md, which are shown in parts: tests/project/porting runs those.
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name != "migrating.md")]
SNIPPETS = [snippet for page in PAGES for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
#: Snippets that a test of their own looks into, by words that only they have; each of the others is a program that must end well.
SPECIAL = {
    **{"FACE": "def welcome(job):", "CHARGE": "def charge(job):", "RENDER": "pages.store"},
    **{"ASYNC": "async with AsyncQueue(", "LIMITS": 'queue.set_limit("send", rate='},
    **{"FIXTURE": "def test_welcome", "SHOP": "# shop/jobs.py", "REPLACED": "def test_bill"},
    "EVERY_TEST": "@pytest.fixture(autouse=True)",
}


def special(name: str) -> str:
    (found,) = [snippet for snippet in SNIPPETS if SPECIAL[name] in snippet]
    return found


FACE, CHARGE, RENDER, ASYNC, LIMITS, FIXTURE, SHOP, REPLACED, EVERY_TEST = map(special, SPECIAL)
PROGRAMS = [snippet for snippet in SNIPPETS if snippet not in map(special, SPECIAL)]


#: An interpreter that has the engine, and forks for each path that it reads: to import the engine took longer than most programs.
#: Its workers sweep every 50 ms: a burst ends with a sweep, which by default comes once a second.
FORKS = """
import atexit, dataclasses, gc, os, runpy, sys, threading
from engine import *
from engine.http import application
from engine.options import settings_of

Queue("warm").close()
rows = settings_of(WorkerSettings)
rows["sweep_ms"] = dataclasses.replace(rows["sweep_ms"], default=50)
gc.freeze()

while script := sys.stdin.readline().strip():
    if pid := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    for number, name in ((0, os.devnull), (1, script + ".out"), (2, script + ".err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
    # As an interpreter ends, but without taking apart all that was imported.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)
"""
Run = Callable[[str, Path], str]


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FORKS], env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process


@pytest.fixture
def run_program(forks: subprocess.Popen[str], ironclaim_url: str) -> Run:
    """Run a snippet as a program of its own, against this server; what it has printed."""

    def run(snippet: str, script: Path) -> str:
        assert forks.stdin and forks.stdout
        script.write_text(snippet.replace("redis://127.0.0.1:6379", ironclaim_url))
        forks.stdin.write(f"{script}\n")
        forks.stdin.flush()
        assert forks.stdout.readline() == "0\n", Path(f"{script}.err").read_text()
        return Path(f"{script}.out").read_text()

    return run


@pytest.mark.parametrize("snippet", PROGRAMS, ids=lambda snippet: snippet.strip().splitlines()[-1][:40])
def test_a_snippet_runs_as_it_stands(snippet: str, run_program: Run, tmp_path: Path) -> None:
    """A comment `# prints: ...` says what a line before it has printed."""
    printed = run_program(snippet, tmp_path / "snippet.py")
    assert [line for line in printed.splitlines() if line] == re.findall(r"# prints: (.*)", snippet)


def test_the_public_face_is_ten_lines_and_they_run(ironclaim_url: str, run_program: Run, tmp_path: Path) -> None:
    assert sum(1 for line in FACE.splitlines() if line.strip()) <= 10
    assert re.fullmatch(r"hello ada, fence \d{13}\n", run_program(FACE, tmp_path / "face.py"))
    with engine.Queue("emails", url=ironclaim_url) as queue:
        counts = queue.counts()
    assert (counts.finished, counts.waiting, counts.active, counts.delayed) == (1, 0, 0, 0)


def test_a_charge_comes_once_however_often_it_runs_and_every_charge_comes(ironclaim_url: str, tmp_path: Path) -> None:
    """With the fence of an account instead, the second run charged again, and of two jobs with one fence the second did not."""

    bank = tmp_path / "bank.db"
    with sqlite3.connect(bank) as connection:
        engine.effects.create_table(connection)
        connection.execute("CREATE TABLE accounts (id TEXT, balance INTEGER)")
        connection.execute("INSERT INTO accounts VALUES ('a1', 100)")
    runs: list[int] = []

    @contextmanager
    def database() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(bank)) as connection:
            with connection:
                yield connection
            runs.append(1)
            if len(runs) == 1:
                raise OSError("charged, but the handler does not hear of it")

    names = {"handlers": engine.Handlers(), "database": database}
    exec(CHARGE, names)
    with engine.Queue("money", url=ironclaim_url) as queue:
        new = [engine.NewJob("charge", {"account": "a1", "amount": 5}, id=job, backoff_ms=0) for job in ("c1", "c2")]
        queue.enqueue_many(new)
        engine.Worker(queue, names["handlers"], sweep_ms=50).run(burst=True)
    assert len(runs) == 3
    with closing(sqlite3.connect(bank)) as connection:
        assert connection.execute("SELECT balance FROM accounts").fetchall() == [(90,)]


def test_rule_34_a_store_that_keeps_the_fence_refuses_the_late_write_of_a_run_before(ironclaim_url: str) -> None:
    stored: dict[str, tuple[int, str]] = {}

    class Pages:
        def store(self, job: str, *, html: str, fence: int) -> None:
            if fence > stored.get(job, (0, ""))[0]:
                stored[job] = (fence, html)

    pages = Pages()
    names = {"handlers": engine.Handlers(), "pages": pages}
    exec(RENDER, names)
    with engine.Queue("pages", url=ironclaim_url) as queue:
        queue.enqueue("render", {"title": "new"}, id="p1")
        engine.Worker(queue, names["handlers"], sweep_ms=50).run(burst=True)
    fence, _ = stored["p1"]
    assert fence > 1_700_000_000_000
    pages.store("p1", html="of a zombie", fence=fence - 1)
    assert stored["p1"] == (fence, "<h1>new</h1>")


def test_limits_pauses_and_keys_that_keep_others_out(ironclaim_url: str) -> None:
    names: dict[str, object] = {"Queue": engine.Queue}
    exec(LIMITS.replace("redis://127.0.0.1:6379", ironclaim_url), names)
    with engine.Queue("mails", url=ironclaim_url) as queue, raw_client(ironclaim_url) as client:
        assert not queue.enqueue("report", {"day": 7}, unique="report-7").created
        assert not queue.enqueue("remind", {"to": "ada"}, dedup="remind-ada", dedup_ms=1).created
        assert client.hgetall("ic:{mails}:limits") == {"n:send": "0 100 1000 sliding", "k:*": "2 0 0 sliding"}
        assert client.hkeys("ic:{mails}:paused") == ["send"]


def test_the_fixture_snippet_is_a_test_that_passes(ironclaim_url: str) -> None:
    names: dict[str, object] = {"Queue": engine.Queue}
    exec(FIXTURE, names)
    names["test_welcome"](ironclaim_url)  # type: ignore[operator]
    with engine.Queue("emails", url=ironclaim_url) as queue:
        assert queue.counts().waiting == 1


def test_a_test_of_a_service_passes_on_its_server(ironclaim_queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/jobs.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    try:
        exec(REPLACED, names)
        exec(EVERY_TEST, names)
        names["test_bill"](inspect.unwrap(names["orders"])(ironclaim_queue))
        # What the test ran was on its server, and is there.
        assert ironclaim_queue.counts().finished >= 1
    finally:
        for name in ("shop", "shop.jobs"):
            sys.modules.pop(name, None)


def test_the_async_snippet_puts_a_hundred_jobs_in_and_a_worker_runs_them(ironclaim_url: str) -> None:
    names: dict[str, Any] = {}
    exec(ASYNC.replace("redis://127.0.0.1:6379", ironclaim_url), names)
    with engine.Queue("pages", url=ironclaim_url) as queue:
        assert queue.counts().waiting == 100
        engine.Worker(queue, names["handlers"], sweep_ms=50).run(burst=True)
        assert queue.counts().finished == 100
