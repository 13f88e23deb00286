"""The options of a job: their names, defaults and bounds in one table, checked in one place and before any I/O.

An option is a row of `OPTIONS`, a field of `JobOptions` (what callers may write) and a field of `engine.operations.Options` (what
the engine reads). `tests/engine/test_options.py` walks the table and tries every bound from both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from engine import validate
from engine.errors import Malformed
from engine.operations import Backoff, Options


class JobOptions(TypedDict, total=False):
    """What may be said about a job when it is enqueued; `engine/options.py` has the bounds."""

    #: Not claimable before this has passed, by the server's clock.
    delay_ms: int
    #: 1 to 10, 10 first: strict, and in the order of arrival among equals.
    priority: int
    #: Before its equals instead of behind them.
    lifo: bool
    #: Runs, the first one included, before the job is dead.
    attempts: int
    #: The wait after a run that failed; how it grows says `backoff`.
    backoff_ms: int
    #: `fixed`, or `exponential`: doubled with each further failure, up to an hour, and by chance between half of that and all.
    backoff: Backoff
    #: Workers lost in its handler before the job is dead.
    crashes_max: int
    #: Travels with the job.
    timeout_ms: int
    #: Travel untouched: traces, tenants, whatever a handler wants to know.
    headers: Mapping[str, str] | None
    #: A tenant or limit key: jobs of one name take turns by it, and limits may be set for it (rules 18 and 20).
    key: str | None
    #: Keeps a second job with this text out until the first has ended (rule 23).
    unique: str | None
    #: Keeps a second job with this text out until `dedup_ms` have passed since the first (rule 23).
    dedup: str | None
    dedup_ms: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in [least, most]."""

    default: int
    least: int
    most: int

    def check(self, name: str, value: object) -> int:
        return validate.integer(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or False."""

    default: bool = False

    def check(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise Malformed(name, value, "True or False")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    default: str
    words: tuple[str, ...]

    def check(self, name: str, value: object) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise Malformed(name, value, " or ".join(self.words))
        return value


@dataclass(frozen=True, slots=True)
class Checked:
    """Anything else: None is the default, and `function` turns another value into what the engine reads, or raises Malformed.

    `nothing` is what the engine reads for None.
    """

    function: Callable[[str, object], Any]
    nothing: Any = ""
    default: None = None

    def check(self, name: str, value: object) -> Any:
        return self.nothing if value is None else self.function(name, value)


#: Every option of a job, with its default as a caller gives it and its bound.
OPTIONS: Mapping[str, Whole | Flag | Choice | Checked] = {
    "delay_ms": Whole(0, 0, validate.DURATION_MS_MAX),
    "priority": Whole(5, 1, 10),
    "lifo": Flag(),
    "attempts": Whole(3, 1, validate.ATTEMPTS_MAX),
    "backoff_ms": Whole(1000, 0, validate.BACKOFF_MS_MAX),
    "backoff": Choice("fixed", ("fixed", "exponential")),
    "crashes_max": Whole(3, validate.CRASHES_LEAST, validate.CRASHES_MAX),
    "timeout_ms": Whole(0, 0, validate.BACKOFF_MS_MAX),
    "headers": Checked(validate.headers, ()),
    "key": Checked(validate.limit_key),
    "unique": Checked(validate.text),
    "dedup": Checked(validate.text),
    "dedup_ms": Whole(0, 0, validate.DURATION_MS_MAX),
}

#: The options of a job that has none of its own.
PLAIN = Options()


def checked(given: Mapping[str, object]) -> Options:
    """A job's options. Raises Malformed for one that does not exist, is out of bounds, or does not go with another."""
    if not given:
        return PLAIN
    values: dict[str, Any] = {}
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            raise Malformed(name, value, f"one of the options {', '.join(OPTIONS)}")
        values[name] = option.check(name, value)
    options = Options(**values)
    _check_together(options)
    return options


def _check_together(options: Options) -> None:
    """Options that need, or exclude, each other."""
    if bool(options.dedup) != (options.dedup_ms > 0):
        raise Malformed("dedup_ms", options.dedup_ms, "at least 1 together with dedup, and 0 without")
