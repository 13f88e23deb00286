"""Handlers and hooks of a worker's whole life, at module level for child processes. They append lines to the file `marks` in the
folder that the environment names."""

import os
import signal
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from engine import Handlers, Job, SoftTimeout

FOLDER = "LIFE_FOLDER"
app: ContextVar[str] = ContextVar("app", default="none")
pool: ContextVar[str] = ContextVar("pool", default="closed")

handlers = Handlers()


def mark(*words: object) -> None:
    descriptor = os.open(Path(os.environ[FOLDER], "marks"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, f"{' '.join(map(str, words))} {os.getpid()}\n".encode())
    os.close(descriptor)


def has(name: str) -> bool:
    return Path(os.environ[FOLDER], name).exists()


@handlers.hooks.on_start
def opens() -> None:
    # The process of the worker has the module before it has the file.
    if has("refuse") and has(f"not-{os.getppid()}"):
        mark("refused")
        raise ConnectionError("no database")
    pool.set("open")
    mark("start")


@handlers.hooks.on_stop
def closes() -> None:
    mark("stop")


@handlers.hooks.around
def in_app(job: Job) -> Iterator[None]:
    mark("enter", job.id)
    app.set(job.id)
    yield
    mark("leave", job.id)


handlers.hooks.before(lambda job: mark("before", job.id))
handlers.hooks.after(lambda job, error: mark("after", job.id, error and error.partition(":")[0]))


@handlers("plain")
def plain(job: Job) -> str:
    what = str(job.payload)
    mark("run", job.id, app.get(), pool.get())
    match what:
        case "fail":
            raise ValueError("no")
        case "die" if job.failures == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang" if job.failures == 0:
            time.sleep(60)
    return what


@handlers("batch", batch=5)
def batch(jobs: list[Job]) -> dict[str, str]:
    mark("run", len(jobs))
    return {job.id: app.get() for job in jobs}


@handlers("soft")
def soft(job: Job) -> str:
    """Wait in a call of the system until the soft timeout, then do what the payload says."""
    try:
        time.sleep(60)
    except SoftTimeout:
        mark("soft", job.id, job.cancelled)
        # Not by its failures: a run whose time is over before it begins has failed, too.
        if job.payload == "raise" and not has(f"raised-{job.id}"):
            Path(os.environ[FOLDER], f"raised-{job.id}").touch()
            raise
    return "cleaned up"


@handlers("soft-chatty")
def soft_chatty(job: Job) -> str:
    """Say more than ten things a second until the soft timeout."""
    end_s = time.monotonic() + 60
    try:
        while time.monotonic() < end_s:
            job.progress(1)
            time.sleep(0.001)
    except SoftTimeout:
        return "told"
    return "not told"


@handlers("soft-batch", batch=5)
def soft_batch(jobs: list[Job]) -> list[object]:
    return [soft(jobs[0])] * len(jobs)
