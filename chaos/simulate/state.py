"""The raw keys of a queue as values: what `READ_STATE` read, opened only where it differs from the state before."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Enqueue nonce, `not_after_ms`, attempts, back-off, crashes_max, backoff_ms, and the lengths of class, key, name, unique key.
_FIXED = struct.Struct(">8s6sHBBIBBBB")
#: The flag of an envelope with a due time before these, and that of a job that goes on without a parent that is lost.
_DELAYED = 2
_TIMEOUT = 4
IGNORES = 16
_COST = 32
#: The outcome of a tombstone that a cancel has left.
CANCELLED = 7


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


NO_RUN = Run(0, "", "", "", 0, 0, 0, "", 0, ())


_TABLES = frozenset({"sweep", "stats", "classes", "limits", "paused", "routed", "settings", "retention"})


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
        """Members of a set, in order."""
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
    if kind in ("needs", "feeds", "feeding", "heirs"):
        return tuple(member.decode() for member in value)
    if kind in _TABLES or name.startswith(("cron:", "took:", "lock:")) or name == "parked":
        words = [word.decode(errors="replace") for word in value]
        return dict(zip(words[::2], words[1::2], strict=True))
    if isinstance(value, list):
        return {value[at].decode(): float(value[at + 1]) for at in range(0, len(value), 2)}
    return value


def _envelope(raw: bytes) -> Envelope:
    if len(raw) >= 20 and raw[:2] == b"\x01T":
        fence = int.from_bytes(raw[11:19], "big")
        nonce = raw[20 : 20 + raw[19]].decode(errors="replace")
        return Envelope("R" if raw[2] in (3, 4) else "T", raw[3:11], token=f"{fence}:{nonce}", outcome=raw[2])
    at = 22 if len(raw) > 3 and raw[3] & _DELAYED else 16
    if raw[:2] != b"\x01J" or len(raw) < at + _FIXED.size:
        return Envelope("?", b"")
    nonce, _, attempts, _, crashes_max, _, *lengths = _FIXED.unpack_from(raw, at)
    texts: list[str] = []
    at += _FIXED.size
    for length in lengths:
        texts.append(raw[at : at + length].decode(errors="replace"))
        at += length
    name, key, _, unique = texts
    lane = f"{name}/{key}" if key else name
    sequence = int.from_bytes(raw[4:10], "big")
    cost = 1
    if raw[3] & _COST:
        at += 4 if raw[3] & _TIMEOUT else 0
        cost = json.loads(raw[at + 2 : at + 2 + int.from_bytes(raw[at : at + 2], "big")])["cost"]
    return Envelope(
        "J",
        nonce,
        name,
        lane,
        sequence,
        raw[2],
        bool(raw[3] & 1),
        attempts,
        crashes_max,
        unique=unique,
        flags=raw[3],
        enqueued_ms=int.from_bytes(raw[10:16], "big"),
        cost=cost,
    )


def _run(value: list[bytes | None]) -> Run:
    fence, nonce, ended, outcome, claims, failures, crashes, marked, renewal, limits = (
        (field or b"").decode(errors="replace") for field in value
    )
    token = f"{fence}:{nonce}" if nonce else ""
    numbers = [int(number or 0) for number in (fence, claims, failures, crashes, renewal)]
    return Run(numbers[0], token, ended, outcome, numbers[1], numbers[2], numbers[3], marked, numbers[4], tuple(limits.split()))
