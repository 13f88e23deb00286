"""Exceptions with which a handler decides how its run ends, and how a worker treats any other exception. Pure
code.

Any other exception is a failed run: the job waits for its back-off and runs again, or is dead when its
attempts are used up.
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import Literal, NamedTuple

from engine import validate
from engine.ops.jobs import Options
from engine.validate import Milliseconds

#: More bases than a class of exceptions has.
_KINDS_MAX = 64


class RetryLater(Exception):
    """Raised by a handler: run this job again after `delay_ms`, whatever its back-off says. With
    `charge=False` the run counts as no failure, so it uses up no attempt: for what is not ready yet. Raises
    Malformed for a delay out of bounds."""

    def __init__(self, delay_ms: Milliseconds, reason: str = "", *, charge: bool = True) -> None:
        self.delay_ms = validate.duration_ms("delay_ms", delay_ms, 0, validate.DURATION_MS_MAX)
        self.charge = bool(charge)
        super().__init__(reason or f"again in {self.delay_ms} ms")


class Bury(Exception):
    """Raised by a handler: this job is dead at once, with this reason, however many attempts are left."""


class Discard(Exception):
    """Raised by a handler: this job ends here, neither finished nor dead."""


class SoftTimeout(CancelledError):
    """Raised in a handler when its `soft_timeout_ms` is over: it may clean up, and return or raise. One that
    lets it through has failed. It is a CancelledError, so that `except Exception` does not swallow it, and
    task groups end their tasks."""


class Verdict(NamedTuple):
    """What a failed run asks for. `kinds` are the names of what was raised and of its bases, each alone and
    with its module; `delay_ms` None is the job's own back-off. `asked`: the handler has said so, and nothing
    went wrong."""

    end: Literal["retry", "bury", "discard"] = "retry"
    kinds: tuple[str, ...] = ()
    delay_ms: int | None = None
    charge: bool = True
    asked: bool = False


#: A run that failed without saying more.
FAILED = Verdict()


class Ending(NamedTuple):
    """How the lease of a failed run ends. `target` of a reroute: a name, or a queue, a colon and a name."""

    kind: Literal["retry", "bury", "discarded", "skipped", "rerouted"]
    target: str = ""


def verdict_of(failure: BaseException) -> Verdict:
    """The verdict about an exception of a handler."""
    kinds: list[str] = []
    for kind in type(failure).__mro__[:_KINDS_MAX]:
        if issubclass(kind, BaseException):
            kinds += (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
    match failure:
        case RetryLater():
            delay_ms, charge = getattr(failure, "delay_ms", None), getattr(failure, "charge", True)
            if not isinstance(delay_ms, int) or not 0 <= delay_ms <= validate.DURATION_MS_MAX:
                # Of a class that does not call our __init__, or changed since: it says no wait, so it is a
                # failed run.
                return Verdict("retry", tuple(kinds))
            return Verdict("retry", tuple(kinds), delay_ms, charge is not False, asked=True)
        case Bury():
            return Verdict("bury", tuple(kinds), asked=True)
        case Discard():
            return Verdict("discard", tuple(kinds), asked=True)
        case _:
            return Verdict("retry", tuple(kinds))


#: Of a run that was not done in time.
TIMED_OUT = verdict_of(TimeoutError())


def ending(options: Options, verdict: Verdict) -> Ending:
    """How the job goes on: the handler's own decision comes first, then the rules of the job, then another
    run."""
    if verdict.end == "bury":
        return Ending("bury")
    if verdict.end == "discard":
        return Ending("discarded")
    if any(name in verdict.kinds for name in options.skip_on):
        return Ending("skipped")
    for name, target in options.reroute_on:
        if name in verdict.kinds:
            return Ending("rerouted", target)
    return Ending("retry")
