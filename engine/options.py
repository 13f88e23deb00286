"""The options of a job: their names, defaults and bounds in one table, checked in one place and before any I/O.

An option is a row of `OPTIONS`, a field of `JobOptions` (what callers may write) and a field of `engine.operations.Options` (what
the engine reads). `tests/engine/test_options.py` walks the table and tries every bound from both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypedDict

from engine import validate
from engine.errors import Malformed
from engine.operations import Backoff, Options, ParentFailure
from engine.routing import Target, route_text, target_text


class JobOptions(TypedDict, total=False):
    """What may be said about a job when it is enqueued; `engine/options.py` has the bounds."""

    #: Not claimable before this has passed, by the server's clock.
    delay_ms: int
    #: Not claimable before this time, by the server's clock: ms since 1970, or a datetime with a zone. A past one is now.
    run_at_ms: int | datetime | None
    #: When the producer says that the job was made, ms since 1970; only handlers read it. 0 = when it was enqueued.
    timestamp_ms: int
    #: 1 to 10, 10 first: strict, and in the order of arrival among equals.
    priority: int
    #: Before its equals instead of behind them.
    lifo: bool
    #: Runs, the first one included, before the job is dead.
    attempts: int
    #: The wait after a run that failed; how it grows says `backoff`.
    backoff_ms: int
    #: By the failed runs n: `fixed`; `exponential`, times 2^(n-1); `linear`, times n; `geometric`, times n squared; `custom`, as
    #: `backoff_delays_ms` says.
    backoff: Backoff
    #: No wait is longer. 0: for those that grow an hour, or `backoff_ms` where that is longer.
    backoff_max_ms: int
    #: For `custom`: the wait after the first failed run, the second, and so on; the last one is that of all further ones.
    backoff_delays_ms: Sequence[int] | None
    #: The share of a wait that is left to chance, 0 to 1, so that not all come back at once. None: 0.5 for `exponential`, else 0.
    jitter: float | None
    #: Workers lost in its handler before the job is dead.
    crashes_max: int
    #: A run that takes longer has failed, 0 = never. A function in a thread cannot be stopped: what comes of it is refused.
    timeout_ms: int
    #: Travel untouched: traces, tenants, whatever a handler wants to know.
    headers: Mapping[str, str] | None
    #: What makes bytes of the payload: `json`, `raw` (bytes as they are), or the name of one that the queue was given.
    serializer: str | None
    #: A tenant or limit key: jobs of one name take turns by it, and limits may be set for it (rules 18 and 20).
    key: str | None
    #: Keeps a second job with this text out until the first has ended (rule 23).
    unique: str | None
    #: Keeps a second job with this text out until `dedup_ms` have passed since the first (rule 23).
    dedup: str | None
    dedup_ms: int
    #: Ids of jobs of this queue that have to finish before this one is claimable (rule 25); at most 100.
    needs: Sequence[str] | None
    #: When one of those is buried, discarded or rerouted: `bury` this job too, or `ignore` that.
    on_parent_failure: ParentFailure
    #: Exceptions that end the job without another run, by the name of a class or of a base of it, with its module or without.
    skip_on: Sequence[str] | None
    #: Exceptions that send the job on instead: to another name, `"gpu"`, or to a name of another queue, `"big:gpu"`.
    reroute_on: Mapping[str, str] | None
    #: A routing key: only workers that have it among their `routes` run the job; without one it is `default`.
    route: str | None
    #: Which workers may run the job, by their server, stack, capabilities and region (rule 18).
    target: Target | Mapping[str, Any] | None
    #: How long what its handler returns is kept; 0: not at all.
    result_ttl_ms: int
    #: How long the error of a dead job is kept as its result; 0: not at all.
    error_ttl_ms: int
    #: Places that the job takes in the windows of rate limits, 1 to 1,000; of a rate below that all (rule 20).
    cost: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in [least, most]."""

    default: int
    least: int
    most: int

    def check(self, name: str, value: object) -> int:
        """The value. Raises Malformed."""
        return validate.integer(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or False."""

    default: bool = False

    def check(self, name: str, value: object) -> bool:
        """The value. Raises Malformed."""
        if not isinstance(value, bool):
            raise Malformed(name, value, "True or False")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    default: str
    words: tuple[str, ...]

    def check(self, name: str, value: object) -> str:
        """The value. Raises Malformed."""
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
        """The value as the engine reads it. Raises Malformed."""
        return self.nothing if value is None else self.function(name, value)


#: Every option of a job, with its default as a caller gives it and its bound.
OPTIONS: Mapping[str, Whole | Flag | Choice | Checked] = {
    "delay_ms": Whole(0, 0, validate.DURATION_MS_MAX),
    "run_at_ms": Checked(validate.instant_ms, 0),
    "timestamp_ms": Whole(0, 0, validate.INSTANT_MS_MAX),
    "priority": Whole(5, 1, 10),
    "lifo": Flag(),
    "attempts": Whole(3, 1, validate.ATTEMPTS_MAX),
    "backoff_ms": Whole(1000, 0, validate.BACKOFF_MS_MAX),
    "backoff": Choice("fixed", ("fixed", "exponential", "linear", "geometric", "custom")),
    "backoff_max_ms": Whole(0, 0, validate.DURATION_MS_MAX),
    "backoff_delays_ms": Checked(validate.delays, ()),
    "jitter": Checked(validate.share, None),
    "crashes_max": Whole(3, validate.CRASHES_LEAST, validate.CRASHES_MAX),
    "timeout_ms": Whole(0, 0, validate.BACKOFF_MS_MAX),
    "headers": Checked(validate.headers, ()),
    "serializer": Checked(validate.text),
    "key": Checked(validate.limit_key),
    "unique": Checked(validate.text),
    "dedup": Checked(validate.text),
    "dedup_ms": Whole(0, 0, validate.DURATION_MS_MAX),
    "needs": Checked(validate.parents, ()),
    "on_parent_failure": Choice("bury", ("bury", "ignore")),
    "skip_on": Checked(validate.error_names, ()),
    "reroute_on": Checked(validate.reroutes, ()),
    "route": Checked(route_text),
    "target": Checked(target_text),
    "result_ttl_ms": Whole(3_600_000, 0, validate.DURATION_MS_MAX),
    "error_ttl_ms": Whole(86_400_000, 0, validate.DURATION_MS_MAX),
    "cost": Whole(1, 1, 1000),
}

#: The options of a job that has none of its own.
PLAIN = Options()


def checked(given: Mapping[str, object], defaults: Options = PLAIN) -> Options:
    """A job's options; `defaults`: those of a job that is given none. Raises Malformed for one that does not exist, is out of
    bounds, or does not go with another."""
    if not given:
        return defaults
    values: dict[str, Any] = {}
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            raise Malformed(name, value, f"an option of jobs{nearest(name, OPTIONS)}; engine.JobOptions lists them")
        values[name] = option.check(name, value)
    options = Options(**values) if defaults is PLAIN else replace(defaults, **values)
    _check_together(options)
    return options


def nearest(name: object, known: Iterable[str]) -> str:
    """The name that was meant perhaps, for the end of a message."""
    found = get_close_matches(str(name), known, 1)
    return f", perhaps {found[0]}" if found else ""


def _check_together(options: Options) -> None:
    """Options that need, or exclude, each other."""
    if options.delay_ms and options.run_at_ms:
        raise Malformed("run_at_ms", options.run_at_ms, "given without delay_ms: one of the two says when")
    if bool(options.dedup) != (options.dedup_ms > 0):
        raise Malformed("dedup_ms", options.dedup_ms, "at least 1 together with dedup, and 0 without")
    if bool(options.backoff_delays_ms) != (options.backoff == "custom"):
        bound = 'given together with backoff="custom", and not otherwise'
        raise Malformed("backoff_delays_ms", list(options.backoff_delays_ms), bound)
