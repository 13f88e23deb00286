"""Handlers of every kind for workers under test: async, plain, and what goes wrong with each. They mark files as
`worker_handlers` does."""

import asyncio
import contextvars
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from engine import Handlers, Job
from tests.engine.helpers.worker_handlers import mark, mark_in, raise_error

handlers = Handlers()


@handlers("thread")
async def thread(job: Job) -> None:
    """Mark the name of the thread that this runs on."""
    await asyncio.sleep(0)
    mark_in(job, threading.current_thread().name)


@handlers("async-hold")
async def async_hold(job: Job) -> None:
    """Run until the file `open` exists, without blocking the loop."""
    folder = mark_in(job, "start")
    while not (folder / "open").exists():
        await asyncio.sleep(0.005)
    mark_in(job, "lost" if job.lease_lost.is_set() else "end")


@handlers("async-raise")
async def async_raise(job: Job) -> None:
    """Raise what the payload names."""
    mark_in(job, "ran")
    await asyncio.sleep(0)
    raise_error(job.payload["what"])
    if job.payload["what"] == "cancel":
        raise asyncio.CancelledError
    if job.payload["what"] == "stray exit":
        # In a task of its own: this goes through the loop.
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0.01)
        raise ValueError("no")


@handlers("plain-returns-coroutine")
def plain_returns_coroutine(job: Job) -> object:
    """Looks plain, and would do nothing when it is called."""
    return async_hold(job)


handlers("plain")(mark)


@handlers("hold")
def hold(job: Job) -> None:
    """Run until the file `open` exists or the lease is lost."""
    folder = mark_in(job, "start")
    while not (folder / "open").exists() and not job.lease_lost.is_set():
        time.sleep(0.005)
    mark_in(job, "lost" if job.lease_lost.is_set() else "end")


@handlers("raise")
def throw(job: Job) -> None:
    """Raise."""
    mark_in(job, "ran")
    raise ValueError("no")


@handlers("exit")
def leave(job: Job) -> None:
    """Raise SystemExit, which would end a process that lets it through."""
    mark_in(job, "ran")
    sys.exit(3)


@handlers("die")
def die(job: Job) -> None:
    """End the process that runs this; with `orphan`, leaving a child behind that keeps every descriptor open."""
    mark_in(job, "ran")
    if job.payload["what"] == "orphan" and os.fork() == 0:
        deadline_s = time.monotonic() + 20
        while not (Path(job.payload["folder"]) / "open").exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@handlers("fork")
def fork_in(job: Job) -> None:
    """Fork; the child comes out of the handler as the payload says, and its exit code is marked."""
    mark_in(job, "ran")
    child = os.fork()
    if child:
        mark_in(job, f"child-{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    elif job.payload["what"] == "exit":
        sys.exit(3)
    elif job.payload["what"] == "raise":
        raise ValueError("in the child")


@handlers("async-fork")
async def async_fork(job: Job) -> None:
    """Fork in a coroutine."""
    fork_in(job)


var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="")


@handlers("async-task")
async def async_task(job: Job) -> None:
    """Mark what is left of other jobs in this task, and leave something in it."""
    mark_in(job, f"ran{var.get()}")
    var.set("-after-another")
    await asyncio.sleep(0)
    task = asyncio.current_task()
    if job.payload["what"] == "cancel" and task is not None:
        # Takes effect where the task waits next, which this handler does not.
        task.cancel()


@handlers("leaves")
def leaves(job: Job) -> None:
    """Mark what is left of other jobs in the context, and leave something in it."""
    mark_in(job, f"ran{var.get()}")
    var.set("-after-another")


@handlers("grip")
def grip(job: Job) -> None:
    """Hold the interpreter lock, as C code may, until the file `open` exists; looks every 0.4 s, or with `long` every 30 s."""
    folder, libc = mark_in(job, "start"), ctypes.PyDLL(None)
    while not Path(folder / "open").exists():
        libc.usleep(30_000_000 if job.payload["what"] == "long" else 400_000)
    mark_in(job, "end")
