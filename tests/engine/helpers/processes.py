"""Worker processes under test, and what their handlers have marked."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine import Queue
from record.environment import recording
from tests import given
from tests.engine.desk import run_texts
from tests.engine.helpers import producing, waiting, warm

ROOT = Path(__file__).parents[3]
HANDLERS = "tests.engine.helpers.worker_handlers:handlers"


@dataclass(frozen=True)
class Mark:
    """One line that a handler wrote."""

    word: str
    job: str
    pid: int
    at_ns: int
    fence: int


class Workers:
    """Starts `python -m engine worker` and ends it with the test. Output and history lie in `folder`, by worker name."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self, *options: str, name: str = "worker-1", handlers: str = HANDLERS, queue: str = "q", program: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a worker; `program` is Python code that replaces `-m engine`."""
        python = ("-c", program) if program else ("-m", "engine")
        words = (*python, "worker", handlers, "--queue", queue, "--name", name, "--url", self.url, *options)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **recording(self.history(name))}
        with (self.folder / f"{name}.log").open("wb") as output:
            process = warm.start(words, env=env, output=output)
        self.started.append(process)
        return process

    def history(self, name: str = "worker-1") -> Path:
        return self.folder / f"{name}.jsonl"

    def output(self, name: str = "worker-1") -> str:
        return "".join(f"{line}\n" for line in waiting.whole_lines(self.folder / f"{name}.log"))

    def open_gate(self, pid: int | None = None) -> None:
        """Let the handlers that hold go on, all or those of one process."""
        (self.folder / ("open" if pid is None else f"open-{pid}")).touch()

    def marks(self, word: str = "", job: str = "") -> list[Mark]:
        lines = map(str.split, waiting.whole_lines(self.folder / "marks"))
        found = [Mark(parts[0], parts[1], *map(int, parts[2:])) for parts in lines]
        return [mark for mark in found if word in ("", mark.word) and job in ("", mark.job)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Handlers that hold on are let go before their workers are stopped."""
        self.open_gate()
        self.stop_all()

    def stop_all(self) -> None:
        for process in self.started:
            kill(process)


def put(queue: Queue, workers: Workers, name: str, *jobs: str, what: str = "", more: Any = None, **options: Any) -> None:
    """Enqueue jobs whose handlers write into the folder of the test."""
    payload = {"folder": str(workers.folder), "what": what, **(more or {})}
    came = queue.enqueue_many([{"name": name, "payload": payload, "id": job, **options} for job in jobs])
    assert all(job.created for job in came)


def kill(process: subprocess.Popen[Any]) -> None:
    """It is gone afterwards."""
    process.kill()
    process.wait()


def stopped(worker: subprocess.Popen[bytes]) -> int:
    """Ask a worker to stop; the code with which it ends."""
    worker.terminate()
    return worker.wait(120)


def run_of(queue: Queue, job: str) -> dict[str, str]:
    """What the server keeps of a job's runs."""
    with producing.raw_client(queue.url) as client:
        return run_texts(client, queue.model.keys.run(job))


def is_gone(pid: int) -> bool:
    """No such process, or only its entry that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def refuses(port: int) -> bool:
    """Nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def shell_script(folder: Path, text: str) -> Path:
    """An executable one, in place of a server."""
    return given.script(folder / "a-server", text)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a forked child that has called it: 0, unless it returns False or raises."""
    child = os.fork()
    if child == 0:
        code = 1
        # One that hangs has failed.
        signal.alarm(60)
        try:
            code = int(work() is False)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
