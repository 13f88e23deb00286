"""Exceptions with which a handler decides how its run ends, and how a worker treats any other exception. Pure
code.

Any other exception is a failed run: the job waits for its back-off and runs again, or is dead when its
attempts are used up.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

from engine import validate
from engine.errors import Malformed, logger, spared
from engine.ops.jobs import Options
from engine.validate import Milliseconds

log = logger("ironclaim.worker")

#: What an exception is looked at by: a class of it, or a function of it that says whether it is meant.
ErrorMatch = type[BaseException] | Callable[[Any], object]
ErrorMatches = ErrorMatch | Sequence[ErrorMatch]
_MATCHES = "classes of exceptions, or functions of an exception that say whether it is meant"
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


class RunRequest(NamedTuple):
    """What a failed run asks for. `kinds` are the names of what was raised and of its bases, each alone and
    with its module; `delay_ms` None is the job's own back-off. `asked`: the handler has said so, and nothing
    went wrong."""

    end: Literal["retry", "bury", "discard"] = "retry"
    kinds: tuple[str, ...] = ()
    delay_ms: int | None = None
    charge: bool = True
    asked: bool = False


#: A run that failed and asks for nothing.
FAILED = RunRequest()


class Ending(NamedTuple):
    """How the lease of a failed run ends. `target` of a reroute: a name, or a queue, a colon and a name."""

    kind: Literal["retry", "bury", "discarded", "skipped", "rerouted"]
    target: str = ""


class ErrorRules(NamedTuple):
    """What a handler, or a registry of them, says of exceptions: which bury the job at once, and which alone
    are retried (None: all)."""

    retry_on: tuple[ErrorMatch, ...] | None = None
    bury_on: tuple[ErrorMatch, ...] = ()

    @classmethod
    def of(cls, retry_on: object, bury_on: object) -> ErrorRules:
        """The rules, checked: None, one match or several. Raises Malformed."""
        return cls(
            None if retry_on is None else _matches("retry_on", retry_on),
            () if bury_on is None else _matches("bury_on", bury_on),
        )

    def buries(self, failure: BaseException) -> bool | None:
        """Whether the job dies of it; None where these rules say nothing. What is no Exception (SystemExit,
        CancelledError) has ended the run from outside, so `retry_on` need not name it."""
        if _meant(self.bury_on, failure):
            return True
        if self.retry_on is None:
            return None
        return False if _meant(self.retry_on, failure) else True if isinstance(failure, Exception) else None


def _meant(matches: Sequence[ErrorMatch], failure: BaseException) -> bool:
    return any(isinstance(failure, one) if isinstance(one, type) else one(failure) for one in matches)


def _matches(field: str, value: object) -> tuple[ErrorMatch, ...]:
    found: Sequence[Any] = cast("Any", value) if isinstance(value, list | tuple) else [value]
    for one in found:
        is_class = isinstance(one, type) and issubclass(one, BaseException)
        if not is_class and (isinstance(one, type) or not callable(one) or inspect.iscoroutinefunction(one)):
            # Any other text may be a password.
            if (
                isinstance(one, str)
                and validate.ERROR_NAME.fullmatch(one)
                and one.endswith(("Error", "Exception"))
            ):
                raise Malformed(field, one, f"{_MATCHES}: write {one}, without quotes")
            # A text or a container may hold anything, also a password.
            private = not (one is None or callable(one) or isinstance(one, int | float))
            raise Malformed(field, one, _MATCHES, private=private)
    return tuple(found)


def request_of(failure: BaseException, rules: Sequence[ErrorRules] = ()) -> RunRequest:
    """What a run that raised this asks for. Of its rules, the nearest first, the first that says something
    decides."""
    kinds: list[str] = []
    for kind in type(failure).__mro__[:_KINDS_MAX]:
        if issubclass(kind, BaseException):
            kinds += (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
    match failure:
        case RetryLater():
            delay_ms, charge = getattr(failure, "delay_ms", None), getattr(failure, "charge", True)
            # One of a class that does not call our __init__, or changed since, says no wait: a failed run.
            if isinstance(delay_ms, int) and 0 <= delay_ms <= validate.DURATION_MS_MAX:
                return RunRequest("retry", tuple(kinds), delay_ms, charge is not False, asked=True)
        case Bury():
            return RunRequest("bury", tuple(kinds), asked=True)
        case Discard():
            return RunRequest("discard", tuple(kinds), asked=True)
        case _:
            pass
    said = ("a function in retry_on or bury_on has raised, so these rules say nothing of a %s", kinds[0])
    asked = (spared(one.buries, failure, otherwise=None, log=log, said=said) for one in rules)
    # What does not fit the function's parameters never will, unless the rules expect it to.
    unfit = isinstance(failure, Malformed) and failure.unfit
    buries = next((says for says in asked if says is not None), unfit)
    return RunRequest("bury" if buries else "retry", tuple(kinds))


def ending(options: Options, request: RunRequest) -> Ending:
    """How the job goes on: what the handler has raised to say so comes first, then the rules of the job, then
    those of its handler, then another run."""
    if request.asked:
        return Ending("discarded" if request.end == "discard" else request.end)
    if any(name in request.kinds for name in options.skip_on):
        return Ending("skipped")
    for name, target in options.reroute_on:
        if name in request.kinds:
            return Ending("rerouted", target)
    return Ending("bury" if request.end == "bury" else "retry")


# -- How long a failed job waits for its next run.

#: A growing wait stops here, unless the job itself asks for a longer one from the start or has a bound of its
#: own.
DELAY_MS_MAX = 3_600_000


def backoff_delay_ms(options: Options, failures: int, draw: Callable[[], float]) -> int:
    """The wait after a failed run. `failures`: failed runs before it; `draw` gives numbers in [0, 1)."""
    wait_ms = _grown_ms(options, failures)
    if options.backoff_max_ms:
        wait_ms = min(wait_ms, options.backoff_max_ms)
    elif options.backoff not in ("fixed", "custom"):
        wait_ms = min(wait_ms, max(options.backoff_ms, DELAY_MS_MAX))
    jitter = options.jitter_share
    return int(wait_ms * (1 - jitter + jitter * draw())) if jitter else wait_ms


def _grown_ms(options: Options, failures: int) -> int:
    """The wait before the upper bound and the jitter are applied."""
    match options.backoff:
        case "fixed":
            return options.backoff_ms
        case "exponential":
            # Beyond 2^62 every wait above 0 has met its bound, and a shift by an unbounded counter would
            # build a huge number.
            return options.backoff_ms << min(failures, 62)
        case "linear":
            return options.backoff_ms * (failures + 1)
        case "geometric":
            return options.backoff_ms * (failures + 1) ** 2
        case "custom":
            return options.backoff_delays_ms[min(failures, len(options.backoff_delays_ms) - 1)]
