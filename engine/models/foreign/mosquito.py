"""Mosquito keyspaces. A keyspace that Crystal programs use needs `Mosquito(layout="live")`. The default,
"document", has sorted sets where Crystal's runners have lists, and each refuses the other's keys: those of
its own queue and, while that one is empty, those of other queues. Where the keyspace has no jobs, the locks
of coordinators show that Crystal programs use it.

`document` follows the design document: waiting, pending, scheduled and dead are sorted sets. Waiting is
scored by the arrival (within one ms by fractions, so the order of arrival holds), pending by the claim,
scheduled by the due time, dead by the death, all in ms. `live` is the format of v2.0.0 and later versions:
three lists, and scheduled as a sorted set. All else is in both layouts as the original programs write it: the
hash is `job_run:<id>` and, unlike in the document, has no field `id`.

Choices where the originals differ or leave something open:

- A job's name is its type, `ok_job` or `held_out::spaced_job`. Its payload is an object of texts, numbers and
  booleans; handlers read texts (see `mosquito_fields`), and other payloads are bytes in one field.
- A job without retry options has the original's: five runs, waits of 2 s times the square of the failures.
  Options for which the hash has no field are in an additional field, which the original ignores and keeps.
- `dedup="params"` with `dedup_ms` is the original's unique job, `dedup="params:user_id"` that of some
  parameters; any other text is a key of its own. As in the original, it holds until its time is over,
  whatever becomes of the job.
- A rate limit is counted in the original's hash, by the claim, in one step; its windows begin with the first
  run.
- Ids are `<ms>:<nine digits>`, counted and checked before they are used: the original's three random digits
  collide.
- Queues that hold only delayed jobs are listed as well. An id without a hash is removed from its structure,
  and is counted.
- `success_ttl_s` is 1 as in v2; HEAD has 60. `dead_ttl_s` is 86,400. Entries of the dead whose hash has
  expired are removed.
- The engine's workers are overseers in the registry from their first claim on, and active jobs hold their
  ids, so that HEAD does not take the jobs for orphans. A job whose hash names another overseer is that one's:
  no sweep of the engine takes it back.
- With `coordinate=True` the engine's leader holds the coordinator's lock, of both generations, until its
  worker ends. Crystal's own coordinators then promote no jobs, a step in which they lose and duplicate jobs;
  but they do not make their periodic jobs either.

`FINDINGS` lists the defects of the format that the engine cannot prevent. No cluster: the keys of one queue
are in several slots."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.models.foreign.foreign import Foreign, pack
from engine.models.model import ANY_TEXT, Finding
from engine.ops.admin import ReadMetadata, SetLimit, SetMetadata
from engine.ops.base import Call, Operation
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Enqueue, Lease, Options, class_of
from engine.options import checked
from engine.serializers import TEXTS

# -- Mosquito's hash of a job run and its decoding: parameters as texts, followed by metadata.
#
# A task takes scalars by name; the hash holds only texts, as Crystal prints them. So a handler receives
# texts, whichever client has enqueued the job; a task (`engine.tasks`) converts them to the types of its
# parameters. Options of a job for which the format has no field are in an additional field, `ironclaim`, as
# JSON: the original ignores it, and keeps it when it reschedules.

#: Fields that the original, one of its versions, or the engine keeps beside the parameters.
METADATA = ("enqueue_time", "type", "retry_count", "started_at", "finished_at", "overseer_id", "ironclaim")
#: `id` is metadata in the document, and none on the wire.
REFUSED = (*METADATA, "id")
#: The field that holds the bytes of a serialiser, which are no parameters.
RAW_FIELD = "payload"
PARAMETERS_MAX = 1000
#: The original's retries: five runs, with waits of 2, 8, 18 and 32 s.
DEFAULTS = Options(attempts=5, backoff="geometric", backoff_ms=2000)
_READ = replace(DEFAULTS, serializer=TEXTS)
#: The options that are stored in the field `ironclaim`.
STORED = frozenset(
    (
        *(
            "attempts",
            "backoff",
            "backoff_ms",
            "backoff_max_ms",
            "backoff_delays_ms",
            "jitter",
            "crashes_max",
        ),
        *(
            "timeout_ms",
            "headers",
            "serializer",
            "timestamp_ms",
            "skip_on",
            "key",
            "cost",
            "result_ttl_ms",
            "error_ttl_ms",
        ),
    )
)
#: Begins a dedup text that names parameters; `params` alone is all of them.
_BY_PARAMETERS = "params"


def parameters(payload: bytes, options: Options) -> list[tuple[str, bytes]]:
    """The fields of a payload, names and texts in its order. Raises Malformed for one that the wire cannot
    hold."""
    if options.serializer:
        return [(RAW_FIELD, payload)]
    given: Any = json.loads(payload)
    if given is None:
        return []
    if not isinstance(given, dict):
        bound = "an object: Mosquito's jobs have parameters by name"
        raise Malformed("payload", given, bound, private=True)
    found = cast("dict[str, Any]", given)
    if len(found) > PARAMETERS_MAX:
        raise Malformed("payload", f"{len(found)} parameters", f"at most {PARAMETERS_MAX} parameters")
    for name in found:
        if not name or name in REFUSED:
            bound = "another name: Mosquito keeps its own metadata under this one"
            raise Malformed(f"payload.{name}", found[name], bound, private=True)
    return [(name, _text(name, value)) for name, value in found.items()]


def left_over(options: Options) -> str:
    """The options for which the hash has no field, as JSON; '' if all have their defaults."""
    changed = _changed_options(options)
    return json.dumps(changed, separators=(",", ":")) if changed else ""


def unique_text(name: str, given: Sequence[tuple[str, bytes]], dedup: str) -> str:
    """The text after `unique_job:`. For `params` the original's text of all parameters, for `params:a:b` of
    these two."""
    kind, _, chosen = dedup.partition(":")
    if not dedup or kind != _BY_PARAMETERS:
        return f"{name}:{dedup}" if dedup else ""
    texts = {field: text.decode(errors="replace") for field, text in given}
    names = chosen.split(":") if chosen else [*texts]
    for wanted in names:
        if wanted not in texts:
            raise Malformed(
                "dedup", dedup, f"{_BY_PARAMETERS}, or with parameters of the payload: {', '.join(texts)}"
            )
    return ":".join((name, *(f"{field}={texts[field]}" for field in sorted(names))))


def decode(raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
    """Decode a claimed job from the flat list of its hash. Raises ScriptFault for a hash that Python cannot
    decode."""
    try:
        stored = dict(zip(raw[::2], raw[1::2], strict=True))
        name = stored[b"type"].decode()
        options = _options(stored.get(b"ironclaim"))
        if options.serializer != TEXTS:
            payload = stored[RAW_FIELD.encode()]
        else:
            hidden = {field.encode() for field in METADATA}
            # The document has the id among the metadata, a Crystal class may have it among its parameters.
            if stored.get(b"id") == lease.job.encode():
                hidden.add(b"id")
            shown = {field.decode(): value.decode() for field, value in stored.items() if field not in hidden}
            payload = json.dumps(shown, separators=(",", ":")).encode()
        enqueued_ms = int(stored[b"enqueue_time"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Malformed) as error:
        raise ScriptFault(f"hash of job run {lease.job}: {error!r}") from error
    lane = f"{name}/{options.key}" if options.key else name
    return LeasedJob(
        lease, deadline_ms, name, class_of(name, "", ""), lane, payload, options, enqueued_ms, 0, *counters
    )


def _text(name: str, value: Any) -> bytes:
    """A value as Crystal prints it. Raises Malformed for a value that cannot be a parameter."""
    try:
        if isinstance(value, bool):
            return b"true" if value else b"false"
        if isinstance(value, float):
            return crystal_float(value).encode()
        if isinstance(value, int | str):
            return str(value).encode()
    except ValueError as error:
        bound = f"a text, a number or a boolean ({error})"
        raise Malformed(f"payload.{name}", value, bound, private=True) from None
    bound = "a text, a number or a boolean: a parameter of Mosquito holds nothing else"
    raise Malformed(f"payload.{name}", value, bound, private=True)


def crystal_float(value: float) -> str:
    """A number as Crystal prints it: 1.5, 1.0e+21, 1.0e-5."""
    digits, _, exponent = f"{value!r}".partition("e")
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    whole, _, part = digits.partition(".")
    figures = (whole + part).lstrip("0")
    # The position of the decimal point, counted from the first figure.
    point = int(exponent or 0) + (len(whole) if whole.strip("0") else len(figures) - len(part))
    figures = figures.rstrip("0")
    if not figures:
        return f"{sign}0.0"
    if -3 <= point <= 15:
        padded = figures.ljust(point, "0") if point > 0 else "0" * (1 - point) + figures
        before = max(point, 1)
        return f"{sign}{padded[:before]}.{padded[before:] or '0'}"
    return f"{sign}{figures[0]}.{figures[1:] or '0'}e{point - 1:+d}"


def _changed_options(options: Options) -> dict[str, Any]:
    """The stored options that differ from the defaults."""
    if options is DEFAULTS:
        return {}
    differ = [
        field.name
        for field in fields(Options)
        if getattr(options, field.name) != getattr(DEFAULTS, field.name)
    ]
    given: dict[str, Any] = {name: getattr(options, name) for name in differ if name in STORED}
    if "headers" in given:
        given["headers"] = dict(options.headers)
    return given


def _options(raw: bytes | None) -> Options:
    """The options of a job; unknown ones, of a later engine, are ignored. Raises Malformed or ValueError for
    invalid ones."""
    if raw is None:
        return _READ
    given: Any = json.loads(raw)
    if not isinstance(given, dict):
        raise ValueError("options that are no object")
    known = {
        name: value for name, value in cast("dict[str, Any]", given).items() if name in MosquitoModel.OPTIONS
    }
    made = checked(cast("Mapping[str, object]", known), own=ANY_TEXT.options)
    chosen: dict[str, Any] = {name: getattr(made, name) for name in known}
    return replace(_READ, **chosen)


#: Those between the parts of a class, and all others.
_COLONS = re.compile(r"(?<=\w)::(?=\w)|:")

FINDINGS = (
    Finding(
        "v2 leaves jobs in pending",
        ("J4", "J13"),
        "A v2 runner that dies leaves its jobs in `pending`, without an id of its own: they come back "
        "only with "
        "adopt_after_ms, which must be longer than any of its jobs takes, or they run twice.",
    ),
    Finding(
        "the original's ids collide",
        ("J1", "J4"),
        "A Crystal producer draws one of 1,000 ids for each ms, and does not look whether it is "
        "taken. The second of two jobs "
        "with one id overwrites the first one's hash: only one of the two runs, in Crystal's runners "
        "twice, in the engine once. "
        "The engine counts and records the second entry as `aside`. Of 13,750 jobs that a producer "
        "enqueued in bursts, 40 were "
        "lost so. Ids of the engine end in nine digits, theirs in at most three: jobs that the engine "
        "enqueues are not lost so.",
    ),
    Finding(
        "the original moves jobs in two steps",
        ("J1", "J4"),
        "A Crystal coordinator removes a due id and pushes it later; a runner that reschedules a "
        "failed run, and an overseer "
        "that cleans up after a dead one, do the same. One that dies in between loses the job. "
        "Coordinators do not promote with "
        "coordinate=True, because the engine's leader does. Two of them add an id twice: the engine's "
        "claims lease it once, but "
        "a Crystal runner runs each entry, also while the engine has the other one.",
    ),
    Finding(
        "HEAD adopts what names no overseer",
        ("J13",),
        "An overseer of HEAD that cleans up gives its id to each job in `pending` that names none, "
        "and does not run it: one of "
        "v2, or one that the engine gave back and claimed again between two of its commands, whose "
        "end is then refused. Such a "
        "job stays in `pending` until that overseer has ended, and then runs once more.",
    ),
    Finding(
        "v2 does not pause",
        (),
        "Pauses of a queue are in the key that HEAD reads. v2 does not know it: its runners go on.",
    ),
    Finding(
        "the original does not fence",
        ("J2", "J3", "J6"),
        "A Crystal runner that was taken for dead ends its job all the same: its removal from "
        "`pending` makes the engine's "
        "lease stale, and the handler's result is refused.",
    ),
    Finding(
        "periodic jobs have two clocks",
        ("J15",),
        "A Crystal coordinator and a schedule of the engine that make the same periodic job each use "
        "their own clock: define "
        "it in one of them only.",
    ),
    Finding(
        "no type is on the wire",
        (),
        "Parameters are texts: a handler reads them as texts, also those that were numbers when they "
        "were enqueued.",
    ),
)


class MosquitoModel(Foreign):
    """The mapping for one queue."""

    name = "mosquito"
    OPTIONS = STORED | {"delay_ms", "run_at_ms", "dedup", "dedup_ms"}
    defaults = DEFAULTS
    FINDINGS = FINDINGS

    def __init__(
        self,
        queue: str,
        prefix: str,
        *,
        lua: Path | None = None,
        layout: str = "document",
        settings: str = "1 86400 0 0",
    ) -> None:
        super().__init__(queue, prefix, lua=lua, layout=layout, settings=settings)

    @staticmethod
    def places(queue: str, prefix: str) -> tuple[str, str]:
        """All queues share one keyspace. In the engine's keys a colon of a name is escaped, but for those of
        a namespaced class. The queue `a:run` would else have its keys among those of the jobs of `a`."""
        name = _COLONS.sub(lambda found: found[0] if found[0] == "::" else "%3a", queue.replace("%", "%25"))
        return f"{prefix}:", f"{name}:"

    def new_id(self) -> str:
        """'': the server assigns the id."""
        return ""

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option, and Malformed for a payload, that the hash cannot hold."""
        super().check(id, name, payload, options)
        given = parameters(payload, options)
        unique_text(name, given, options.dedup)

    def refuse(self, operation: Operation) -> None:
        """Raise UnsupportedFeature for an operation that the model lacks. A key may have a rate limit, as in
        the original."""
        if not (isinstance(operation, SetLimit) and operation.target.startswith("k:")):
            super().refuse(operation)
        elif operation.limit is not None and operation.limit.concurrency:
            raise UnsupportedFeature(f"{self.name} has no bound of what runs at once for a key, but rates")

    def encode(self, job: Enqueue) -> bytes:
        """Type, unique text and its time, then name and text of each field."""
        given = parameters(job.payload, job.options)
        unique = unique_text(job.name, given, job.options.dedup)
        extra = left_over(job.options)
        if extra:
            given = [*given, ("ironclaim", extra.encode())]
        flat = [word for pair in given for word in pair]
        return pack(job.name, unique, job.options.dedup_ms, *flat)

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        match operation:
            case ReadMetadata():
                key = self._metadata(operation.name)
                words = ("HGETALL", key)
                return Call(None, (key,), words, partial(self.parse, operation), operation)
            case SetMetadata():
                items: list[object] = []
                for field, value in operation.fields:
                    items += ("remove" if value is None else "set", field, value or "")
                for field, number in operation.added:
                    items += ("add", field, number)
                return self.bound(
                    operation, argument_groups=(items,), metadata=self._metadata(operation.name)
                )
            case _:
                return super().call(operation)

    def _metadata(self, name: str) -> str:
        """The hash of the metadata that all jobs of a name share."""
        return f"{self.keys.wire}job_metadata:{name}"

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from the flat list of its hash."""
        return decode(raw, lease, deadline_ms, counters)
