"""The bounds of all arguments of callers, checked in one place and before any I/O. Each failure is a
Malformed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from engine.errors import EPOCH, EngineError, Malformed, describe
from engine.ops.admin import Limit, Window
from engine.ops.jobs import Parent, reroute_target

#: The default limit of a payload, and the most that a queue may set.
PAYLOAD_BYTES_MAX = 512 * 1024
PAYLOAD_BYTES_LIMIT = 64 * 1024 * 1024
#: Lists and objects in each other: every supported Python reads these, also from deep within a handler.
NESTING_MAX = 500
#: What a handler may return.
RESULT_BYTES_MAX = 512 * 1024
#: What a handler may say with its progress.
PROGRESS_BYTES_MAX = 16 * 1024
#: 100 years; far below 2^53 even when added to a time since 1970.
DURATION_MS_MAX = 100 * 366 * 86_400_000
#: The year 6429; 48 bits in the envelope.
INSTANT_MS_MAX = 2**47
#: u32 in the envelope.
BACKOFF_MS_MAX = 2**32 - 1
ATTEMPTS_MAX = 1000
#: One byte in the envelope. One crash is free, so the least that can bury is two.
CRASHES_LEAST, CRASHES_MAX = 2, 255
HEADERS_BYTES_MAX = 8 * 1024
ATTRIBUTES_BYTES_MAX = 4 * 1024
CONCURRENCY_MAX = 1000
#: Entries of one page of a listing.
PAGE_MAX = 1000
#: What the sweeps can keep up with.
DONE_MAX, DEAD_MAX = 1_000_000, 10_000_000
#: Of one failed run, as UTF-8. The error history of a job keeps the last ten runs
#: (lua/core/modules/lease.lua).
TRACE_BYTES_MAX = 4096
#: Of one job: jobs that it needs, waits of its own back-off, and names of exceptions.
PARENTS_MAX = 1000
#: Their ids and names as JSON: an envelope has 64 KiB for all options.
PARENTS_BYTES_MAX = 40 * 1024
DELAYS_MAX = 100
ERROR_NAMES_MAX = 50

#: A lane's name in the envelope's one byte: name, slash and key.
KEY_CHARS_MAX = 100
#: 100,000 claims in a window keep as many entries of some 60 bytes.
RATE_MAX = 100_000
#: Class, routing key and all else that names a class fit the one byte of the envelope.
ROUTE_CHARS_MAX = 64

#: Options that a callback cannot have: it needs the job that has ended, and comes once by itself.
NOT_OF_CALLBACKS = frozenset(
    {
        "delay_ms",
        "run_at_ms",
        "unique",
        "dedup",
        "dedup_ms",
        "needs",
        "on_parent_failure",
        "on_success",
        "on_failure",
    }
)

T = TypeVar("T")
_NOTHING_MORE = object()

#: A length of time where a name ends with `_ms`: so many ms, or a timedelta.
Milliseconds = int | timedelta
#: Nanoseconds of each unit that people and programs write a length of time in: those of Go, and days.
UNITS_NS = {
    **{"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 10**6},
    **{"s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9},
}
_GO_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(ns|us|µs|μs|ms|s|m|h)")
#: A length of time as Go writes it.
GO_DURATION = re.compile(rf"([+-]?)((?:{_GO_PART.pattern}){{1,10}}|0)")

#: One encoder for all payloads: `json.dumps` makes one for each call that has options.
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_NESTED = (dict, list, tuple)
#: What the keys of a dict that are no texts become in JSON. To look for it costs a quarter of the encoder, a
#: walk as much as all.
_NUMBER_AS_KEY = re.compile(r'"(?:-?[0-9][0-9.e+-]*|true|false|null)":')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ROUNDS = 8
#: What a queue may be called.
QUEUE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_ID = QUEUE
#: How the ids begin that schedules make.
OF_SCHEDULES = "cron:"
NAME = QUEUE
#: Also of a job that another one was rerouted to.
PARENT = re.compile(rf"{_ID.pattern}(?:>reroute)?")
#: A class, with its module or without.
ERROR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.<>]{0,127}")
ROUTE = re.compile(rf"[A-Za-z0-9_.:-]{{1,{ROUTE_CHARS_MAX}}}")
#: A reroute adds to the id, and a schedule's name and tick make one.
KNOWN_ID = re.compile(r"[A-Za-z0-9_.:>-]{1,256}")
#: Any text but the empty one and halves of surrogate pairs, which UTF-8 cannot hold. The older formats have
#: no bound.
TEXT_CHARS_MAX = 65_536
ANY_TEXT = re.compile(rf"[^\ud800-\udfff]{{1,{TEXT_CHARS_MAX}}}")
#: What most of these are.
_ALLOWED = re.compile(r"\[A-Za-z0-9(.+)\]\{(\d+),(\d+)\}")
KEY = re.compile(rf"[A-Za-z0-9_.:-]{{1,{KEY_CHARS_MAX}}}")
SCHEDULE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def asked(field: str, value: object, bound: str, ask: Callable[..., T], *arguments: object) -> T:
    """What `ask` returns, which asks a value of the caller something. Whatever its class raises is a
    Malformed with that as its cause."""
    try:
        return ask(*arguments)
    except EngineError:
        raise
    except Exception as error:
        raise Malformed(field, value, f"{bound} ({describe(error)})") from error


def instance(field: str, value: object, kind: type[T], bound: str) -> T:
    """A value of this class."""
    if not asked(field, value, bound, isinstance, value, kind):
        raise Malformed(field, value, bound)
    return cast("T", value)


def plain_text(value: object) -> str | None:
    """A text without what a subclass of the caller does when it is compared or hashed; None for anything
    else."""
    return str.__str__(cast("str", value)) if issubclass(type(value), str) else None


def queue_name(value: object) -> str:
    """A queue name."""
    return _matching("queue", value, QUEUE)


def prefix(value: object) -> str:
    """What the keys of a queue begin with. No braces: those say where the queue's slot is (rule 27)."""
    return _matching("prefix", value, _PREFIX)


def any_text(field: str, value: object) -> str:
    """A text that UTF-8 can hold, and not the empty one: what a format takes whose programs check nothing."""
    return _matching(field, value, ANY_TEXT)


def not_bare(name: object, usage: str) -> None:
    """Raise Malformed for the function itself: its decorator was given without brackets."""
    if callable(name):
        raise Malformed("name", name, f"text: {usage}, with the name that jobs are enqueued under")


def durability(value: object) -> bool:
    """Whether calls wait for a replica."""
    text = plain_text(value)
    if text not in ("server", "replica"):
        raise Malformed("durability", value, "server or replica")
    return text == "replica"


def job_id(value: object) -> str:
    """A caller's job id."""
    text = _matching("id", value, _ID)
    if text.startswith(OF_SCHEDULES):
        raise Malformed("id", text, f"without the prefix {OF_SCHEDULES}, which belongs to schedules")
    return text


def known_id(value: object) -> str:
    """The id of an existing job, also one that the engine has made."""
    return _matching("id", value, KNOWN_ID)


def job_name(value: object) -> str:
    """A job name."""
    return _matching("name", value, NAME)


def schedule_name(value: object) -> str:
    """The name of a schedule."""
    return _matching("name", value, SCHEDULE)


def lock_name(value: object) -> str:
    """A lock's name."""
    return _matching("lock name", value, NAME)


def limit_key(field: str, value: object) -> str:
    """A tenant or limit key."""
    return _matching(field, value, KEY)


def instant_ms(field: str, value: object) -> int:
    """A time in ms since 1970, also from a datetime with a zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Malformed(
                field, value, "a datetime with a zone, since the server has another one, or ms since 1970"
            )
        # A zone of the caller may say None, or raise.
        value = asked(field, value, "a datetime with a zone that can be read", _since_epoch_ms, value)
    return integer(field, value, 1, INSTANT_MS_MAX)


def _since_epoch_ms(value: datetime) -> int:
    return (value - EPOCH) // timedelta(milliseconds=1)


def text(field: str, value: object) -> str:
    """A text of the characters that names may have."""
    return _matching(field, value, NAME)


def route(field: str, value: object) -> str:
    """A routing key."""
    return _matching(field, value, ROUTE)


def limit(*, concurrency: object, rate: object, per_ms: object, window: object) -> Limit:
    """A limit."""
    windows: dict[object, Window] = {"fixed": "fixed", "sliding": "sliding"}
    kind = plain_text(window)
    if kind is None or kind not in windows:
        raise Malformed("window", window, "fixed or sliding")
    slots = integer("concurrency", concurrency, 0, RATE_MAX)
    claims = integer("rate", rate, 0, RATE_MAX)
    length_ms = duration_ms("per_ms", per_ms, 0, DURATION_MS_MAX)
    if length_ms and not claims:
        raise Malformed(
            "per_ms", per_ms, "0 without a rate: it is the time in which so many jobs may be claimed"
        )
    if claims and not length_ms:
        raise Malformed(
            "per_ms", per_ms, f"1 to {DURATION_MS_MAX} together with a rate: so many claims in so long"
        )
    if not slots and not claims:
        raise Malformed(
            "concurrency",
            concurrency,
            f"1 to {RATE_MAX} where no rate is given; remove_limit takes a limit away",
        )
    return Limit(slots, claims, length_ms, windows[kind])


def intended_ns(value: object) -> int | None:
    """A monotonic instant in ns, or None."""
    return None if value is None else integer("intended_ns", value, 0, 2**63 - 1)


def lua_folder(value: object) -> Path | None:
    """A folder of scripts, or None for the bundled ones."""
    return None if value is None else instance("lua", value, Path, "a pathlib.Path")


def attributes(value: object) -> dict[str, Any]:
    """Attributes of a worker: a mapping of text to JSON."""
    bound = f"a mapping of text to JSON values of at most {ATTRIBUTES_BYTES_MAX} bytes"
    if value is None:
        return {}
    instance("attributes", value, Mapping, bound)
    given: dict[Any, Any] = {}
    try:
        given = dict(cast("Mapping[Any, Any]", value))
        size = len(json_text(given).encode())
    except Exception as error:
        raise Malformed("attributes", given, f"{bound} ({describe(error)})") from error
    if size > ATTRIBUTES_BYTES_MAX or not all(isinstance(key, str) for key in given):
        raise Malformed("attributes", given, bound)
    return given


def worker_name(value: object, default: Callable[[], str] | None = None) -> str:
    """A worker's name, for people and for the history; the default, if there is one, for an empty one."""
    if default is not None and (value is None or (type(value) is str and not value)):
        value = default()
    return _matching("worker name", value, NAME)


def integer(field: str, value: object, least: int, most: int, what: str = "a whole number") -> int:
    """An integer in [least, most]. A float is taken only when it is whole; a bool never. `what` it is to be,
    for a message."""
    bound = f"{what} from {least} to {most}"
    found = _plain_number(value)
    # A float that is not whole is also nan and the infinities.
    if found is None or (isinstance(found, float) and not found.is_integer()) or not least <= found <= most:
        raise Malformed(field, value, bound)
    return int(found)


def _plain_number(value: object) -> int | float | None:
    """A number without what a subclass of the caller does when it is compared; None for anything else, and
    for a bool."""
    kind = type(value)
    if kind is bool:
        return None
    if issubclass(kind, int):
        return int.__int__(cast("int", value))
    return float.__float__(cast("float", value)) if issubclass(kind, float) else None


def truth(field: str, value: object) -> bool:
    """True or False, and nothing that is as good as one of them: "false" is true in Python."""
    if type(value) is not bool:
        raise Malformed(field, value, "True or False")
    return value


def duration_ms(field: str, value: object, least: int, most: int) -> int:
    """A length of time in ms, in [least, most], also from a timedelta of whole milliseconds."""
    ms = value
    if issubclass(type(value), timedelta):
        ms = timedelta.__truediv__(cast("timedelta", value), timedelta(milliseconds=1))
    return integer(field, ms, least, most, "a timedelta, or whole ms,")


def go_duration_ms(text: str) -> Decimal | None:
    """The length in ms of what Go writes as `1h30m`, `1.5s` or `-250ms`; None where it is no length."""
    found = GO_DURATION.fullmatch(text)
    if found is None:
        return None
    total_ns = sum(Decimal(number) * UNITS_NS[unit] for number, unit in _GO_PART.findall(found[2]))
    return (-1 if found[1] == "-" else 1) * Decimal(total_ns) / 10**6


def payload_bytes(value: object, most: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The payload as compact JSON in UTF-8, of at most `most` bytes."""
    return json_bytes("payload", value, most)


def json_bytes(field: str, value: object, most: int) -> bytes:
    """A value as compact JSON in UTF-8, of at most `most` bytes."""
    bound = f"a JSON value of at most {most} bytes"
    try:
        data = json_text(value).encode()
    except Exception as error:
        raise Malformed(field, value, f"{bound} ({describe(error)})", private=True) from error
    if len(data) > most:
        raise Malformed(field, f"{len(data)} bytes", bound)
    return data


def json_text(value: object) -> str:
    """A value as compact JSON. Raises TypeError, ValueError or RecursionError for what JSON cannot say, or
    would make equal, and whatever a class of the caller raises."""
    text = _to_json(value)
    if _NUMBER_AS_KEY.search(text) or _may_be_deep(text):
        _check_nested(value)
    return text


def _may_be_deep(text: str) -> bool:
    """Whether lists and objects of this JSON may be nested too deep; False for nearly all that are not."""
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return False
    # Each round takes away the innermost ones, of one level or two.
    brackets = text.encode().translate(None, _NO_BRACKETS)
    for rounds in range(1, _ROUNDS + 1):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if brackets.count(b"[") + brackets.count(b"{") + 2 * rounds <= NESTING_MAX:
            return False
    return True


def _check_nested(value: object) -> None:
    """Raise ValueError for lists and objects that not every reader can read. Also where two keys of an object
    are the same text in JSON, because one entry would be lost."""
    level: list[Any] = [value] if isinstance(value, _NESTED) else []
    for _ in range(NESTING_MAX):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                _check_keys(cast("dict[Any, Any]", one))
                inner += cast("dict[Any, Any]", one).values()
            else:
                inner += one
        level = [item for item in inner if isinstance(item, _NESTED)]
        if not level:
            return
    raise ValueError(f"nested deeper than {NESTING_MAX}")


def _check_keys(keys: Iterable[object]) -> None:
    seen: dict[str, object] = {}
    for key in keys:
        text = str.__str__(key) if isinstance(key, str) else _to_json(key)
        if text in seen:
            raise ValueError(f"the keys {seen[text]!r} and {key!r} are both {text!r} in JSON")
        seen[text] = key


def json_value(text: str | bytes) -> Any:
    """What a text of JSON says. Raises ValueError or RecursionError for what is no JSON, or would not come
    back the same. That is a key that comes twice, NaN, a number that no float holds, a lone surrogate, or
    what is nested too deep."""
    found = _reader.decode(text if isinstance(text, str) else text.decode())
    json_text(found).encode()
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} comes twice in one object"
        )
    return found


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


_reader = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse)


def items(field: str, value: object, bound: str) -> list[Any]:
    """What an iterable of the caller yields; one text alone is refused, for it is a sequence of its
    letters."""
    if issubclass(type(value), str | bytes):
        raise Malformed(field, value, bound)
    return list(each(field, value, bound))


def integers(field: str, listed: Sequence[object], least: int, most: int) -> list[int]:
    """Integers of a list, each in [least, most]. A text among them is outlined: the list may be another one
    than was meant, such as a payload."""
    for one in listed:
        if issubclass(type(one), str | bytes):
            raise Malformed(field, one, f"whole numbers from {least} to {most}", private=True)
    return [integer(field, one, least, most) for one in listed]


def each(field: str, value: object, bound: str) -> Iterator[Any]:
    """What an iterable of the caller yields, one by one."""
    instance(field, value, Iterable, bound)
    found = asked(field, value, bound, iter, value)
    while (item := asked(field, value, bound, next, found, _NOTHING_MORE)) is not _NOTHING_MORE:
        yield item


def parents(field: str, value: object) -> tuple[str, ...]:
    """Ids of the jobs that a job needs, from ids and from objects with an `id`."""
    return _parents(field, value, PARENT)


def any_parents(field: str, value: object) -> tuple[str, ...]:
    """The same where ids are any texts."""
    return _parents(field, value, ANY_TEXT)


def _parents(field: str, value: object, pattern: re.Pattern[str]) -> tuple[str, ...]:
    names: list[str] = []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        given = cast("Sequence[object]", value)
        found = [getattr(item, "name", "") for item in given]
        value = [getattr(item, "id", item) for item in given]
        names = [name if isinstance(name, str) else "" for name in found]
    ids = _texts(field, value, pattern, PARENTS_MAX, "ids of jobs, or NewJobs that have one")
    if (size := len(json.dumps([ids, names]))) > PARENTS_BYTES_MAX:
        bound = f"ids and names of jobs of at most {PARENTS_BYTES_MAX} bytes as JSON, so fewer of them"
        raise Malformed(field, f"{size} bytes", bound)
    return tuple(Parent.named(id, name) if name else id for id, name in zip(ids, names, strict=True))


def callback(field: str, value: object) -> Any:
    """A job that the end of another one makes: what has a name, a payload and options, such as a NewJob."""
    if not all(hasattr(value, part) for part in ("name", "payload", "options")):
        raise Malformed(field, value, "a NewJob, such as task.new(...) makes", private=True)
    options = cast("Mapping[str, object]", cast("Any", value).options)
    for name in options.keys() & NOT_OF_CALLBACKS:
        if options[name]:
            raise Malformed(
                f"{field}.{name}", options[name], "left out: a callback starts at once and calls nobody back"
            )
    return value


def error_names(field: str, value: object) -> tuple[str, ...]:
    """Names of exceptions, also from their classes, of which one may stand alone."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        value = [error_name(one) for one in cast("Sequence[object]", value)]
    elif (name := error_name(value)) is not value:
        value = [name]
    elif isinstance(value, str) and ERROR_NAME.fullmatch(value):
        raise Malformed(field, value, f"a list: write [{value!r}]")
    return _texts(field, value, ERROR_NAME, ERROR_NAMES_MAX, "classes of exceptions or names of them")


def error_name(value: object) -> object:
    """The name of a class of exceptions, with its module where that is known elsewhere; anything else as it
    is."""
    found: object = value
    if isinstance(value, type) and issubclass(value, BaseException):
        module, name = value.__module__, value.__qualname__
        found = value.__name__ if module in ("builtins", "__main__") else f"{module}.{name}"
    return found


def reroutes(field: str, value: object) -> tuple[tuple[str, str], ...]:
    """Names of exceptions, each with a name, or a queue, a colon and a name."""
    return _reroutes(field, value, NAME)


def any_reroutes(field: str, value: object) -> tuple[tuple[str, str], ...]:
    """The same where names are any texts; what stands before the first colon is a queue."""
    return _reroutes(field, value, ANY_TEXT)


def _reroutes(field: str, value: object, pattern: re.Pattern[str]) -> tuple[tuple[str, str], ...]:
    bound = (
        f"a mapping of at most {ERROR_NAMES_MAX} classes of exceptions or names of them to a job name, or to"
        " a queue, a colon and a job name"
    )
    if not isinstance(value, Mapping):
        raise Malformed(field, value, bound)
    given = {error_name(key): target for key, target in cast("Mapping[object, object]", value).items()}
    _texts(field, list(given), ERROR_NAME, ERROR_NAMES_MAX, "classes of exceptions or names of them")
    for target in given.values():
        queue, name = reroute_target(target) if isinstance(target, str) else ("", "")
        if not pattern.fullmatch(name) or (":" in str(target) and not pattern.fullmatch(queue)):
            raise Malformed(field, target, bound, private=not isinstance(target, str))
    return tuple(cast("dict[str, str]", given).items())


def delays(field: str, value: object) -> tuple[int, ...]:
    """Waits in ms, at least one."""
    given = (
        cast("Sequence[object]", value)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes)
        else ()
    )
    if not 1 <= len(given) <= DELAYS_MAX or any(isinstance(wait, str | bytes) for wait in given):
        raise Malformed(field, cast("object", value), f"a list of 1 to {DELAYS_MAX} waits in ms")
    return tuple(duration_ms(field, wait, 0, DURATION_MS_MAX) for wait in given)


def share(field: str, value: object) -> float:
    """A number from 0 to 1."""
    return number(field, value, 0, 1)


def number(field: str, value: object, least: float, most: float) -> float:
    """A number in [least, most]; not a bool."""
    found = _plain_number(value)
    if found is None or not least <= found <= most:
        raise Malformed(field, value, f"a number from {least} to {most}")
    return float(found)


def headers(field: str, value: object) -> tuple[tuple[str, str], ...]:
    """Headers of a job, as pairs."""
    bound = f"a mapping of text to text of at most {HEADERS_BYTES_MAX} bytes"
    if not isinstance(value, Mapping):
        raise Malformed(field, value, bound, private=True)
    pairs: list[tuple[str, str]] = []
    items: Mapping[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
    for key, text in items.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise Malformed(field, items, bound)
        pairs.append((key, text))
    try:
        json.dumps(dict(pairs), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Malformed(field, items, f"{bound}, of characters that UTF-8 can encode") from error
    size = len(json.dumps(dict(pairs)).encode())
    if size > HEADERS_BYTES_MAX:
        raise Malformed(field, f"{size} bytes", bound)
    return tuple(pairs)


def _texts(field: str, value: object, pattern: re.Pattern[str], most: int, what: str) -> tuple[str, ...]:
    """Different texts; one text alone is refused, for it is a sequence of its letters."""
    bound = f"a list of at most {most} different {what}, {shape(pattern)}"
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise Malformed(field, value, bound)
    texts = cast("Sequence[object]", value)
    if len(texts) > most or not all(isinstance(text, str) and pattern.fullmatch(text) for text in texts):
        raise Malformed(field, texts, bound)
    found = tuple(cast("Sequence[str]", texts))
    if len(set(found)) != len(found):
        raise Malformed(field, texts, bound)
    return found


def _matching(field: str, value: object, pattern: re.Pattern[str]) -> str:
    text = value if type(value) is str else plain_text(value)
    if text is None or not pattern.fullmatch(text):
        raise Malformed(field, value, shape(pattern))
    return text


def shape(pattern: re.Pattern[str]) -> str:
    """What a pattern of allowed characters says, in words."""
    if pattern is ANY_TEXT:
        return f"text of 1 to {TEXT_CHARS_MAX} characters that UTF-8 can hold"
    found = _ALLOWED.fullmatch(pattern.pattern)
    return (
        f"text of {found[2]} to {found[3]} ASCII letters, digits and {' '.join(found[1])}"
        if found
        else f"text of {pattern.pattern}"
    )


# -- Settings in dataclasses: each field becomes the plain value that it is declared as, or is a Malformed
# that names it.

_ITEMS = ("Sequence[", "tuple[")


def settle(
    record: Any, prefix: str = "", /, **wanted: tuple[float, float] | type | Callable[..., object]
) -> None:
    """Put into each field of a frozen dataclass the plain value of its annotation: a plain text, number or
    truth value for one of a subclass, a tuple for what is iterable once. A whole float that stayed one would
    fail where it counts.

    `wanted`: the bounds of each number; the class of a value, or of each item; `callable` for a function.
    `prefix` goes before the names of fields. A field that no repr shows is in no Malformed either. Raises
    Malformed."""
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        try:
            found = _read(str(one.type), prefix + one.name, value, wanted.get(one.name))
        except Malformed as error:
            if one.repr:
                raise
            raise Malformed(error.field, "(not shown)", error.bound) from None
        object.__setattr__(record, one.name, found)


def _read(kind: str, name: str, value: object, wanted: Any) -> object:
    if value is None and kind.endswith("| None"):
        return None
    if isinstance(wanted, tuple):
        least, most = cast("tuple[Any, Any]", wanted)
        read = integer if kind == "int" else number
        return read(name, value, least, most)
    if kind.startswith(_ITEMS):
        item = _text if wanted is None else _one
        listed = items(name, value, "a list, not a single text")
        return tuple(item(f"{name}[{at}]", one, wanted) for at, one in enumerate(listed))
    if kind == "bool":
        return truth(name, value)
    if kind.startswith("Mapping["):
        instance(name, value, Mapping, "a mapping of texts")
        pairs: dict[Any, Any] = asked(name, value, "a mapping of texts", cast("Any", dict), value)
        item = _text if kind == "Mapping[str, str]" else _as_it_is
        return {_text(name, key): item(f"{name}.{key}", one) for key, one in pairs.items()}
    if kind.removesuffix(" | None") == "str":
        return _text(name, value)
    return value if wanted is None else _one(name, value, wanted)


def _text(name: str, value: object, _: object = None) -> str:
    text = plain_text(value)
    if text is None:
        raise Malformed(name, value, "text")
    return text


def _one(name: str, value: object, wanted: Any) -> object:
    if wanted is callable:
        if not asked(name, value, "a function", callable, value):
            raise Malformed(name, value, "a function")
        return value
    return instance(name, value, wanted, f"{wanted.__name__}, or a subclass of it")


def _as_it_is(_: str, value: object) -> object:
    return value
