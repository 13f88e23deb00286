"""Bull 1.0.0: produce into, and work off, the keyspace of a live Bull queue, next to its Node clients.

A job is a hash of nine fields as Node writes them. Bull's jobs have no names: one whose name is `__default__` is what Node writes
for the same options, byte for byte, and a job of Node's has that name; any other name travels as `name` in its `opts`, which Node
passes over. Numbers are the server's (`id`). An id of one's own may be neither a number nor a key of Bull's, and only for queues
that no Node worker consumes: Node reads every id as a number.

Back-off is Bull's: `fixed`, and `exponential` with (2^n - 1) times the delay after the n-th failure, both without chance.
`delay_ms` counts from the server's time of the call, also beside `timestamp_ms`. What a handler returns is kept as it is, where
Node's own workers write an empty text for 0, false and "". The wire does not say when a job has ended: retention goes by
when it was made, and so does `clean` where Node has ended it. From 2039-09-07 on scores have no room for all bits of an id: what
Node delays may start a millisecond late.

What the engine repairs: jobs of equal due times start in the order of their ids (Bull turns them round at 4095/4096), promotion
and retry respect the pause, resume and pause keep both lists where Bull renames one over the other, and an id without a hash does
not stay in `active` for ever. What Node does all the same, and the engine cannot keep it from, are the `FINDINGS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from engine import validate
from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.models.fields import pack
from engine.models.foreign import Foreign
from engine.models.model import Finding
from engine.operations import Enqueue, Lease, LeasedJob, Options

#: The name of a job that Node has made, for Bull knows none.
UNNAMED = "__default__"
#: Waits of an exponential back-off that are told to the engine; the last one is that of all further failures.
_WAITS_MAX = 60
_FORMS_MAX = 1000
_WHOLE = re.compile(r"\s*([+-]?\d+)")
_BACKOFFS = ("fixed", "exponential")


@dataclass(frozen=True, slots=True)
class BullKeys:
    """Bull's own keys of one queue: the one place that names them in Python. `root` ends with a colon."""

    root: str

    @property
    def id(self) -> str:
        """String: the last number given to a job."""
        return f"{self.root}id"

    def job(self, id: str) -> str:
        """Hash: data and opts (JSON), progress, delay (ms), timestamp (ms since 1970), attempts, attemptsMade, stacktrace (JSON
        array of texts), returnvalue (JSON, or '')."""
        return f"{self.root}{id}"

    def lock(self, id: str) -> str:
        """String with a time to live (ms): who runs the job; for us fence and nonce with a colon between."""
        return f"{self.root}{id}:lock"

    @property
    def wait(self) -> str:
        """List: ids; put in at the left, LIFO ones at the right, taken from the right."""
        return f"{self.root}wait"

    @property
    def paused(self) -> str:
        """List: what would be in `wait` if the queue were not paused. Also a channel: `paused` and `resumed`."""
        return f"{self.root}paused"

    @property
    def meta_paused(self) -> str:
        """String `1`: the queue is paused."""
        return f"{self.root}meta-paused"

    @property
    def active(self) -> str:
        """List: ids of jobs that run; put in at the left."""
        return f"{self.root}active"

    @property
    def delayed(self) -> str:
        """Zset: id by due time (ms) times 4096 plus the id's low 12 bits. Also a channel: the score divided by 4096."""
        return f"{self.root}delayed"

    @property
    def completed(self) -> str:
        """Set: ids, without bound."""
        return f"{self.root}completed"

    @property
    def failed(self) -> str:
        """Set: ids, without bound."""
        return f"{self.root}failed"

    @property
    def jobs(self) -> str:
        """Channel: the id of a job that waits from now on."""
        return f"{self.root}jobs"


#: What an id must not be: the names of the keys above.
_RESERVED = frozenset({"id", "wait", "paused", "meta-paused", "active", "delayed", "completed", "failed", "jobs"})


FINDINGS = (
    Finding(
        "unfenced ends",
        ("J1", "J3", "J4", "J6", "J8"),
        "A Node worker ends a job without asking who holds its lock: one that has stalled completes or fails what another"
        " worker runs since. The end that the other one sends is refused, or both stand.",
    ),
    Finding(
        "pop before lock",
        ("J1", "J2", "J6"),
        "A Node worker takes a job into `active` and locks it with a second command. One that needs more than a second"
        " between the two looks like one that was lost, and its job runs elsewhere as well.",
    ),
    Finding(
        "stalled check",
        ("J1", "J6", "J8"),
        "A Node worker works through a list of active jobs that it has read before, and takes each that has no lock: also one"
        " that has failed since, so it runs before its retry is due, and while it waits.",
    ),
    Finding(
        "overwriting resume",
        ("J4", "J13"),
        "Node's resume renames `paused` over `wait`, its pause `wait` over `paused`: jobs that Node has promoted or"
        " retried during the pause are in no list afterwards, only their hashes are left.",
    ),
    Finding(
        "promotion during the pause",
        (),
        "Node puts delayed jobs that are due, and failed ones that are retried, into `wait` although the queue is paused,"
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
        "A Node worker reads every id as a number: it runs a job with another id again and again and never ends it.",
    ),
)


class BullModel(Foreign):
    """The mapping for one queue of Bull's. `settings`: the word that its jobs have as their priority, '' = none."""

    name = "bull"
    FINDINGS = FINDINGS
    OPTIONS = frozenset(
        {"delay_ms", "run_at_ms", "timestamp_ms", "lifo", "attempts", "backoff", "backoff_ms", "timeout_ms"},
    )
    poll_ms = 50

    @staticmethod
    def places(queue: str, prefix: str) -> tuple[str, str]:
        """What Bull's keys of a queue begin with, and what follows `ironclaim:` in ours."""
        return f"{prefix}:{queue}:", ""

    @property
    def wire(self) -> BullKeys:
        """The names of Bull's own keys."""
        return BullKeys(self.keys.wire)

    def new_id(self) -> str:
        """The server gives it a number."""
        return ""

    def check_id(self, value: object) -> str:
        """A caller's id. Raises Malformed for one that Bull would give, or that is a key of Bull's."""
        id = validate.job_id(value)
        if re.fullmatch(r"[0-9]+", id):
            raise Malformed("id", value, "no number: Bull gives the numbers")
        if id in _RESERVED or id.endswith(":lock") or id.startswith("ironclaim"):
            raise Malformed("id", value, "another one than the name of a key of Bull's")
        return id

    def schedule_id(self, schedule: str, moment: str) -> str:
        """A number as well: Node could not run it otherwise."""
        return ""

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for what Bull's jobs have no room for."""
        super().check(id, name, payload, options)
        if options.backoff not in _BACKOFFS:
            raise UnsupportedFeature(f"bull has no back-off {options.backoff}: its workers know {' and '.join(_BACKOFFS)}")

    def encode(self, job: Enqueue) -> bytes:
        """Data, opts, what of them follows the delay, attempts, timestamp ('' = the server's time), LIFO."""
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
            # The script writes the delay: that of a job which is due at a time follows from the server's clock.
            head = _compact(before)[:-1] + ("," if before else "") + '"delay":'
            rest = ("," if after else "") + _compact(after)[1:]
        return pack(job.payload, head, rest, options.attempts, options.timestamp_ms or "", int(options.lifo))

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from data, opts, attempts and timestamp as they stand in its hash. Raises ScriptFault for opts that Python cannot
        read."""
        try:
            data, opts, attempts, timestamp = cast("list[bytes]", raw)
            form = _forms.get((opts, attempts))
            if form is None:
                form = _form(opts, attempts)
                if len(_forms) >= _FORMS_MAX:
                    _forms.clear()
                _forms[opts, attempts] = form
            enqueued_ms = max(0, min(_whole(timestamp, 0), validate.INSTANT_MS_MAX))
        except (ValueError, TypeError, RecursionError) as error:
            raise ScriptFault(f"job {lease.job} of Bull's: {error}") from error
        name, options = form
        claims, failures, crashes = counters
        # Bull goes on counting when a job whose runs are used up is retried by hand: one more is allowed.
        failures = min(failures, options.attempts - 1)
        return LeasedJob(lease, deadline_ms, name, name, name, data, options, enqueued_ms, 0, claims, failures, crashes)


#: By opts and attempts: most jobs of a queue have them in common.
_forms: dict[tuple[bytes, bytes], tuple[str, Options]] = {}


def _form(opts: bytes, attempts: bytes) -> tuple[str, Options]:
    """The name and the options that Bull's two fields say."""
    found: Any = json.loads(opts)
    # Node reads null, a number or an array there as options of which none is set.
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
        # Node runs a job with a back-off that it does not know again at once.
        return [0]
    return [min((2**n - 1) * wait_ms, validate.DURATION_MS_MAX) for n in range(1, min(max(attempts, 2), _WAITS_MAX))]


def _ms(value: Any) -> int:
    """A length as Node reads one; 0 for what is none."""
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0
    return int(min(max(number, 0.0), float(validate.BACKOFF_MS_MAX))) if number == number else 0


def _whole(text: bytes, otherwise: int) -> int:
    """The whole number that a field begins with."""
    found = _WHOLE.match(text[:40].decode(errors="replace"))
    return int(found.group(1)) if found else otherwise


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
