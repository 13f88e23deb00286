"""Handlers for worker processes under test. They tell what they do in files of the folder that the job's payload names."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from engine import Handlers, Job

handlers = Handlers()


class Unprintable(Exception):
    """An error that raises when it is printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def mark_in(job: Job, word: str) -> Path:
    """Append one line (word, job id, pid, monotonic ns, fence) to the file `marks`."""
    folder = Path(job.payload["folder"])
    descriptor = os.open(folder / "marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, f"{word} {job.id} {os.getpid()} {time.monotonic_ns()} {job.fence}\n".encode())
    os.close(descriptor)
    return folder


ERRORS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("no"), "exit": lambda: SystemExit(3), "interrupt": KeyboardInterrupt, "generator": GeneratorExit,
    "unprintable": Unprintable,
}  # fmt: skip


def raise_error(what: str) -> None:
    """Raise the error of this name, if there is one."""
    if what in ERRORS:
        raise ERRORS[what]()
    if what == "file":
        # A file name that is no UTF-8, as any directory listing may bring it.
        Path(os.fsdecode(b"/none/\xff")).read_bytes()


@handlers("mark")
def mark(job: Job) -> None:
    """Run and return."""
    mark_in(job, "ran")


@handlers("hold")
def hold(job: Job) -> None:
    """Run until the file `open` or `open-<pid>` exists."""
    folder = mark_in(job, "start")
    gates = [folder / "open", folder / f"open-{os.getpid()}"]
    while not any(gate.exists() for gate in gates):
        time.sleep(0.005)
    mark_in(job, "lost" if job.lease_lost.is_set() else "end")


@handlers("raise")
def throw(job: Job) -> None:
    """Raise what the payload names, in each run or only in the first `times`."""
    mark_in(job, "ran")
    if job.failures < job.payload.get("times", 1000):
        raise_error(job.payload["what"])


@handlers("starve")
def starve(job: Job) -> None:
    """Hold the interpreter lock in one call of C code, so that no other thread of the worker runs.

    Then wait for the loss: a handler that returned at once might be heard before the worker looks at its clock.
    """
    mark_in(job, "start")
    sum(range(job.payload["count"]))
    while not job.lease_lost.is_set():
        time.sleep(0.005)
    mark_in(job, "end")


@handlers("poison")
def poison(job: Job) -> None:
    """Take the worker along, as a segmentation fault does."""
    mark_in(job, "start")
    os.kill(os.getpid(), signal.SIGKILL)


# -- whose ends are looked for in a history, and one that tells its queue

history = Handlers()


@history("queue")
def queue_of(job: Job) -> str:
    return job.queue


@history("one")
def one(job: Job) -> int:
    if job.payload == 7:
        raise ValueError("seven")
    return job.payload


@history("many", batch=10)
def many(jobs: list[Job]) -> None:
    assert jobs
