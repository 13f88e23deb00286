"""The README's snippets run as they stand, against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import engine
from tests.engine.helpers.producing import raw_client

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
FACE, CHARGE, ASYNC, LIMITS, FIXTURE = SNIPPETS


def test_the_public_face_is_ten_lines_and_they_run(ironclaim_url: str, tmp_path: Path) -> None:
    assert sum(1 for line in FACE.splitlines() if line.strip()) <= 10
    script = tmp_path / "face.py"
    script.write_text(FACE.replace("redis://127.0.0.1:6379", ironclaim_url))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"hello ada, fence \d{13}\n", done.stdout)
    queue = engine.Queue("emails", url=ironclaim_url)
    counts = queue.counts()
    queue.close()
    assert (counts.finished, counts.waiting, counts.active, counts.delayed) == (1, 0, 0, 0)


def test_the_fence_reaches_the_system_that_is_written_to(ironclaim_url: str) -> None:
    class Ledger:
        def __init__(self) -> None:
            self.fence = 0

        def charge(self, account: str, amount: int, *, fence: int) -> None:
            assert (account, amount) == ("a1", 5)
            assert fence > self.fence
            self.fence = fence

    names = {"handlers": engine.Handlers(), "ledger": Ledger()}
    exec(CHARGE, names)
    queue = engine.Queue("money", url=ironclaim_url)
    queue.enqueue("charge", {"account": "a1", "amount": 5})
    engine.Worker(queue, names["handlers"]).run(burst=True)
    queue.close()
    assert names["ledger"].fence > 1_700_000_000_000


def test_limits_pauses_and_keys_that_keep_others_out(ironclaim_url: str) -> None:
    names: dict[str, object] = {"Queue": engine.Queue}
    exec(LIMITS.replace("redis://127.0.0.1:6379", ironclaim_url), names)
    queue = engine.Queue("mails", url=ironclaim_url)
    assert not queue.enqueue("report", {"day": 7}, unique="report-7").created
    assert not queue.enqueue("remind", {"to": "ada"}, dedup="remind-ada", dedup_ms=1).created
    with raw_client(ironclaim_url) as client:
        assert client.hgetall("ic:{mails}:limits") == {"n:send": "0 100 1000 sliding", "k:*": "2 0 0 sliding"}
        assert client.hkeys("ic:{mails}:paused") == ["send"]
    queue.close()


def test_the_fixture_snippet_is_a_test_that_passes(ironclaim_url: str) -> None:
    names: dict[str, object] = {"Queue": engine.Queue}
    exec(FIXTURE, names)
    names["test_welcome"](ironclaim_url)  # type: ignore[operator]


def test_the_async_snippet_puts_a_hundred_jobs_in_and_a_worker_runs_them(ironclaim_url: str) -> None:
    names: dict[str, object] = {}
    exec(ASYNC.replace("redis://127.0.0.1:6379", ironclaim_url), names)
    queue = engine.Queue("pages", url=ironclaim_url)
    assert queue.counts().waiting == 100
    handlers = names["handlers"]
    assert isinstance(handlers, engine.Handlers)
    engine.Worker(queue, handlers).run(burst=True)
    assert queue.counts().finished == 100
    queue.close()
