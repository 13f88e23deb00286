"""Progress of jobs, their results, and the events of a queue, each with the operation that waits for it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast, get_args

from engine.immutable import immutable
from engine.wire.operations.claims import Marked, marked
from engine.wire.operations.declaration import Declaration
from engine.wire.operations.jobs import LEASE_SLOTS, Lease
from engine.wire.operations.raw_replies import one_of, server_us, text, whole


@immutable
class NoteProgress(
    Declaration,
    script="progress",
    slots=LEASE_SLOTS,
):
    """Note how far a running job has come: `body` are the fields of a JSON object and its closing brace. `count` counts what the
    worker has noted: an older copy changes nothing (rule 7)."""

    lease: Lease
    count: int
    body: bytes

    def parse(self, raw: Any, decode: object) -> Marked:
        """The raw reply as a value."""
        return marked(raw)


@immutable
class ReadProgress(Declaration, slots={"id": "job"}):
    """Read how far a job has come."""

    job: str

    def parse(self, raw: Any, decode: object) -> bytes | None:
        """The HGET reply, or that of a script; None where nothing is noted."""
        if isinstance(raw, list):
            raw = cast("list[Any]", raw)[1] or None
        if raw is None or isinstance(raw, bytes):
            return raw
        raise TypeError("neither a text nor nothing")


@immutable
class Look(Declaration, script="look", label="look at a result", slots={"id": "job"}):
    """Look what became of a job. With a `token`, one that has not ended is waited for: its end is told to that token's stream."""

    job: str
    token: str = ""

    def parse(self, raw: Any, decode: object) -> Seen:
        """The raw reply as a value."""
        state, fence, ended_ms, record, error = raw[1:6]
        return Seen(
            server_us(raw), one_of(state, _SEEN_STATES), whole(fence), whole(ended_ms), record, error.decode(errors="replace")
        )


SeenState = Literal["pending", "finished", "cancelled", "discarded", "expired", "rejected", "dead", "kept", "gone"]
_SEEN_STATES = get_args(SeenState)


@immutable
class Seen:
    """What became of a job: `state` is pending, finished, cancelled, discarded, expired, rejected (turned away by another job),
    dead, kept (nothing is left but its record) or gone; `ended_ms` is 0 where the server does not know it any more. `record` is
    its result as it is stored, empty where there is none; `error` is the last one of a dead job."""

    srv_us: int
    state: SeenState
    fence: int
    ended_ms: int
    record: bytes
    error: str


@immutable
class AwaitEnds(Declaration, label="wait for a result"):
    """Block until something is told to a token's stream after entry `after`; at most `block_ms`."""

    token: str
    after: str
    block_ms: int

    def parse(self, raw: Any, decode: object) -> EndedJobs:
        """The jobs of an XREAD reply."""
        entries: list[Any] = raw[0][1] if raw else []
        jobs = [text(fields[1]) for _, fields in entries]
        return EndedJobs(tuple(filter(None, jobs)), entries[-1][0].decode() if entries else self.after)


@immutable
class EndedJobs:
    """Ids of jobs that have ended, and the entry after which to listen next."""

    jobs: tuple[str, ...]
    after: str


@immutable
class ReadEvents(Declaration):
    """At most `limit` events after entry `after`; `block_ms`: wait so long for the first one, 0 = not at all. `$`: no event, only
    the entry that is the last one now."""

    after: str
    limit: int
    block_ms: int

    def parse(self, raw: Any, decode: object) -> EventPage:
        """The events of an XREAD reply; with `$` the last entry of an XREVRANGE reply."""
        if self.after == "$":
            return EventPage((), raw[0][0].decode() if raw else "0-0")
        events: list[Event] = []
        for at, flat in raw[0][1] if raw else ():
            found = dict(zip(flat[::2], flat[1::2], strict=True))
            words = [found.get(field, b"").decode(errors="replace") for field in (b"kind", b"job", b"name", b"detail")]
            events.append(Event(at.decode(), int(at.partition(b"-")[0]), *words))
        return EventPage(tuple(events), events[-1].id if events else self.after)


class Event(NamedTuple):
    """One thing that has happened in a queue: see `queue.events`. `id` is its place among them, `srv_ms` the server's time."""

    id: str
    srv_ms: int
    kind: str
    job: str
    name: str
    detail: str


@immutable
class EventPage:
    """Events, and the entry after which the next ones are."""

    events: tuple[Event, ...]
    after: str


ResultsOperation = NoteProgress | ReadProgress | ReadEvents | Look | AwaitEnds
ResultsReply = Seen | EndedJobs | EventPage
