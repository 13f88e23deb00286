"""Handlers of every kind that run code of a service, and what such code may raise; at module level for child processes. What a
job does stands in its headers: `place` says where something is raised, `what` which of `FAILURES`."""

import asyncio
import decimal
import locale
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from engine import BatchFailed, Handlers, Job, RetryLater


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class Masked(BaseException):
    """Raises when it is asked what it is."""

    @property
    def __class__(self) -> Any:
        raise GeneratorExit

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Hollow(RetryLater):
    """Has none of the fields of its base."""

    def __init__(self) -> None:
        Exception.__init__(self)


class Hoarse(BatchFailed):
    def __init__(self) -> None:
        Exception.__init__(self)


def _later(delay_ms: Any) -> RetryLater:
    made = RetryLater(1)
    made.delay_ms = delay_ms
    return made


FAILURES: dict[str, Callable[[], BaseException]] = {
    "value": ValueError, "cancelled": asyncio.CancelledError, "exit": SystemExit, "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit, "stop": StopIteration,
    "group": lambda: BaseExceptionGroup("several", [SystemExit(1), ValueError()]), "unprintable": Unprintable, "masked": Masked,
    "hollow": Hollow, "hoarse": Hoarse, "never": lambda: _later(float("inf")), "bare": BaseException,
}  # fmt: skip

#: What a back-off may answer that is no wait.
NONSENSE: dict[str, Any] = {
    **{"inf": float("inf"), "nan": float("nan"), "text": "soon", "huge": 10**400, "negative": -1},
    **{"bool": True, "list": [], "object": object()},
}


class Reading(Mapping[str, Any]):
    """A result of a class of the service, which raises when it is read."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getitem__(self, name: str) -> Any:
        raise FAILURES[self._what]()

    def __iter__(self) -> Iterator[str]:
        raise FAILURES[self._what]()

    def __len__(self) -> int:
        return 1


def misbehave(job: Job, *places: str) -> None:
    """Raise what the job's headers name, if they name one of these places."""
    if job.headers.get("place") in places:
        raise FAILURES[job.headers["what"]]()


def work(job: Job) -> Any:
    misbehave(job, "handler")
    place, what = job.headers.get("place"), job.headers.get("what", "")
    if place in ("backoff", "nonsense", "filter"):
        # The back-off and the filter of the log see nothing else of it.
        raise ValueError(f"{place}:{what}:")
    return Reading(what) if place == "result" else None


handlers = Handlers()
NAMES = ("thread", "inline", "coroutine", "batch", "batch-coroutine", "process")


handlers("thread")(work)
handlers("inline", inline=True)(work)


@handlers("coroutine")
async def coroutine(job: Job) -> Any:
    return work(job)


@handlers("batch", batch=5)
def batch(jobs: list[Job]) -> Any:
    returned = [work(job) for job in jobs]
    return returned[0] or returned


@handlers("batch-coroutine", batch=5)
async def batch_coroutine(jobs: list[Job]) -> Any:
    return batch(jobs)


# -- the same with hooks and a back-off that raise


def backoff(failures: int, error: str) -> Any:
    place, _, what = error.partition(": ")[2].partition(":")
    if place == "backoff":
        raise FAILURES[what.rstrip(":")]()
    return NONSENSE[what.rstrip(":")] if place == "nonsense" else None


hooked = Handlers(backoff=backoff)
hooked.include(handlers)
hooked.hooks.before(lambda job: misbehave(job, "before"))
hooked.hooks.after(lambda job, error: misbehave(job, "after"))


@hooked.hooks.around
def around_raising(job: Job) -> Iterator[None]:
    misbehave(job, "enter")
    yield
    misbehave(job, "leave")


# -- state of a run

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
session: ContextVar[str] = ContextVar("session", default="none")

states = Handlers()


@states.hooks.around
@contextmanager
def around(job: Job) -> Iterator[None]:
    """Open a session, and leave it open."""
    assert session.get() == "none"
    session.set(job.id)
    yield
    # The handler has set it; of a batch it has set those of all jobs.
    assert tenant.get() in (job.id, "service")


def _seen(job: Job) -> list[Any]:
    """What a run sees, and then changes."""
    seen = [tenant.get(), session.get(), decimal.getcontext().prec]
    tenant.set(job.id)
    decimal.getcontext().prec = 3
    return seen


states("thread")(_seen)
states("inline", inline=True)(_seen)


@states("coroutine")
async def state_of_a_coroutine(job: Job) -> Any:
    return _seen(job)


@states("batch", batch=5)
def state_of_a_batch(jobs: list[Job]) -> Any:
    return [_seen(job) for job in jobs]


@states("batch-coroutine", batch=5)
async def state_of_a_batch_coroutine(jobs: list[Job]) -> Any:
    return [_seen(job) for job in jobs]


def _alarmed(*_: Any) -> None:
    raise TimeoutError


processes = Handlers()


@processes("spoil")
def spoil(job: Job) -> list[Any]:
    """What a run sees of its process, and then changes."""
    mask, umask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGALRM)), os.umask(0)
    seen = [
        *(os.getcwd(), umask, sorted(mask), str(signal.getsignal(signal.SIGALRM)), signal.getitimer(signal.ITIMER_REAL)),
        *(locale.setlocale(locale.LC_ALL), len(warnings.filters), _seen(job)),
    ]
    os.chdir("/")
    signal.signal(signal.SIGALRM, _alarmed)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # One that is pending when the run ends, and one that is to come in the next run.
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    warnings.simplefilter("error")
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if "UTF" not in seen[5] else "C")
    if job.id == "third":
        raise ValueError("also where it fails")
    return seen


class Unreadable:
    """A serialiser that no other process can load."""

    name = "unreadable"

    def dumps(self, value: object) -> bytes:
        return str(value).encode()

    def loads(self, data: bytes) -> Any:
        return data.decode()

    def __getstate__(self) -> dict[str, Any]:
        return {"a": 1}

    def __setstate__(self, state: Any) -> None:
        raise SystemExit("not here")
