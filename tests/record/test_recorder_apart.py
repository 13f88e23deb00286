"""The recording apart from the work: killed writers, full disks, and nothing at all without an observer."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from engine import Queue, Worker, testing
from record.history import HistoryFile
from record.recorder import Recorder
from tests.engine.helpers import producing, schema, waiting
from tests.engine.helpers.relay import Relay

ROOT = Path(__file__).parents[2]

PRODUCER = """
import sys
from pathlib import Path
from engine import Queue
from record.history import HistoryFile
from record.recorder import Recorder
recorder = Recorder(HistoryFile(Path(sys.argv[1]), proc="p", role="producer"), queue="q")
queue = Queue("q", url=sys.argv[2], observer=recorder)
queue.enqueue("work", {}, id="a")
queue.enqueue("work", {}, id="b")
"""

UNOBSERVED = """
import sys
from engine import Queue, Handlers, Worker
queue = Queue("q", url=sys.argv[1])
queue.enqueue("work", {})
handlers = Handlers()
handlers("work")(lambda job: None)
Worker(queue, handlers, sweep_ms=50).run(burst=True)
print(queue.counts().finished, [name for name in ("record.recorder", "record.history") if name in sys.modules])
"""


def test_a_producer_that_is_killed_while_it_waits_leaves_its_invocation(relay: Relay, ironclaim_url: str, tmp_path: Path) -> None:
    """The job is there, and the history says that it may be."""
    path = tmp_path / "p.jsonl"
    # The note of the era, and the two jobs.
    relay.next("pass", "pass", "hush_reply")
    child = testing.start_guarded([sys.executable, "-c", PRODUCER, str(path), relay.url], cwd=ROOT)
    queue = Queue("q", url=ironclaim_url)
    waiting.wait_until(lambda: "b" in producing.ids_of(queue, "waiting"), "the second job is there")
    child.kill()
    child.wait()
    queue.close()
    told = [(row["type"], row["items"][0]["job"]) for row in schema.checked_rows(path) if row["kind"] == "operation"]
    assert told == [("invoke", "a"), ("ok", "a"), ("invoke", "b")]


def test_a_full_disk_never_fails_a_job(ironclaim_url: str, capfd: Any) -> None:
    recorder = Recorder(HistoryFile(Path("/dev/full"), proc="p", role="worker"), queue="q")
    queue = Queue("q", url=ironclaim_url, observer=recorder)
    done: list[str] = []
    for number in range(20):
        assert queue.enqueue("work", {}, id=f"j{number}").result == "created"
    Worker(queue, producing.some_handlers(lambda job: done.append(job.id)), sweep_ms=50).run(burst=True)
    recorder.close()
    assert sorted(done) == sorted(f"j{number}" for number in range(20)) and queue.counts().finished == 20
    told = [line for line in capfd.readouterr().err.splitlines() if "history file" in line]
    assert told == ["history file full: No space left on device; recording stopped, the verdict will be unknown"]
    queue.close()


def test_without_an_observer_nothing_of_the_history_is_even_imported(ironclaim_url: str) -> None:
    program = [sys.executable, "-c", UNOBSERVED, ironclaim_url]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.stdout.strip(), done.returncode) == ("1 []", 0), done.stderr


def test_recording_adds_no_command(ironclaim_url: str, tmp_path: Path, client: Any) -> None:
    """The same work with and without a recorder: the server hears the same."""
    heard: list[dict[str, int]] = []
    for observer in (None, Recorder(HistoryFile(tmp_path / "p.jsonl", proc="p", role="producer"), queue="q")):
        queue = Queue("q", url=ironclaim_url, observer=observer)
        queue.counts()
        queue.note_era()
        client.config_resetstat()
        for number in range(5):
            queue.enqueue("work", {}, id=f"{observer is None}-{number}")
        stats = client.info("commandstats")
        heard.append({name: stats[name]["calls"] for name in stats if name.startswith("cmdstat_evalsha")})
        queue.close()
    assert heard[0] == heard[1] == {"cmdstat_evalsha": 5}
