"""The options of a job: their types, bounds and meaning in one table, checked in one place and before any
I/O.

An option is a row of `JobOptions` (what callers may write) and a field of `engine.ops.jobs.Options` (what the
engine reads, with its default). The checks, the place in the envelope and the reference page follow from the
two. `tests/engine/test_options.py` walks the table and tries every bound from both sides.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Annotated, Any, Protocol, TypedDict, TypeVar, cast, get_args, get_type_hints

from engine import validate
from engine.errors import Malformed, nearest
from engine.ops.jobs import Backoff, Options, ParentFailure
from engine.routing import Target, route_text, target_text
from engine.validate import (
    ATTEMPTS_MAX,
    BACKOFF_MS_MAX,
    CRASHES_LEAST,
    CRASHES_MAX,
    DURATION_MS_MAX,
    INSTANT_MS_MAX,
    Milliseconds,
)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in [least, most]."""

    least: int
    most: int

    def check(self, name: str, value: object) -> int:
        """The value. Raises Malformed."""
        return validate.integer(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Duration(Whole):
    """A length of time in [least, most] ms, also as a timedelta."""

    def check(self, name: str, value: object) -> int:
        """The value in ms. Raises Malformed."""
        return validate.duration_ms(name, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or False."""

    def check(self, name: str, value: object) -> bool:
        """The value. Raises Malformed."""
        return validate.truth(name, value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the words of a Literal."""

    words: tuple[str, ...]

    def check(self, name: str, value: object) -> str:
        """The value. Raises Malformed."""
        if not isinstance(value, str) or value not in self.words:
            raise Malformed(name, value, " or ".join(self.words))
        return value


@dataclass(frozen=True, slots=True)
class Checked:
    """Anything else: `function` turns a value into what the engine reads, or raises Malformed. For an option
    of jobs None stands for the default."""

    function: Callable[[str, object], Any]

    def check(self, name: str, value: object) -> Any:
        """The value as the engine reads it. Raises Malformed."""
        return self.function(name, value)


@dataclass(frozen=True, slots=True)
class Default:
    """What holds for an option or a setting that is not given."""

    value: Any


@dataclass(frozen=True, slots=True)
class Private:
    """Marks an option that may hold private text: only who may see payloads is shown it."""


#: What checks an option or a setting.
Check = Whole | Flag | Choice | Checked


#: A class of exceptions, or the name of one.
ErrorName = str | type[BaseException]


class Identified(Protocol):
    """A job that has an id, such as a NewJob."""

    @property
    def id(self) -> str | None:
        """The id."""
        ...


class Described(Protocol):
    """A job to be made, such as a NewJob."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def payload(self) -> object:
        """Its payload."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Its options."""
        ...


class JobOptions(TypedDict, total=False):
    """What may be said about a job when it is enqueued: each option with its default and its bound,
    `Whole(least, most)` or what checks it. Without a default it is nothing: 0, False, None."""

    delay_ms: Annotated[Milliseconds, Duration(0, DURATION_MS_MAX)]
    """Not claimable before this has passed, by the server's clock."""
    run_at_ms: Annotated[int | datetime | None, Checked(validate.instant_ms)]
    """Not claimable before this time, by the server's clock: ms since 1970, or a datetime with a zone. A past
    one means now."""
    timestamp_ms: Annotated[int, Whole(0, INSTANT_MS_MAX)]
    """When the producer made the job, ms since 1970; only handlers read it. 0: when it was enqueued."""
    priority: Annotated[int, Whole(1, 10), Default(5)]
    """1 to 10. Higher ones are claimed first, strictly; equal ones in the order of arrival."""
    lifo: Annotated[bool, Flag()]
    """Claim it before jobs of the same priority instead of after them."""
    attempts: Annotated[int, Whole(1, ATTEMPTS_MAX), Default(3)]
    """How many runs may fail, the first one included, before the job is dead."""
    backoff_ms: Annotated[Milliseconds, Duration(0, BACKOFF_MS_MAX), Default(1000)]
    """The wait after a failed run; `backoff` says how it grows."""
    backoff: Annotated[Backoff, Choice(get_args(Backoff)), Default("fixed")]
    """How the wait grows with the failed runs n: `fixed`; `exponential`, times 2^(n-1); `linear`, times n;
    `geometric`, times n squared; `custom`, as listed in `backoff_delays_ms`."""
    backoff_max_ms: Annotated[Milliseconds, Duration(0, DURATION_MS_MAX)]
    """The longest wait. 0: for waits that grow one hour, or `backoff_ms` where that is longer."""
    backoff_delays_ms: Annotated[Sequence[Milliseconds] | None, Checked(validate.delays)]
    """For `custom`: the wait after the first failed run, after the second, and so on. The last one holds for
    all further runs."""
    jitter: Annotated[float | None, Checked(validate.share)]
    """The random share of each wait, 0 to 1, so that not all jobs come back at once. None: 0.5 for
    `exponential`, else 0."""
    crashes_max: Annotated[int, Whole(CRASHES_LEAST, CRASHES_MAX), Default(3)]
    """How many crashes the job may have before it is dead."""
    timeout_ms: Annotated[Milliseconds, Duration(0, BACKOFF_MS_MAX)]
    """A run that takes longer has failed; 0: no limit. A function in a thread cannot be stopped, but its
    result is refused."""
    soft_timeout_ms: Annotated[Milliseconds, Duration(0, BACKOFF_MS_MAX)]
    """At most `timeout_ms`: `SoftTimeout` is raised in a coroutine or child process that takes longer, and
    `job.cancelled` set in a thread, so that the handler can clean up and end by itself; 0: never."""
    headers: Annotated[Mapping[str, str] | None, Checked(validate.headers), Private()]
    """Pairs of texts that travel with the job untouched: traces, tenants."""
    serializer: Annotated[str | None, Checked(validate.text)]
    """What turns the payload into bytes: `json`, `raw` (bytes as they are), or a name that the queue was
    given."""
    key: Annotated[str | None, Checked(validate.limit_key)]
    """A tenant or limit key: jobs of one name take turns by key, and limits may be set for a key (rules 18
    and 20)."""
    unique: Annotated[str | None, Checked(validate.text)]
    """While the first job with this text has not ended, an enqueue of a second one is a duplicate (rule
    23)."""
    dedup: Annotated[str | None, Checked(validate.text)]
    """Within `dedup_ms` of the first job with this text, an enqueue of a second one is a duplicate (rule
    23)."""
    dedup_ms: Annotated[Milliseconds, Duration(0, DURATION_MS_MAX)]
    """The length of the window of `dedup`."""
    needs: Annotated[Sequence[str | Identified] | None, Checked(validate.parents)]
    """At most 1,000 jobs of this queue that have to finish before this one can be claimed (rule 25): their
    ids, or what `task.new(...)` has made."""
    on_parent_failure: Annotated[ParentFailure, Choice(get_args(ParentFailure)), Default("bury")]
    """When one of `needs` is buried, discarded, skipped or rerouted: `bury` this job as well, or `ignore`
    it."""
    on_success: Annotated[Described | None, Checked(validate.callback)]
    """A job that the success of this one makes, in the very call that finishes it: a NewJob, such as
    `task.new(...)` makes. Its handler reads `job.parents` and `job.results`. It is a job of this queue with
    an id of its own, and has no callbacks itself (rule 25)."""
    on_failure: Annotated[Described | None, Checked(validate.callback)]
    """The same when this job is dead, has expired, was discarded by its handler, skipped, rerouted, or buried
    with one that it needs. `job.failure` says why. Who cancels or discards a job by hand calls nobody."""
    skip_on: Annotated[Sequence[ErrorName] | type[BaseException] | None, Checked(validate.error_names)]
    """Exceptions that end the job without another run, as `skipped` and not dead: a class or one of its
    bases, or the name of one, with or without the module. The error is its result, and the job has failed for
    who needs it. `bury_on` and `retry_on` of handlers let it die instead (Handlers)."""
    reroute_on: Annotated[
        Mapping[str, str] | Mapping[type[BaseException], str] | Mapping[ErrorName, str] | None,
        Checked(validate.reroutes),
    ]
    """Exceptions, as for `skip_on`, that send the job on instead: to another name, `"gpu"`, or to a name of
    another queue, `"big:gpu"`."""
    route: Annotated[str | None, Checked(route_text)]
    """A routing key: only workers that have it among their `routes` run the job. None: `default`."""
    target: Annotated[Target | Mapping[str, Any] | None, Checked(target_text)]
    """Which workers may run the job, by their server, stack, capabilities and region (rule 18)."""
    result_ttl_ms: Annotated[Milliseconds, Duration(0, DURATION_MS_MAX), Default(3_600_000)]
    """How long the handler's return value is kept; 0: not at all."""
    error_ttl_ms: Annotated[Milliseconds, Duration(0, DURATION_MS_MAX), Default(86_400_000)]
    """How long the error of a dead job is kept as its result; 0: not at all."""
    expires_ms: Annotated[Milliseconds, Duration(0, DURATION_MS_MAX)]
    """A job that no worker has started this long after its enqueue ends as `expired` instead; 0: never. A
    delay counts in, so it must be longer than that. A job that has been started does not expire, nor do its
    retries (rule 38)."""
    cost: Annotated[int, Whole(1, 1000), Default(1)]
    """How much of a rate limit's window the job uses up, 1 to 1,000. One that costs more than the whole rate
    uses all of it (rule 20)."""


#: The options of a job that has none of its own.
PLAIN = Options()
#: What other libraries call them.
_ELSEWHERE = {
    **dict.fromkeys(("retries", "max_retries", "retry", "max_attempts", "max_tries"), "attempts"),
    **{"countdown": "delay_ms", "eta": "run_at_ms", "time_limit": "timeout_ms", "job_timeout": "timeout_ms"},
    **{"expires": "expires_ms", "meta": "headers", "depends_on": "needs", "retry_backoff": "backoff"},
}
#: No checks of a model's own.
NO_CHECKS: Mapping[str, Callable[[str, object], Any]] = MappingProxyType({})
#: The type of each option, and what its row notes.
_ROWS = {name: get_args(hint) for name, hint in get_type_hints(JobOptions, include_extras=True).items()}
#: What checks each option.
OPTIONS: Mapping[str, Check] = {name: notes[1] for name, notes in _ROWS.items()}
#: The defaults that are something.
DEFAULTS = {name: note.value for name, notes in _ROWS.items() for note in notes if isinstance(note, Default)}
#: Those that only who may see payloads is shown.
PRIVATE = frozenset(name for name, notes in _ROWS.items() if Private() in notes)


def without_private(options: Options) -> Options:
    """The options that everybody may see; in place of the others their defaults."""
    return replace(options, **{name: getattr(PLAIN, name) for name in PRIVATE})


def checked(
    given: Mapping[str, object],
    defaults: Options = PLAIN,
    own: Mapping[str, Callable[[str, object], Any]] = NO_CHECKS,
) -> Options:
    """A job's options; `defaults`: those of a job that is given none. `own`: what checks some of them
    instead, where the queue's model has names of another kind. Raises Malformed for one that does not exist,
    is out of bounds, or does not go with another."""
    if not given:
        return defaults
    values: dict[str, Any] = {}
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            perhaps = nearest(_ELSEWHERE.get(name, name), OPTIONS)
            bound = f"an option of jobs{perhaps}; engine.JobOptions lists them"
            # Perhaps an argument of the function, and not an option at all.
            raise Malformed(name, value, bound, private=True)
        option = Checked(own[name]) if name in own else option
        if value is None and isinstance(option, Checked):
            values[name] = getattr(PLAIN, name)
        else:
            values[name] = _asked(option, name, value)
    options = Options(**values) if defaults is PLAIN else replace(defaults, **values)
    _check_together(options)
    return options


def _asked(check: Check, name: str, value: object) -> Any:
    """The value as the engine reads it. Raises Malformed, also where a property, an iterator or a zone of the
    caller raises."""
    return validate.asked(name, value, "a value that can be read", check.check, name, value)


def _check_together(options: Options) -> None:
    """Options that need, or exclude, each other."""
    if options.delay_ms and options.run_at_ms:
        raise Malformed("run_at_ms", options.run_at_ms, "given without delay_ms: one of the two says when")
    if options.expires_ms and options.run_at_ms:
        raise Malformed(
            "expires_ms",
            options.expires_ms,
            "given without run_at_ms: it counts from the enqueue, as delay_ms does",
        )
    if options.expires_ms and options.expires_ms <= options.delay_ms:
        raise Malformed(
            "expires_ms",
            options.expires_ms,
            f"longer than delay_ms ({options.delay_ms}), before which no job starts",
        )
    if options.timeout_ms and options.soft_timeout_ms > options.timeout_ms:
        bound = f"at most timeout_ms ({options.timeout_ms}), at which the run has failed"
        raise Malformed("soft_timeout_ms", options.soft_timeout_ms, bound)
    if bool(options.dedup) != (options.dedup_ms > 0):
        raise Malformed("dedup_ms", options.dedup_ms, "at least 1 together with dedup, and 0 without")
    if bool(options.backoff_delays_ms) != (options.backoff == "custom"):
        bound = 'given together with backoff="custom", and not otherwise'
        raise Malformed("backoff_delays_ms", list(options.backoff_delays_ms), bound)


# -- Tables of settings, such as `WorkerSettings`: a TypedDict whose rows say type, check and default.

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of a table: its name, its type, its check (None: who reads it checks it) and its default."""

    name: str
    kind: Any
    check: Check | None
    default: Any


@cache
def settings_of(table: type) -> Mapping[str, Setting]:
    """The rows of a table by their names, in their order."""
    found: dict[str, Setting] = {}
    for name, hint in get_type_hints(table, include_extras=True).items():
        kind, *notes = get_args(hint)
        (default,) = (note.value for note in notes if isinstance(note, Default))
        check = next((note for note in notes if not isinstance(note, Default)), None)
        found[name] = Setting(name, kind, check, default)
    return found


def checked_settings(table: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a table as the engine reads them: those that were given, and the defaults of the rest.
    Raises Malformed."""
    rows = settings_of(table)
    for name, value in given.items():
        if name not in rows:
            raise Malformed(
                name, value, f"a setting{nearest(name, rows)}; engine.{table.__name__} lists them"
            )
    values = {name: given.get(name, row.default) for name, row in rows.items()}
    return {
        name: value if (check := rows[name].check) is None else _asked(check, name, value)
        for name, value in values.items()
    }


def read_often(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that several workers read: a tuple in place of what can be read once."""
    return {
        name: tuple(cast("Iterator[Any]", value)) if isinstance(value, Iterator) else value
        for name, value in given.items()
    }


def shows(table: type) -> Callable[[Function], Function]:
    """Lists the settings of a table in the signature that `help` shows of a function, in place of its last
    parameter `**settings`."""

    def decorate(function: Function) -> Function:
        declared = signature(function)
        *own, _ = declared.parameters.values()
        rows = [
            Parameter(
                row.name,
                Parameter.KEYWORD_ONLY,
                default=row.default,
                # What else checks a setting is a function, whose name says nothing to users.
                annotation=Annotated[row.kind, row.check] if isinstance(row.check, Whole) else row.kind,
            )
            for row in settings_of(table).values()
        ]
        cast("Any", function).__signature__ = declared.replace(parameters=[*own, *rows])
        return function

    return decorate


def sentences(table: type) -> dict[str, str]:
    """The first sentence about each row of a table, for the help of its flag."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    about: dict[str, str] = {}
    name = ""
    for line in declared.body if isinstance(declared, ast.ClassDef) else ():
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name = line.target.id
        elif name and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
            text = " ".join(str(line.value.value).split()).split(". ")[0]
            about[name] = text.rstrip(".").replace("`", "")
    return about
