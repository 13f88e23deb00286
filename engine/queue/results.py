"""Results of jobs: what a handler returned, or the error of a dead job; and waiting for one without
losing a wake-up.

Who waits looks and registers in one step of the server (`look.lua`), and then blocks on a stream of its
own, which the script that ends the job writes to. Reading a stream takes nothing away. So a lost reply is
read again. And every block is followed by another look, at the latest after `BLOCK_MS`, so that also a
server that has forgotten everything leaves nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
import time
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from engine import validate
from engine.errors import (
    EngineError,
    JobFailed,
    Malformed,
    NoResult,
    OutcomeUnknown,
    ScriptFault,
    ServerUnavailable,
    TimedOut,
    UnknownJob,
)
from engine.handlers import refuse_wait
from engine.models.model import Model
from engine.ops.base import BLOCK_MS, Operation, frozen
from engine.ops.looks import AwaitEnds, EndedJobs, Seen
from engine.parameters import TypedJob

#: How a job has ended, in the words of its state; rerouted ones are discarded.
Outcome = Literal["finished", "dead", "cancelled", "discarded", "skipped", "expired"]
#: Ends without the work, and without an error.
_UNDONE = ("cancelled", "discarded", "expired")
#: The id that the first entry of a stream comes after.
FIRST_ENTRY = "0-1"
#: What a record that is none makes of its reader.
_NO_RECORD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
#: The server could not be asked, perhaps only now.
AWAY = (ServerUnavailable, OutcomeUnknown)

T = TypeVar("T")


@frozen
class Result(Generic[T]):
    """How a job has ended. `value` is what its handler returned, None where it returned nothing or that is
    not kept any more.

    `outcome`: finished, dead (it failed or crashed too often, and may be requeued), cancelled, discarded (by
    its handler, or after its death), skipped (by its `skip_on`), or expired before anybody had started it.
    `error` is the last error of a dead or skipped job as text. `ended_ms` is server time and 0 where nobody
    knows it any more; `took_ms` is how long the handler ran, None where no value is kept. `kept` is False
    where the task says that it returns something and that is not there. `unreadable` says why what is stored
    of the end cannot be read, because somebody else has written it.
    """

    job: str
    outcome: Outcome
    value: T | None = None
    error: str = ""
    ended_ms: int = 0
    took_ms: int | None = None
    kept: bool = True
    unreadable: str = ""

    @property
    def ok(self) -> bool:
        """True for a job that has finished."""
        return self.outcome == "finished"

    def get(self) -> T:
        """The value. Raises JobFailed where the job has not finished, NoResult where a value of its type is
        not kept, and ScriptFault where nobody can read it."""
        if not self.ok:
            raise JobFailed(self.job, self.outcome, self.error)
        if self.unreadable:
            raise ScriptFault(f"job {self.job}: {self.unreadable}")
        if not self.kept:
            raise NoResult(self.job)
        return cast("T", self.value)


def typed(found: Result[Any], task: object) -> Result[Any]:
    """The same result with its value as the function of this task returned it; unchanged for a job that has
    not finished, and where no task is given, or a name. Raises Malformed."""
    if not isinstance(task, TypedJob) or not found.ok or found.unreadable:
        return found
    try:
        return replace(found, value=task.parameters.read_result(found.value))
    except Malformed:
        if found.value is None:
            return replace(found, kept=False)
        raise


def result_of(job: str, seen: Seen) -> Result[Any] | None:
    """The result in a reply; None for a job that has not ended or is not known."""
    if seen.state in ("pending", "gone", "rejected"):
        return None
    try:
        record, unreadable = _record(seen), ""
    except _NO_RECORD as error:
        record, unreadable = {}, f"its record cannot be read ({error}): {seen.record!r:.200}"
    if seen.state in ("dead", "skipped"):
        error, ended_ms = record.get("error") or seen.error, seen.ended_ms or record.get("ended_ms", 0)
        return Result(job, seen.state, None, error, ended_ms, unreadable=unreadable)
    if record.get("ok") is False:
        # A dead or skipped job whose entry is gone.
        ended = "skipped" if record.get("skipped") is True else "dead"
        outcome: Any = seen.state if seen.state in _UNDONE else ended
        return Result(job, outcome, None, record.get("error") or "", record["ended_ms"])
    outcome = seen.state if seen.state in _UNDONE else "finished"
    ended_ms, took_ms = seen.ended_ms or record.get("ended_ms", 0), record.get("took_ms")
    return Result(job, outcome, record.get("value"), "", ended_ms, took_ms, unreadable=unreadable)


def best(job: str, looks: Iterable[Seen]) -> Result[Any] | None:
    """How a job has ended, by what each shard has seen of it. After a resharding its id may be known to
    several, and its result to one of them."""
    found = [result for seen in looks if (result := result_of(job, seen)) is not None]
    return max(
        found, key=lambda result: (result.took_ms is not None, result.error, result.ended_ms), default=None
    )


def _record(seen: Seen) -> dict[str, Any]:
    """The stored record, empty where there is none of this end. A job of the same id, or an earlier life of
    this one, may have left one. Raises one of _NO_RECORD."""
    if not seen.record:
        return {}
    record: Any = json.loads(seen.record)
    ok, error, took_ms = record["ok"], record.get("error") or "", record.get("took_ms")
    if not isinstance(ok, bool) or not isinstance(error, str):
        raise ValueError(f"ok {ok!r:.20}, error {error!r:.20}")
    ended_ms, fence = _ms(record["ended_ms"]), validate.integer("fence", record.get("fence", 0), 0, 2**63)
    record |= {"ended_ms": ended_ms, "error": error, "took_ms": None if took_ms is None else _ms(took_ms)}
    if seen.state == "finished" and (
        not ok or (seen.fence and fence != seen.fence) or (seen.ended_ms not in (0, ended_ms))
    ):
        return {}
    if seen.state in ("dead", "skipped") and (ok or seen.ended_ms not in (0, ended_ms)):
        return {}
    return record


@frozen
class Progress:
    """How far a run has come, as its handler told: `percent` from 0 to 100, a text, any JSON value, and when
    (server time). `unreadable` says why what is stored cannot be read, because somebody else has written
    it."""

    percent: float
    message: str | None
    data: Any
    at_ms: int
    unreadable: str = ""


def progress_of(raw: bytes | None) -> Progress | None:
    """The stored progress; None without any."""
    if raw is None:
        return None
    try:
        found: Any = json.loads(raw)
        message = found["message"]
        if not isinstance(message, str | None):
            raise ValueError(f"message {message!r:.20}")
        return Progress(
            validate.number("percent", found["percent"], 0, 100), message, found["data"], _ms(found["at_ms"])
        )
    except _NO_RECORD as error:
        return Progress(0.0, None, None, 0, f"it cannot be read ({error}): {raw!r:.200}")


def _ms(value: Any) -> int:
    """A time of a record, or a length. Raises Malformed."""
    return validate.integer("a time", value, 0, validate.INSTANT_MS_MAX)


class Waiting:
    """One wait for a job, without I/O: when to poll, how long to block, and what the replies mean. Raises
    Malformed for a time out of bounds."""

    def __init__(self, job: str, wait_ms: object) -> None:
        self.job = job
        self._wait_ms = validate.duration_ms("wait_ms", wait_ms, 0, validate.DURATION_MS_MAX)
        self.begin()

    def begin(self) -> None:
        """Wait so long from now on."""
        self._until_s = time.monotonic() + self._wait_ms / 1000

    def take(self, seen: Seen) -> Result[Any] | None:
        """Interpret a reply. Returns None to block for `block_ms` and poll again. Raises UnknownJob and
        TimedOut."""
        if seen.state in ("gone", "rejected"):
            raise UnknownJob(f"job {self.job}: the server knows no such job")
        found = result_of(self.job, seen)
        if found is None and not self.left_ms:
            raise TimedOut(self.job, self._wait_ms)
        return found

    def failed(self, error: EngineError) -> None:
        """Note that a poll was not answered. Raises its error when no time is left."""
        if not self.left_ms:
            raise error

    @property
    def left_ms(self) -> int:
        """The time left to wait, in ms; 0 from its end on. A part of one counts as one, so that no wait ends
        too soon."""
        return max(0, math.ceil((self._until_s - time.monotonic()) * 1000))

    @property
    def block_ms(self) -> int:
        """How long to block before the next poll, in ms."""
        return max(1, min(BLOCK_MS, self.left_ms))


# -- Who listens for the ends of jobs. A thread or greenlet blocks on a stream of its own. The tasks of an
# event loop share one stream, which one task reads, and so one connection, however many of them wait.


class Blocking(Protocol):
    """The calls of a queue that block on the server; of an asyncio queue they are awaited."""

    model: Model

    def run(self, operation: Operation) -> Any:
        """Run an operation that blocks for at most `BLOCK_MS`, and return its reply."""
        ...

    def close(self) -> Any:
        """Close the idle connections."""
        ...


class EndListener:
    """One thread that waits for the end of a job. `waiter`: what a look registers it under."""

    def __init__(self, blocking: Blocking) -> None:
        self.waiter = secrets.token_hex(8)
        self._after = FIRST_ENTRY
        self._blocking = blocking

    def rest(self, most_ms: int) -> None:
        """Wait until the job may have ended; at most so long. Raises ServerUnavailable, OutcomeUnknown."""
        ended: EndedJobs = self._blocking.run(AwaitEnds(self.waiter, self._after, most_ms))
        self._after = ended.after


class EndListeners:
    """What all threads that wait for ends of jobs of one queue share: connections."""

    #: Raises Malformed in an async handler, which is to await another call instead.
    check_may_wait = staticmethod(refuse_wait)

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking

    @contextlib.contextmanager
    def listening_for(self, job: str) -> Generator[EndListener]:
        """A listener for the end of this job, from before the first look on, so that nothing is told in
        between."""
        yield EndListener(self._blocking)

    def close(self) -> None:
        """Close the idle connections."""
        self._blocking.close()


class AsyncEndListener:
    """One task that waits for the end of a job. `waiter`: what a look registers it under. `model_ms`: at most
    so long it may rest, because its model may tell nothing of an end."""

    def __init__(self, waiter: str, model_ms: int) -> None:
        self.waiter = waiter
        self._model_ms = model_ms
        self._told = asyncio.Event()

    def tell(self) -> None:
        """Wake the task: its job may have ended."""
        self._told.set()

    async def rest(self, most_ms: int) -> None:
        """Wait until the job may have ended, for at most this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(most_ms, self._model_ms) / 1000):
                await self._told.wait()
        self._told.clear()


class AsyncEndListeners:
    """All tasks that wait for ends of jobs of one queue; those of each event loop apart."""

    def __init__(self, blocking: Blocking) -> None:
        from engine.redis.async_driver import OfEachLoop

        self._of_loops = OfEachLoop(lambda: _Listening(blocking))

    @staticmethod
    def check_may_wait(call: str, of: object, instead: str) -> None:
        """A coroutine may wait anywhere."""

    def listening_for(self, job: str) -> contextlib.AbstractContextManager[AsyncEndListener]:
        """A listener for the end of this job, from before the first look on, so that no end is missed in
        between."""
        return self._of_loops.here().listening_for(job)

    async def close(self) -> None:
        """End the listening of the running loop."""
        await self._of_loops.here().close()


class _Listening:
    """The tasks of one event loop that wait. Its own task ends within `BLOCK_MS` of the last wait."""

    def __init__(self, blocking: Blocking) -> None:
        self._model_ms = blocking.model.result_poll_ms
        self._by_job: dict[str, set[AsyncEndListener]] = {}
        self._task: asyncio.Task[None] | None = None
        self._blocking = blocking
        self._token = ""

    @contextlib.contextmanager
    def listening_for(self, job: str) -> Generator[AsyncEndListener]:
        if self._task is None or self._task.done():
            # State of an earlier task is dropped; a new stream begins at its first entry.
            self._by_job, self._token = {}, secrets.token_hex(8)
            self._task = asyncio.get_running_loop().create_task(self._listen(self._token, self._by_job))
        by_job, listener = self._by_job, AsyncEndListener(self._token, self._model_ms)
        by_job.setdefault(job, set()).add(listener)
        try:
            yield listener
        finally:
            by_job[job].discard(listener)
            if not by_job[job]:
                del by_job[job]

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._blocking.close()

    async def _listen(self, waiter: str, by_job: dict[str, set[AsyncEndListener]]) -> None:
        after = FIRST_ENTRY
        while True:
            try:
                ended: EndedJobs = await self._blocking.run(AwaitEnds(waiter, after, BLOCK_MS))
                after, told = ended.after, ended.jobs
            except EngineError:
                # The server fails: the tasks that wait poll, and get the error themselves.
                told = tuple(by_job)
            for job in told:
                for listener in by_job.get(job, ()):
                    listener.tell()
            if not by_job:
                return
