"""Bull 1.0.0: enqueue and process jobs in the keyspace of a live Bull queue, next to its Node clients.

A job is a hash of nine fields as Node writes them. Bull's jobs have no names: a job with the name
`__default__` is stored byte for byte as Node does for the same options. A job of Node has that name. Any
other name is stored as `name` in its `opts`, which Node ignores. The server counts ids (`id`). A caller's own
id must be neither a number nor a key of Bull, and is only for queues that no Node worker consumes: Node reads
every id as a number.

Back-off is Bull's: `fixed`, and `exponential` with (2^n - 1) times the delay after the n-th failure, both
without jitter. `delay_ms` counts from the server's time of the call, also beside `timestamp_ms`. A handler's
result is stored unchanged, while Node's own workers write an empty text for 0, false and "". The format does
not record when a job ended: retention uses the time when it was made, and so does `clean` for jobs that Node
has ended. From 2039-09-07 on scores have no room for all bits of an id: jobs that Node delays may start a
millisecond late.

What the engine repairs: jobs of equal due times start in the order of their ids (Bull reverses them at
4095/4096), promotion and retry respect the pause, resume and pause keep both lists where Bull overwrites one
with the other. An id without a hash does not stay in `active` for ever. `FINDINGS` lists the defects of
Node's clients that the engine cannot prevent."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from engine import validate
from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.models.foreign.foreign import Foreign, pack
from engine.models.model import ANY_TEXT, Finding, own_id
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Enqueue, Lease, Options

#: The name of a job that Node has made, because Bull has no names.
UNNAMED = "__default__"
#: Most waits of an exponential back-off that are listed; the last one applies to all further failures.
_WAITS_MAX = 60
_PARSED_MAX = 1000
_WHOLE = re.compile(r"\s*([+-]?\d+)")
_BACKOFFS = ("fixed", "exponential")


FINDINGS = (
    Finding(
        "unfenced ends",
        ("J1", "J3", "J4", "J6", "J8"),
        "A Node worker ends a job without checking its lock: one that has stalled completes or fails "
        "a job that another"
        " worker runs by now. The end that the other worker sends is refused, or both are stored.",
    ),
    Finding(
        "pop before lock",
        ("J1", "J2", "J6"),
        "A Node worker moves a job to `active` and locks it with a second command. If it needs more "
        "than a second between"
        " the two, the job counts as lost and runs elsewhere as well.",
    ),
    Finding(
        "stalled check",
        ("J1", "J6", "J7:run too often", "J8"),
        "A Node worker goes through a list of active jobs that it has read before, and takes each "
        "that has no lock: also one"
        " that has failed since, which so runs before its retry is due, and while it waits; or once more "
        "than its attempts allow.",
    ),
    Finding(
        "overwriting resume",
        ("J4", "J13"),
        "Node's resume renames `paused` over `wait`, its pause `wait` over `paused`: jobs that Node "
        "has promoted or"
        " retried during the pause are in no list afterwards, only their hashes are left.",
    ),
    Finding(
        "promotion during the pause",
        (),
        "Node puts delayed jobs that are due, and failed ones that are retried, into `wait` although "
        "the queue is paused,"
        " and idle Node workers run them.",
    ),
    Finding(
        "equal due times",
        ("J9",),
        "Node promotes jobs of one due time by the low 12 bits of their ids: 4096 before 4095.",
    ),
    Finding(
        "clocks of clients",
        ("J8",),
        "Node compares due times with its own clock: one that is fast starts jobs early.",
    ),
    Finding(
        "ids that are no numbers",
        ("J6", "J13"),
        "A Node worker reads every id as a number: it runs a job with another id again and again and "
        "never ends it.",
    ),
)


#: What stands behind the root in Bull's own keys, and behind an id in the key of its lock: no end of an id.
_BULL_KEYS = frozenset(
    {"id", "wait", "paused", "meta-paused", "active", "delayed", "completed", "failed", "jobs", "lock"}
)
#: What the engine's own keys begin with, behind the root of the format.
_OWN = "ironclaim"
_NUMBER = re.compile(r"[0-9]+")


def _bull_queue(value: object) -> str:
    name = validate.any_text("queue", value)
    if _OWN in name.split(":"):
        raise Malformed(
            "queue", name, f"without a part {_OWN} between its colons, where the engine has keys of its own"
        )
    return name


def _bull_id(value: object) -> str:
    """Jobs lie directly below the name of their queue: `a` has the job `b:7` where `a:b` has the job 7."""
    id = own_id(value)
    if _NUMBER.fullmatch(id):
        raise Malformed("id", value, "no number: Bull gives the numbers")
    end = id.rpartition(":")[2]
    if end in _BULL_KEYS or id.startswith(_OWN):
        raise Malformed("id", value, "another one than the name of a key of Bull's")
    if _NUMBER.fullmatch(end) or _OWN in id.split(":"):
        raise Malformed(
            "id", value, "another one: what stands behind its colon makes it a key of another queue"
        )
    return id


BULL = replace(ANY_TEXT, queue=_bull_queue, job_id=_bull_id)


class BullModel(Foreign):
    """The mapping for one queue of Bull. `settings`: the `priority` that its jobs have in their opts, '' =
    none."""

    name = "bull"
    names = BULL
    FINDINGS = FINDINGS
    OPTIONS = frozenset(
        {"delay_ms", "run_at_ms", "timestamp_ms", "lifo", "attempts", "backoff", "backoff_ms", "timeout_ms"},
    )
    poll_ms = 50

    @staticmethod
    def places(queue: str, prefix: str) -> tuple[str, str]:
        """The prefix of Bull's keys of a queue, and the text that follows `ironclaim:` in the engine's own
        keys."""
        return f"{prefix}:{queue}:", ""

    def new_id(self) -> str:
        """'': the server assigns a number."""
        return ""

    def schedule_id(self, schedule: str, moment: str) -> str:
        """'': the server assigns a number here as well, because Node could not run any other id."""
        return ""

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for options that Bull's jobs cannot hold."""
        super().check(id, name, payload, options)
        if options.backoff not in _BACKOFFS:
            raise UnsupportedFeature(
                f"bull has no back-off {options.backoff}: its workers know {' and '.join(_BACKOFFS)}"
            )

    def encode(self, job: Enqueue) -> bytes:
        """Data, opts, the part of opts that follows the delay, attempts, timestamp ('' = the server's time),
        LIFO."""
        options = job.options
        before: dict[str, Any] = {"lifo": True} if options.lifo else {}
        after: dict[str, Any] = {}
        if options.attempts > 1:
            after["attempts"] = options.attempts
            if options.backoff_ms:
                after["backoff"] = {"type": options.backoff, "delay": options.backoff_ms}
        if options.timeout_ms:
            after["timeout"] = options.timeout_ms
        if options.timestamp_ms:
            after["timestamp"] = options.timestamp_ms
        if self.settings:
            after["priority"] = self.settings
        if job.name != UNNAMED:
            after["name"] = job.name
        head, rest = _compact(before | after), ""
        if options.wait_ms:
            # The script inserts the delay, because for a job with a due time it depends on the server's
            # clock.
            head = _compact(before)[:-1] + ("," if before else "") + '"delay":'
            rest = ("," if after else "") + _compact(after)[1:]
        return pack(job.payload, head, rest, options.attempts, options.timestamp_ms or "", int(options.lifo))

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """Decode a job from data, opts, attempts and timestamp of its hash. Raises ScriptFault for opts that
        Python cannot read."""
        try:
            data, opts, attempts, timestamp = cast("list[bytes]", raw)
            parsed = _parsed.get((opts, attempts))
            if parsed is None:
                parsed = _parse_options(opts, attempts)
                if len(_parsed) >= _PARSED_MAX:
                    _parsed.clear()
                _parsed[opts, attempts] = parsed
            enqueued_ms = max(0, min(_whole(timestamp, 0), validate.INSTANT_MS_MAX))
        except (ValueError, TypeError, RecursionError) as error:
            raise ScriptFault(f"job {lease.job} of Bull's: {error}") from error
        name, options = parsed
        claims, failures, crashes = counters
        # Bull keeps counting when an admin action retries a job whose runs are used up: one more run is
        # allowed.
        failures = min(failures, options.attempts - 1)
        return LeasedJob(
            lease, deadline_ms, name, name, name, data, options, enqueued_ms, 0, claims, failures, crashes
        )


#: Cached by opts and attempts, because most jobs of a queue share them.
_parsed: dict[tuple[bytes, bytes], tuple[str, Options]] = {}


def _parse_options(opts: bytes, attempts: bytes) -> tuple[str, Options]:
    """The name and the options that Bull's two fields contain."""
    found: Any = json.loads(opts)
    # Node treats null, a number or an array here as no options.
    known = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    name = known.get("name")
    most = max(1, min(_whole(attempts, 1), 2**31 - 1))
    waits = _waits(known.get("backoff"), most)
    options = Options(
        lifo=bool(known.get("lifo")),
        attempts=most,
        backoff="custom" if len(waits) > 1 else "fixed",
        backoff_ms=waits[0],
        backoff_delays_ms=tuple(waits) if len(waits) > 1 else (),
        timeout_ms=_ms(known.get("timeout")),
    )
    return name if isinstance(name, str) and name else UNNAMED, options


def _waits(backoff: Any, attempts: int) -> Sequence[int]:
    """The wait after each failure, the last one for all further ones."""
    if not isinstance(backoff, dict):
        return [_ms(backoff)]
    given = cast("dict[str, Any]", backoff)
    wait_ms = _ms(given.get("delay"))
    if given.get("type") == "fixed":
        return [wait_ms]
    if given.get("type") != "exponential" or not wait_ms:
        # Node retries a job with an unknown back-off at once.
        return [0]
    return [
        min((2**n - 1) * wait_ms, validate.DURATION_MS_MAX)
        for n in range(1, min(max(attempts, 2), _WAITS_MAX))
    ]


def _ms(value: Any) -> int:
    """A duration in ms as Node reads it; 0 for any other value."""
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0
    return int(min(max(number, 0.0), float(validate.BACKOFF_MS_MAX))) if number == number else 0


def _whole(text: bytes, otherwise: int) -> int:
    """The whole number at the start of a field, else `otherwise`."""
    found = _WHOLE.match(text[:40].decode(errors="replace"))
    return int(found.group(1)) if found else otherwise


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
