"""Bananas. Which layout fits is decided by the lists and the keys of schedules that the programs beside the
engine use:

| layout | lists of the default route | locks and states of schedules |
|---|---|---|
| `document`, the default | `route:default:queue:high` | `cron:lock:<schedule>`, `cron:state:<schedule>` |
| `live` | `queue:high` | `schedule_lock:<schedule>`, `schedules:<schedule>` |
| `routed` | `route:default:queue:high` | `schedule_lock:<schedule>`, `schedules:<schedule>` |

Programs without routes write `live`, those with routes `routed`; `document` is what their document promises.
Beside programs of another layout a job is not seen, or a tick of a schedule that both know makes two jobs.

One keyspace is one queue: the queue's name is a label that is not on the wire. No Cluster. `BananasKeys` has
the keys of all layouts, with types and units.

Where the documents and the programs contradict each other:

- A job is a string of JSON, as all programs write it. Jobs of this engine have the bytes that Go writes. In
  jobs of others a change rewrites single members and nothing else, so that payloads keep every byte.
- Priorities are strict over all routes of a worker, as the document promises, and routes of one priority take
  turns. (Its list of queues goes route by route.) 1 to 3 is `low`, 4 to 6 `normal`, 7 to 10 `high`; they read
  back as 2, 5 and 8.
- `max_retries` counts executions: 3 of them, after waits of 2 s and 4 s, as the programs do. 0 is 1.
- Due times are whole seconds, rounded up: never early, up to a second late. Fractions in jobs of others are
  respected.
- A job that became due goes back to its route: programs with routes move it to the default one. In `live` the
  lists `route:default:queue:*`, where their scheduler leaves jobs that none of those programs reads, are
  read, never written.
- A result is stored once a job has ended for good. The programs store a failure after each failed run. While
  the job will run again, this is not its end. So a wait in this engine goes on. A result keeps no field of an
  earlier one.
- A wait registers before it reads, so no end is missed in between; ends by foreign workers are found by
  polling every 200 ms.
- An entry without a job, or whose job cannot be read, goes to `queue:dead` with the record that Go writes
  there, for 7 days. An entry of `queue:scheduled` without a job is removed.
- A cron job has an id. Those of foreign schedulers have none and share one key: they get one when a worker of
  this engine finds them.
- A lock `cron:<schedule>` of `queue.locks` is the one on the wire: while it is held, no scheduler runs that
  schedule.
- A tick that a foreign scheduler has run is left out: those run it up to a second early, which `last_run`
  shows.
- The description of a job is its header `description`, the only one that the format has room for.
- A payload of bytes is stored as the JSON text `proto:` and base64, and decoded to bytes: JSON cannot hold
  the byte that Go puts before protobuf, so Go itself cannot enqueue one.

`FINDINGS` lists the defects of the format that the engine cannot prevent."""

from __future__ import annotations

import binascii
import json
import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from engine import validate
from engine.errors import EPOCH, Malformed, ScriptFault, UnsupportedFeature
from engine.models.foreign.foreign import Foreign, pack
from engine.models.model import Finding
from engine.ops.base import Call, Operation
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Enqueue, Lease, Options
from engine.ops.workers import AcquireLock, ExtendLock, ReleaseLock
from engine.serializers import RAW

#: The words on the wire, and the priorities as which they are read.
PRIORITIES = {"high": 8, "normal": 5, "low": 2}
#: The routing keys that Go accepts.
_ROUTE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PROTO = b'"proto:'
_CRON = "cron:"
#: The one header that its jobs have a member for.
DESCRIPTION = "description"
#: Go escapes these in texts, so that JSON may stand in HTML.
_HTML = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_SPACE = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder()


class BananasModel(Foreign):
    """The mapping for one keyspace. `settings`: adopt_after_ms, seconds to live of completed and dead jobs
    and of the results of both, and the timeout of a run in ms."""

    name = "bananas"
    OPTIONS = frozenset({"delay_ms", "run_at_ms", "priority", "attempts", "route", "serializer", "headers"})
    FINDINGS = (
        Finding(
            "stranded-in-processing",
            ("J4", "J13"),
            "A foreign worker that crashes, stops or reaches its timeout leaves its job in "
            "queue:processing, where it looks "
            "like a running job. With adopt_after_ms such entries come back after that time; if a "
            "foreign worker still "
            "runs one, it then runs twice at once.",
        ),
        Finding(
            "foreign-promotion-doubles",
            ("J1", "J6"),
            "Foreign schedulers do not check whether they were the one that removed a job from "
            "queue:scheduled, so two of "
            "them push it to its list twice, and write the copy over it that they have read. The "
            "engine drops such an entry "
            "of a job that one of its workers has completed, for 20 s also where the old copy says "
            "that it is pending; a "
            "foreign worker runs it again. While a foreign worker runs the first entry the engine "
            "runs the second, because an "
            "entry in queue:processing may be that of a dead worker.",
        ),
        Finding(
            "foreign-ends-unfenced",
            ("J2", "J3", "J6"),
            "A foreign worker has no fence, and completes or fails a job without checking whether it "
            "still holds it, so it can "
            "overwrite the result of the engine's worker.",
        ),
        Finding(
            "cron-without-id",
            ("J4",),
            "Foreign schedulers write all their jobs to one key: of two that wait at once the earlier "
            "one is lost before it "
            "is seen.",
        ),
        Finding(
            "whole-seconds",
            (),
            "queue:scheduled has whole seconds: a delayed job may start up to a second late.",
        ),
        Finding("pause-is-ours", (), "The format has no pauses: foreign workers go on."),
        Finding(
            "routes-are-not-listed",
            (),
            "No key lists the routing keys: jobs with one that the engine has never used are not "
            "counted or listed.",
        ),
    )

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. A lock that is called `cron:` and the name of a schedule is
        the one that foreign schedulers take."""
        if isinstance(operation, AcquireLock | ExtendLock | ReleaseLock) and operation.name.startswith(_CRON):
            return self._cron_lock(operation)
        return super().call(operation)

    def _cron_lock(self, operation: AcquireLock | ExtendLock | ReleaseLock) -> Call[Any]:
        kind = "cron:lock" if self.layout == "document" else "schedule_lock"
        lock = f"{self.keys.wire}{kind}:{operation.name.removeprefix(_CRON)}"
        action = (
            "release"
            if isinstance(operation, ReleaseLock)
            else "extend"
            if isinstance(operation, ExtendLock)
            else "acquire"
        )
        # Slots without a field in the operation do not matter for its action.
        given: dict[str, Any] = {
            slot: 0 for slot in ("counter", "ttl_ms", "not_after_ms") if not hasattr(operation, slot)
        }
        named = {"lock": lock, "kept": self.keys.lock(operation.name), "op": self.keys.op(operation.token)}
        return self.bound(operation, "cron_lock", **named, action=action, **given)

    def new_id(self) -> str:
        """A new id for a job without one."""
        return str(uuid.uuid4())

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option that the format cannot hold, and Malformed for an invalid
        route or payload."""
        super().check(id, name, payload, options)
        if options.serializer not in ("", RAW):
            raise UnsupportedFeature(
                f"bananas has no serializer {options.serializer}: its jobs have no room for the name"
            )
        if any(name != DESCRIPTION for name, _ in options.headers):
            raise UnsupportedFeature(
                f"bananas has no headers but {DESCRIPTION}: its jobs have no room for others"
            )
        if options.route and not _ROUTE.fullmatch(options.route):
            raise Malformed("route", options.route, "1 to 64 letters, digits, _ and -")
        if not options.serializer and payload.startswith(_PROTO):
            raise Malformed(
                "payload", payload[:20], "no text that begins with proto:, which says that bytes follow"
            )

    def encode(self, job: Enqueue) -> bytes:
        """Name, description and payload as members of the object, then priority, routing key and
        max_retries."""
        options, payload = job.options, job.payload
        if options.serializer == RAW:
            payload = _PROTO + binascii.b2a_base64(payload, newline=False) + b'"'
        description = dict(options.headers).get(DESCRIPTION, "")
        described = f'"description":{_quoted(description)},' if description else ""
        members = f'"name":{_quoted(job.name)},{described}"payload":'.encode() + payload
        return pack(members, _word(options.priority), options.route or "default", options.attempts)

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """Decode a job from its JSON, whichever program wrote it. Raises ScriptFault."""
        try:
            text = cast("bytes", raw).decode(errors="surrogateescape")
            spans, read = _members(text)
            name, retries = read["name"], read.get("max_retries") or 0
            priority = PRIORITIES.get(str(read.get("priority")), PRIORITIES["normal"])
            route = str(read.get("routing_key") or "default")
            first, last = spans.get("payload", (0, 0))
            payload = text[first:last].encode(errors="surrogateescape") or b"null"
            if not isinstance(name, str):
                raise TypeError("its name is no text")
            description = read.get("description")
            timeout_ms = int((self.settings.split() or ["0"])[-1])
            serializer = ""
            if payload.startswith(_PROTO):
                with suppress(binascii.Error):
                    # A text that is no base64 only looks like bytes, and stays a text.
                    payload, serializer = (
                        binascii.a2b_base64(payload[len(_PROTO) : -1], strict_mode=True),
                        RAW,
                    )
            options = Options(
                priority=priority,
                attempts=min(max(int(retries), 1), validate.ATTEMPTS_MAX),
                backoff="exponential",
                backoff_ms=2000,
                backoff_max_ms=validate.DURATION_MS_MAX,
                jitter=0.0,
                route="" if route == "default" else route,
                serializer=serializer,
                timeout_ms=timeout_ms,
                headers=((DESCRIPTION, description),) if isinstance(description, str) and description else (),
            )
            times = (_time_ms(read.get("created_at")), _time_ms(read.get("scheduled_for")))
            return LeasedJob(lease, deadline_ms, name, name, name, payload, options, *times, *counters)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise ScriptFault(f"job {lease.job}: it cannot be read ({error})") from error


def updated_ms(raw: bytes) -> int:
    """When the program that wrote a job changed it last; 0 where it does not say so."""
    try:
        return _time_ms(_members(raw.decode(errors="surrogateescape"))[1].get("updated_at"))
    except (ValueError, IndexError, RecursionError):
        return 0


def _word(priority: int) -> str:
    return "low" if priority <= 3 else "normal" if priority <= 6 else "high"


def _quoted(text: str) -> str:
    """A JSON text as Go writes it."""
    return json.dumps(text, ensure_ascii=False).translate(_HTML)


def _members(text: str) -> tuple[dict[str, tuple[int, int]], dict[str, Any]]:
    """The positions of an object's members in its text, and their values; of two members with one name the
    last one counts."""
    spans: dict[str, tuple[int, int]] = {}
    read: dict[str, Any] = {}
    at = _past(text, 0, "{")
    if text.startswith("}", at):
        return spans, read
    while True:
        name, at = _decoder.raw_decode(text, at)
        first = _past(text, at, ":")
        read[name], last = _decoder.raw_decode(text, first)
        spans[name] = (first, last)
        at = _past(text, last, "")
        if text.startswith("}", at):
            return spans, read
        at = _past(text, at, ",")


def _past(text: str, at: int, mark: str, trim: bool = True) -> int:
    """The position behind a mark, after spaces before it and, with `trim`, behind it."""
    found = _SPACE.match(text, at)
    at = found.end() if found else at
    if not text.startswith(mark, at):
        raise json.JSONDecodeError(f"{mark} is missing", text, at)
    at += len(mark)
    found = _SPACE.match(text, at) if trim else None
    return found.end() if found else at


def _time_ms(value: object) -> int:
    """A time in ms since 1970; 0 for any other value, and for the year 1, which is Go's zero time."""
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else EPOCH
        return max(0, int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0
