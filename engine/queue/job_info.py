"""The description of a job for monitoring: its state, its envelope and the record of its runs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from engine import validate
from engine.errors import Malformed, ScriptFault
from engine.models.model import Model
from engine.ops.base import whole
from engine.ops.jobs import Lease, Options
from engine.ops.looks import Explained, Looked
from engine.options import PLAIN
from engine.sayable import utf8
from engine.serializers import BUILT_IN, Serializers, UnreadablePayload

#: `stuck`: in hand, and the lease has ended, so a sweep is about to take it away. `finished`: for as long as its tombstone or its
#: entry among the last finished ones is kept; so are `cancelled`, `discarded`
#: and the other ends. `blocked`: it waits for other jobs.
Ended = Literal["finished", "cancelled", "discarded", "skipped", "rerouted", "expired"]
JobState = Literal["waiting", "blocked", "delayed", "active", "stuck", "dead", "gone"] | Ended
_ENDED: tuple[Ended, ...] = get_args(Ended)
_OPEN: tuple[JobState, ...] = ("waiting", "blocked", "delayed", "dead", "gone")
_ERRORS_KEPT = 10


@dataclass(frozen=True, slots=True)
class JobError:
    """A run that came to nothing: when (ms, server time), under which fence, whether it `failed` or its worker was `lost`, the
    error, and the end of its stack trace ('' where there is none)."""

    at_ms: int
    fence: int
    kind: str
    error: str
    trace: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as it was at one instant. Times are ms of the server's clock since 1970, 0 where there is none.

    Of a job that has ended, Lanes keeps only `id`, `state`, `fence` and `ended_ms`; the other formats keep the job. `unreadable`
    says why a corrupt one could not be read. `envelope`: the stored bytes. `errors` are the last ten runs that came to
    nothing, the oldest first.
    """

    id: str
    state: JobState
    fence: int = 0
    name: str = ""
    payload_bytes: bytes = b""
    options: Options = PLAIN
    enqueued_ms: int = 0
    due_ms: int = 0
    lease_end_ms: int = 0
    ended_ms: int = 0
    claims: int = 0
    failures: int = 0
    crashes: int = 0
    owner: str = ""
    last_error: str = ""
    errors: tuple[JobError, ...] = ()
    unreadable: str = ""
    envelope: bytes = b""
    serializers: Serializers = field(default=BUILT_IN, repr=False, compare=False)

    @property
    def payload(self) -> Any:
        """What was enqueued, as a handler of this queue reads it; an UnreadablePayload that says why where it cannot be read."""
        if self.unreadable:
            return UnreadablePayload(self.unreadable, self.envelope)
        if not self.name and not self.payload_bytes:
            return UnreadablePayload(f"it is not kept of a job that is {self.state}", b"")
        return self.serializers.look(self.options.serializer, self.payload_bytes)

    @property
    def key(self) -> str:
        """Its tenant or limit key, '' = none."""
        return self.options.key

    @property
    def priority(self) -> int:
        """1 to 10."""
        return self.options.priority

    @property
    def headers(self) -> dict[str, str]:
        """What the producer gave as headers."""
        return dict(self.options.headers)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of a state: those among `looked` places that are meant. `next` is the `offset` of the next page; None: this was
    the last one. `srv_us` is the server's time."""

    srv_us: int
    jobs: tuple[JobInfo, ...]
    looked: int
    next: int | None


def state_of(looked: Looked | Explained, srv_us: int) -> JobState:
    """The state, with `stuck` apart from `active`. Raises ScriptFault for one that is not known."""
    active: JobState = "stuck" if looked.at_ms * 1000 < srv_us else "active"
    known: dict[str, JobState] = {"active": active}
    known.update((state, state) for state in (*_ENDED, *_OPEN))
    if looked.state not in known:
        raise ScriptFault(f"inspect: a job in the state {looked.state}")
    return known[looked.state]


def payload_members(payload: Any, data: bytes) -> dict[str, Any]:
    """A payload for an answer in JSON: `payload` where JSON can say it, else its bytes as `payload_base64`; where nobody here can
    read it, `payload_unreadable` says why."""
    in_base64 = {"payload_base64": base64.b64encode(data).decode()}
    if isinstance(payload, UnreadablePayload):
        return {**(in_base64 if data else {}), "payload_unreadable": payload.reason}
    try:
        validate.json_bytes("payload", payload, validate.PAYLOAD_BYTES_LIMIT)
    except Malformed:
        return in_base64
    return {"payload": payload}


def job_info(model: Model, serializers: Serializers, job: str, looked: Looked, srv_us: int) -> JobInfo:
    """Build the description of a job that exists; `serializers` are those of its queue."""
    state, unnamed = state_of(looked, srv_us), ""
    try:
        model.names.known_id(job)
    except Malformed as malformed:
        unnamed = str(malformed)
        # As text that every face can show.
        job = job.encode(errors="surrogateescape").decode(errors="backslashreplace")
    # Lanes keeps no more of an ended job than its end; the other formats keep the job itself for a while.
    if state in _ENDED and not looked.envelope:
        return JobInfo(job, state, looked.fence, ended_ms=looked.at_ms)
    run = looked.run
    claims, failures, crashes = (whole(run.get(name, b"0")) for name in ("claims", "failures", "crashes"))
    common: dict[str, Any] = {
        "lease_end_ms": looked.at_ms if state in ("active", "stuck") else 0,
        "ended_ms": looked.at_ms if state in ("dead", *_ENDED) else 0,
        "claims": claims,
        "failures": failures,
        "crashes": crashes,
        "owner": _text(run.get("owner", b"")) if state in ("active", "stuck") else "",
        "last_error": _text(run.get("error", b"")),
        "errors": _errors(run),
        "serializers": serializers,
    }
    if unnamed:
        return JobInfo(job, state, looked.fence, unreadable=unnamed, envelope=_bytes(looked.envelope), **common)
    try:
        found = model.decode(looked.envelope, Lease(job, looked.fence, ""), 0, (claims, failures, crashes))
    except ScriptFault as fault:
        return JobInfo(job, state, looked.fence, unreadable=_said(str(fault)), envelope=_bytes(looked.envelope), **common)
    due_ms = looked.at_ms if state == "delayed" else found.due_ms
    place = {"name": found.name, "payload_bytes": found.payload, "options": found.options, "enqueued_ms": found.enqueued_ms}
    return JobInfo(job, state, looked.fence, due_ms=due_ms, envelope=_bytes(looked.envelope), **place, **common)


def _errors(run: dict[str, bytes]) -> tuple[JobError, ...]:
    count = whole(run.get("errors", b"0"))
    entries: list[JobError] = []
    for number in range(max(0, count - _ERRORS_KEPT), count):
        words, _, trace = _text(run.get(f"e{number % _ERRORS_KEPT}", b"")).partition("\0")
        at_ms, fence, kind, *error = [*words.split(" ", 3), "", "", ""]
        if at_ms:
            entries.append(JobError(whole(at_ms), whole(fence), kind, error[0], trace))
    return tuple(entries)


def _bytes(envelope: object) -> bytes:
    """What is stored of a job in one piece, also where its format has fields."""
    if isinstance(envelope, bytes):
        return envelope
    return b"\n".join(part for part in cast("Sequence[object]", envelope) if isinstance(part, bytes))


def _said(text: str) -> str:
    return utf8(text).decode()


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
