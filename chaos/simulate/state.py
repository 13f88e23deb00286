"""The raw keys of a queue as values: what `READ_STATE` read, opened only where it differs from the state before."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.models import envelope

#: Attempts, back-off, crashes_max, backoff_ms and timeout_ms, and the lengths of key, name, unique key.
_FIXED = struct.Struct(">HBB8xBBB")
#: Flags of an envelope: one with a due time, with settings, of a job that goes on without a parent that is lost, that costs more
#: than one place, with an enqueue nonce, and with numbers of full width.
_DELAYED = 2
_SETTINGS = 4
IGNORES = 16
_COST = 32
_NONCE = 64
_WIDE = 128
#: The outcome of a tombstone that a cancel has left.
CANCELLED = 7
#: And that of a job that nobody has started in time.
EXPIRED = 8


class Envelope(NamedTuple):
    """What `job:<id>` holds. `kind`: J a job, T a tombstone, R what an enqueue has left that another job turned away
    or that lacked a parent, ? unreadable. `token` and `outcome`: fence and nonce of a tombstone, and how the job ended."""

    kind: str
    nonce: bytes
    class_name: str = ""
    lane: str = ""
    sequence: int = 0
    priority: int = 0
    lifo: bool = False
    attempts: int = 0
    crashes_max: int = 0
    token: str = ""
    unique: str = ""
    flags: int = 0
    outcome: int = 0
    enqueued_ms: int = 0
    cost: int = 1


class Run(NamedTuple):
    """What `run:<id>` holds; `token` is empty where no lease lives."""

    fence: int
    token: str
    ended: str
    outcome: str
    claims: int
    failures: int
    crashes: int
    marked: str
    renewal: int
    limits: tuple[str, ...]
    requeued_ms: int = 0


NO_RUN = Run(0, "", "", "", 0, 0, 0, "", 0, ())


_TABLES = frozenset({"sweep", "stats", "classes", "limits", "paused", "routed", "settings", "retention", "connections"})


class QueueKeys(Protocol):
    """The engine's own keys of a queue, whichever the model."""

    def zset(self, name: str) -> dict[str, float]:
        """Members with their scores, in order."""
        ...

    def table(self, name: str) -> dict[str, str]:
        """Fields of a hash."""
        ...

    def run(self, job: str) -> Any:
        """The mutable fields of a job; among them `token` and `renewal`."""
        ...


@dataclass(slots=True)
class State:
    """One instant of a queue. `changed`: names of the keys that differ from the state before."""

    raw: dict[str, Any]
    views: dict[str, Any]
    changed: list[str]
    expires_ms: int
    places: dict[str, list[str]] = field(default_factory=dict)
    #: What was worked out from this state, by whoever did.
    memo: dict[Any, Any] = field(default_factory=dict)

    def job(self, job: str) -> Envelope | None:
        """The envelope or tombstone under an id."""
        return self.views.get("job:" + job)

    def run(self, job: str) -> Run:
        """The mutable fields of a job."""
        return self.views.get("run:" + job, NO_RUN)

    def zset(self, name: str) -> dict[str, float]:
        """Members with their scores, in order."""
        return self.views.get(name, {})

    def table(self, name: str) -> dict[str, str]:
        """Fields of a hash."""
        return self.views.get(name, {})

    def members(self, name: str) -> tuple[str, ...]:
        """Members of a set, in order, or of a list."""
        return self.views.get(name, ())

    def swept(self, incarnation: str) -> int:
        """The last sweep of an incarnation that is known to have moved something: a copy of it, or an older one, does nothing."""
        return int(self.views.get("swept:" + incarnation, "0").split()[0])

    def number(self, name: str) -> int:
        """A length or a number."""
        return self.views.get(name, 0)

    def names(self, kind: str) -> list[str]:
        """Names of the keys of a kind: `lane:` for those of lanes."""
        kinds = self.memo.get("kinds")
        if kinds is None:
            kinds = self.memo["kinds"] = {}
            for name in self.views:
                kinds.setdefault(name[: name.find(":") + 1], []).append(name)
        return kinds.get(kind, [])

    def jobs(self) -> list[tuple[str, Envelope]]:
        """Ids and envelopes."""
        return [(name[4:], self.views[name]) for name in self.names("job:")]


EMPTY = State({}, {}, [], 0)


def open_state(reply: Any, before: State) -> State:
    """The state that the script has read."""
    names, values, expires_ms = reply
    old_raw, old_views = before.raw, before.views
    raw: dict[str, Any] = {}
    views: dict[str, Any] = {}
    changed: list[str] = []
    for coded, value in zip(names, values, strict=True):
        name = coded.decode()
        raw[name] = value
        if name in old_raw and old_raw[name] == value:
            views[name] = old_views[name]
        else:
            views[name] = _open(name, value)
            changed.append(name)
    if len(raw) - len(old_raw) != sum(name not in old_raw for name in changed):
        changed.extend(name for name in old_raw if name not in raw)
    if not changed:
        return State(before.raw, before.views, changed, expires_ms, before.places)
    state = State(raw, views, changed, expires_ms)
    state.places = _places(views)
    return state


def _places(views: dict[str, Any]) -> dict[str, list[str]]:
    """In which structures each id stands."""
    places: dict[str, list[str]] = {}
    for name, view in views.items():
        if name.startswith("lane:") or name in ("active", "dead", "blocked"):
            for job in view:
                places.setdefault(job, []).append(name)
        elif name == "due":
            for member in view:
                places.setdefault(member[10:], []).append(name)
    return places


def _open(name: str, value: Any) -> Any:
    kind = name.split(":", 1)[0]
    if kind == "job":
        return _envelope(value)
    if kind == "run":
        return _run(value)
    if kind in ("claim", "swept", "op", "unique", "dedup", "seq", "worker", "leader", "told"):
        return value.decode(errors="replace")
    if kind == "result":
        return value[0].decode(), value[1]
    if kind in ("needs", "feeds", "feeding", "heirs", "lacks", "lost", "era"):
        return tuple(member.decode() for member in value)
    if kind in _TABLES or name.startswith(("cron:", "took:", "lock:")) or name == "parked":
        words = [word.decode(errors="replace") for word in value]
        return dict(zip(words[::2], words[1::2], strict=True))
    if isinstance(value, list):
        return {value[at].decode(): float(value[at + 1]) for at in range(0, len(value), 2)}
    return value


def _envelope(raw: bytes) -> Envelope:
    first, flags = (*raw[:2], 0, 0)[:2]
    if first == 160:
        return _tombstone(raw)
    plain = first in range(161, 171)
    if not plain and first not in range(177, 187):
        return Envelope("?", b"")
    at, flags = (1, 0) if plain else (2, flags)
    numbers = int.from_bytes(raw[at : at + 9], "big")
    sequence, enqueued_ms = numbers >> 42, numbers & (1 << 42) - 1
    if flags & _WIDE:
        sequence, enqueued_ms = int.from_bytes(raw[2:8], "big"), int.from_bytes(raw[8:14], "big")
    at += (18 if flags & _WIDE else 9) + (6 if flags & _DELAYED else 0)
    nonce = raw[at : at + 8] if flags & _NONCE else b""
    at += len(nonce)
    attempts, crashes_max, lengths = 3, 3, [0, 0, 0]
    if flags & _SETTINGS and len(raw) >= at + _FIXED.size:
        attempts, _, crashes_max, *lengths = _FIXED.unpack_from(raw, at)
        at += _FIXED.size
    lengths.insert(0, raw[at] if len(raw) > at else 0)
    at += 1
    texts: list[str] = []
    for length in lengths:
        texts.append(raw[at : at + length].decode(errors="replace"))
        at += length
    if len(raw) < at:
        return Envelope("?", b"")
    name, key, _, unique = texts
    lane = f"{name}/{key}" if key else name
    cost = 1
    if flags & _COST:
        cost = json.loads(raw[at + 2 : at + 2 + int.from_bytes(raw[at : at + 2], "big")])["cost"]
    return Envelope(
        "J",
        nonce,
        name,
        lane,
        sequence,
        first % 16,
        bool(flags & 1),
        attempts,
        crashes_max,
        unique=unique,
        flags=flags,
        enqueued_ms=enqueued_ms,
        cost=cost,
    )


def _tombstone(raw: bytes) -> Envelope:
    marks = raw[1] if len(raw) > 1 else 0
    outcome, at = marks & 15, 10 if marks & 16 else 2
    if not outcome or len(raw) < at + 7:
        return Envelope("?", b"")
    fence, last = int.from_bytes(raw[at : at + 7], "big"), raw[at + 7 :]
    text = last.decode(errors="replace") if marks & 32 else f"{last[:8].hex()}:{int.from_bytes(last[8:], 'big')}"
    return Envelope("R" if outcome in (3, 4) else "T", raw[2:at], token=f"{fence}:{text}", outcome=outcome)


def _run(raw: bytes) -> Run:
    fields = {name: value.decode(errors="replace") for name, value in envelope.read_run_fields(raw).items()}
    fence, claims, failures, crashes, renewal, requeued_ms = (
        int(fields.get(name, 0)) for name in ("fence", "claims", "failures", "crashes", "renewal", "requeued_ms")
    )
    ended, outcome, marked, limits = (fields.get(name, "") for name in ("ended", "outcome", "marked", "limits"))
    token = f"{fence}:{fields['nonce']}" if "nonce" in fields else ""
    return Run(fence, token, ended, outcome, claims, failures, crashes, marked, renewal, tuple(limits.split()), requeued_ms)
