"""The bounds of all arguments of callers, checked in one place and before any I/O. Each failure is a Malformed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from engine.errors import Malformed
from engine.wire.operations import Limit, Parent, Window

#: The default limit of a payload, and the most that a queue may set.
PAYLOAD_BYTES_MAX = 512 * 1024
PAYLOAD_BYTES_LIMIT = 64 * 1024 * 1024
#: What a handler may return.
RESULT_BYTES_MAX = 512 * 1024
#: What a handler may say with its progress.
PROGRESS_BYTES_MAX = 16 * 1024
#: 100 years; far below 2^53 even when added to a time since 1970.
DURATION_MS_MAX = 100 * 366 * 86_400_000
#: The year 6429; 48 bits in the envelope.
INSTANT_MS_MAX = 2**47
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
#: Of one failed run, as UTF-8. The error history of a job keeps the last ten runs (lua/lanes/modules/lease.lua).
TRACE_BYTES_MAX = 4096
#: Of one job: jobs that it needs, waits of its own back-off, and names of exceptions.
PARENTS_MAX = 100
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
    {"delay_ms", "run_at_ms", "unique", "dedup", "dedup_ms", "needs", "on_parent_failure", "on_success", "on_failure"}
)

#: A length of time where a name ends with `_ms`: so many ms, or a timedelta.
Milliseconds = int | timedelta

#: One encoder for all payloads: `json.dumps` makes one for each call that has options.
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_QUEUE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_ID = _QUEUE
_NAME = _QUEUE
#: Also of a job that another one was rerouted to.
PARENT = re.compile(rf"{_ID.pattern}(?:>reroute)?")
#: A class, with its module or without.
ERROR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.<>]{0,127}")
ROUTE = re.compile(rf"[A-Za-z0-9_.:-]{{1,{ROUTE_CHARS_MAX}}}")
#: A reroute adds to the id, and a schedule's name and tick make one.
_KNOWN_ID = re.compile(r"[A-Za-z0-9_.:>-]{1,256}")
#: What most of these are.
_ALLOWED = re.compile(r"\[A-Za-z0-9(.+)\]\{(\d+),(\d+)\}")
_KEY = re.compile(rf"[A-Za-z0-9_.:-]{{1,{KEY_CHARS_MAX}}}")


def queue_name(value: object) -> str:
    """A queue name."""
    return _matching("queue", value, _QUEUE)


def prefix(value: object) -> str:
    """What the keys of a queue begin with. No braces: those say where the queue's slot is (rule 27)."""
    return _matching("prefix", value, _PREFIX)


def durability(value: object) -> bool:
    """Whether calls wait for a replica."""
    if value not in ("server", "replica"):
        raise Malformed("durability", value, "server or replica")
    return value == "replica"


def job_id(value: object) -> str:
    """A caller's job id. `cron:` is kept for ids that schedules make."""
    text = _matching("id", value, _ID)
    if text.startswith("cron:"):
        raise Malformed("id", text, "without the prefix cron:, which belongs to schedules")
    return text


def known_id(value: object) -> str:
    """The id of an existing job, also one that the engine has made."""
    return _matching("id", value, _KNOWN_ID)


def job_name(value: object) -> str:
    """A job name."""
    return _matching("name", value, _NAME)


def lock_name(value: object) -> str:
    """A lock's name."""
    return _matching("lock name", value, _NAME)


def limit_key(field: str, value: object) -> str:
    """A tenant or limit key."""
    return _matching(field, value, _KEY)


def instant_ms(field: str, value: object) -> int:
    """A time in ms since 1970, also from a datetime with a zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Malformed(field, value, "a datetime with a zone, since the server has another one, or ms since 1970")
        value = (value - _EPOCH) // timedelta(milliseconds=1)
    return integer(field, value, 1, INSTANT_MS_MAX)


def text(field: str, value: object) -> str:
    """A text of the characters that names may have."""
    return _matching(field, value, _NAME)


def route(field: str, value: object) -> str:
    """A routing key."""
    return _matching(field, value, ROUTE)


def limit(*, concurrency: object, rate: object, per_ms: object, window: object) -> Limit:
    """A limit."""
    windows: dict[object, Window] = {"fixed": "fixed", "sliding": "sliding"}
    if not isinstance(window, str) or window not in windows:
        raise Malformed("window", window, "fixed or sliding")
    slots = integer("concurrency", concurrency, 0, RATE_MAX)
    claims = integer("rate", rate, 0, RATE_MAX)
    length_ms = duration_ms("per_ms", per_ms, 0, DURATION_MS_MAX)
    if length_ms and not claims:
        raise Malformed("per_ms", per_ms, "0 without a rate: it is the time in which so many jobs may be claimed")
    if claims and not length_ms:
        raise Malformed("per_ms", per_ms, f"1 to {DURATION_MS_MAX} together with a rate: so many claims in so long")
    if not slots and not claims:
        raise Malformed("concurrency", concurrency, f"1 to {RATE_MAX} where no rate is given; remove_limit takes a limit away")
    return Limit(slots, claims, length_ms, windows[window])


def intended_ns(value: object) -> int | None:
    """A monotonic instant in ns, or None."""
    return None if value is None else integer("intended_ns", value, 0, 2**63 - 1)


def lua_folder(value: object) -> Path | None:
    """A folder of scripts, or None for the bundled ones."""
    if value is None or isinstance(value, Path):
        return value
    raise Malformed("lua", value, "a pathlib.Path")


def attributes(value: object) -> dict[str, Any]:
    """Attributes of a worker: a mapping of text to JSON."""
    bound = f"a mapping of text to JSON values of at most {ATTRIBUTES_BYTES_MAX} bytes"
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Malformed("attributes", value, bound)
    given: dict[Any, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    try:
        size = len(_to_json(given).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise Malformed("attributes", value, f"{bound} ({error})") from error  # pyright: ignore[reportUnknownArgumentType]
    if size > ATTRIBUTES_BYTES_MAX or not all(isinstance(key, str) for key in given):
        raise Malformed("attributes", given, bound)
    return given


def worker_name(value: object) -> str:
    """A worker's name, for people and for the history."""
    return _matching("worker name", value, _NAME)


def integer(field: str, value: object, least: int, most: int) -> int:
    """An integer in [least, most]. A float is taken only when it is whole; a bool never."""
    bound = f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(field, value, bound)
    if isinstance(value, float) and not value.is_integer():
        # Also for nan and the infinities.
        raise Malformed(field, value, bound)
    if not least <= value <= most:
        raise Malformed(field, value, bound)
    return int(value)


def duration_ms(field: str, value: object, least: int, most: int) -> int:
    """A length of time in ms, in [least, most], also from a timedelta of whole milliseconds."""
    return integer(field, value / timedelta(milliseconds=1) if isinstance(value, timedelta) else value, least, most)


def payload_bytes(value: object, most: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The payload as compact JSON in UTF-8, of at most `most` bytes."""
    return json_bytes("payload", value, most)


def json_bytes(field: str, value: object, most: int) -> bytes:
    """A value as compact JSON in UTF-8, of at most `most` bytes."""
    bound = f"a JSON value of at most {most} bytes"
    try:
        data = _to_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Malformed(field, value, f"{bound} ({error})") from error
    if len(data) > most:
        raise Malformed(field, f"{len(data)} bytes", bound)
    return data


def parents(field: str, value: object) -> tuple[str, ...]:
    """Ids of the jobs that a job needs, from ids and from objects with an `id`."""
    names: list[object] = []
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        given = cast("Sequence[object]", value)
        value, names = [getattr(item, "id", item) for item in given], [getattr(item, "name", "") for item in given]
    ids = _texts(field, value, PARENT, PARENTS_MAX, "ids of jobs, or NewJobs that have one")
    return tuple(Parent.named(id, name) if isinstance(name, str) and name else id for id, name in zip(ids, names, strict=True))


def callback(field: str, value: object) -> Any:
    """A job that the end of another one makes: what has a name, a payload and options, such as a NewJob."""
    if not all(hasattr(value, part) for part in ("name", "payload", "options")):
        raise Malformed(field, value, "a NewJob, such as task.new(...) makes")
    options = cast("Mapping[str, object]", cast("Any", value).options)
    for name in options.keys() & NOT_OF_CALLBACKS:
        if options[name]:
            raise Malformed(f"{field}.{name}", options[name], "left out: a callback starts at once and calls nobody back")
    return value


def error_names(field: str, value: object) -> tuple[str, ...]:
    """Names of exceptions."""
    return _texts(field, value, ERROR_NAME, ERROR_NAMES_MAX, "names of exceptions")


def reroutes(field: str, value: object) -> tuple[tuple[str, str], ...]:
    """Names of exceptions, each with a name, or a queue, a colon and a name."""
    bound = f"a mapping of at most {ERROR_NAMES_MAX} names of exceptions to a job name, or to a queue, a colon and a job name"
    if not isinstance(value, Mapping):
        raise Malformed(field, value, bound)
    given = cast("Mapping[object, object]", value)
    _texts(field, list(given), ERROR_NAME, ERROR_NAMES_MAX, "names of exceptions")
    for target in given.values():
        queue, colon, name = target.partition(":") if isinstance(target, str) else ("", "", "")
        if not _NAME.fullmatch(name if colon else queue) or (colon and not _QUEUE.fullmatch(queue)):
            raise Malformed(field, target, bound)
    return tuple(cast("Mapping[str, str]", given).items())


def delays(field: str, value: object) -> tuple[int, ...]:
    """Waits in ms, at least one."""
    given = cast("Sequence[object]", value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()
    if not 1 <= len(given) <= DELAYS_MAX:
        raise Malformed(field, cast("object", value), f"a list of 1 to {DELAYS_MAX} waits in ms")
    return tuple(duration_ms(field, wait, 0, DURATION_MS_MAX) for wait in given)


def share(field: str, value: object) -> float:
    """A number from 0 to 1."""
    return number(field, value, 0, 1)


def number(field: str, value: object, least: float, most: float) -> float:
    """A number in [least, most]; not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Malformed(field, value, f"a number from {least} to {most}")
    return float(value)


def headers(field: str, value: object) -> tuple[tuple[str, str], ...]:
    """Headers of a job, as pairs."""
    bound = f"a mapping of text to text of at most {HEADERS_BYTES_MAX} bytes"
    if not isinstance(value, Mapping):
        raise Malformed(field, value, bound)
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
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Malformed(field, value, shape(pattern))
    return value


def shape(pattern: re.Pattern[str]) -> str:
    """What a pattern of allowed characters says, in words."""
    found = _ALLOWED.fullmatch(pattern.pattern)
    return f"text of {found[2]} to {found[3]} letters, digits and {' '.join(found[1])}" if found else f"text of {pattern.pattern}"
