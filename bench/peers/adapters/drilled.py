"""What `recording` is in a drill (`chaos/targets`): histories of what was sent and what ran, and load at a steady rate until
SIGTERM. Standard library alone.

The order's `history` says how: `path`, `proc` (the name of the process that was started), `version` of the rows
(`record.history.SCHEMA_VERSION`), and `work_s`, the shortest and the longest work of a handler. All processes that a library
forks write to one file. Each numbers its own rows, under a `proc` that ends with its process id. A row is one write, so a process
that is killed leaves all that it has written.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from order import ORDER, PAYLOAD

HISTORY: dict[str, Any] = ORDER["history"]
#: How long a loop that waits for its next job may overlook SIGTERM.
_LOOK_S = 0.05
#: Spreads the lengths of the work evenly, the same way in every language.
_GOLDEN = 0.6180339887498949


class _Rows:
    """The rows of this process; a process that was forked begins anew."""

    def __init__(self) -> None:
        self._descriptor = os.open(HISTORY["path"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.begin()
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self._lock = threading.Lock()
        self._seq, self._operations = 0, 0

    def append(self, kind: str, **columns: Any) -> None:
        """Write one row, and before the first one that this process exists."""
        with self._lock:
            if not self._seq and kind != "open":
                self._write("open", {"role": "producer" if ORDER["role"] == "produce" else "sink", "pid": os.getpid()})
            self._write(kind, columns)

    def _write(self, kind: str, columns: dict[str, Any]) -> None:
        head = {
            "v": HISTORY["version"],
            "seq": self._seq,
            "proc": f"{HISTORY['proc']}.{os.getpid()}",
            "t_ns": time.monotonic_ns(),
        }
        self._seq += 1
        os.write(self._descriptor, json.dumps({**head, "kind": kind, **columns}).encode() + b"\n")

    def operation(self) -> str:
        """A new operation id."""
        with self._lock:
            self._operations += 1
            return f"{HISTORY['proc']}.{os.getpid()}-{self._operations}"


_rows = _Rows()


class _Operation:
    """An operation on one job: a row before it, and one when it has come to an end."""

    def __init__(self, f: str, number: int) -> None:
        # The operation stands in for a lease's nonce: it is what tells two runs of a job apart.
        op = _rows.operation()
        self._item = {"job": str(number), "nonce": op}
        self._head = {"f": f, "op": op, "queue": ORDER["queue"], "first_send_ns": time.monotonic_ns()}
        _rows.append("operation", **self._head, type="invoke", items=[self._item])

    def end(self, kind: str = "ok", **more: str) -> None:
        item = {**self._item, "result": "created"} if self._head["f"] == "enqueue" and kind == "ok" else self._item
        _rows.append("operation", **self._head, type=kind, done_ns=time.monotonic_ns(), items=[item], **more)


def _work_s(number: int) -> float:
    least, most = HISTORY["work_s"]
    return least + (most - least) * (number * _GOLDEN % 1)


def job(number: int, payload: dict[str, Any]) -> None:
    """The handler of all libraries that run functions."""
    run = _Operation("handle", number)
    time.sleep(_work_s(number))
    run.end()


async def job_async(number: int, payload: dict[str, Any]) -> None:
    """The handler of all libraries that run coroutines."""
    run = _Operation("handle", number)
    await asyncio.sleep(_work_s(number))
    run.end()


class _Load:
    """The numbers of the jobs to send, each when it is due, until SIGTERM."""

    def __init__(self) -> None:
        self._ended = False
        self._number, self._start_s = 0, time.monotonic()
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._ended = True

    def wait_s(self) -> float | None:
        """How long to wait before the next look: 0 when a job is due, None when there will be none any more."""
        due_s = self._start_s + self._number / ORDER["rate"]
        return None if self._ended else min(_LOOK_S, max(0.0, due_s - time.monotonic()))

    def next(self) -> tuple[int, _Operation]:
        """The job that is due, and the row that says that it is about to be sent. Its payload carries a mark, by which the
        harness finds it in the keys of the server whatever their format."""
        number, self._number = self._number, self._number + 1
        PAYLOAD["mark"] = f"job-mark:{number}:"
        return number, _Operation("enqueue", number)


def produce(enqueue: Callable[[int], Any], enqueue_bulk: Callable[[list[int]], Any] | None = None) -> None:
    """Send jobs one by one; one whose call raises may have been sent all the same."""
    load = _Load()
    while (wait_s := load.wait_s()) is not None:
        if wait_s:
            time.sleep(wait_s)
            continue
        number, call = load.next()
        try:
            enqueue(number)
        except Exception as error:
            call.end("info", error=f"{type(error).__name__}: {error}")
        else:
            call.end()
    _rows.append("close")


async def produce_async(
    enqueue: Callable[[int], Awaitable[Any]], enqueue_bulk: Callable[[list[int]], Awaitable[Any]] | None = None
) -> None:
    """As `produce`, under asyncio."""
    load = _Load()
    while (wait_s := load.wait_s()) is not None:
        if wait_s:
            await asyncio.sleep(wait_s)
            continue
        number, call = load.next()
        try:
            await enqueue(number)
        except Exception as error:
            call.end("info", error=f"{type(error).__name__}: {error}")
        else:
            call.end()
    _rows.append("close")
