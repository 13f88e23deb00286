"""Hand-written histories of channels: a `Story` that keeps what a server would hold, so that an operation needs only its instant.

Operations are told in the order of their instants. `fetch` gives what lies after the cursor, `acknowledge` moves it; a test
breaks one thing by naming it: another clock, another item, no answer.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.models.dsps import clock_after, clock_ahead, clock_distance
from tests.reports.story import END_S, SPEC, Story, ns, srv_ms

#: The life of a message and of everything else of a channel, where a test does not say.
EXPIRE_MS = 1_800_000

#: Fields of a spec that a channel run has not.
OF_JOBS = ("lease_ms", "sweep_ms", "recovery_bound_ms", "liveness_ms", "workers")

#: What a fetch may be told, and what it is where nothing is said.
OF_FETCH: dict[str, Any] = {"items": None, "waited_ms": 0, "handed": None, "returned": True}


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the server holds."""

    message: str
    clock: int


@dataclass
class Channel:
    """What the server holds of a channel: its clock, its era, its messages in order, and a cursor for each subscriber."""

    name: str
    clock: int
    fan_out: int
    expire_ms: int
    era: int = 0
    kept: list[Sent] = field(default_factory=list)
    cursors: dict[str, int] = field(default_factory=dict)
    #: Where the clock began, for the spec.
    preset: int = 0
    #: Everyone who subscribed at some time, for the spec.
    named: list[str] = field(default_factory=list)
    #: Further fields of its entry in the spec.
    more: dict[str, Any] = field(default_factory=dict)

    def unread(self, subscriber: str) -> list[Sent]:
        """What lies after the cursor of a subscriber."""
        cursor = self.cursors[subscriber]
        return [sent for sent in self.kept if 0 < clock_distance(cursor, sent.clock) <= clock_distance(cursor, self.clock)]

    def entry(self) -> dict[str, Any]:
        """Its entry in the spec."""
        names = {"name": self.name, "subscribers": self.named, "fan_out": self.fan_out}
        return {**names, "expire_ms": self.expire_ms, "preset_clock": self.preset, **self.more}


class ChannelStory(Story):
    """A run folder of a channel run that is being written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        common = {name: value for name, value in SPEC.items() if name not in OF_JOBS}
        self.spec = common | {"id": "20260101-000000-dsps-seed1", "model": "dsps", "scenario": "channels", "plan": []}
        self.cpu = {"publisher-1": 0.07}
        self.channels: dict[str, Channel] = {}

    def process(self, name: str, role: str, *, at: float = 0.0, sink: bool = True) -> None:
        """Announce a process; a subscriber has a second witness."""
        super().process(name, role, at=at, sink=sink)
        if role == "subscriber" and sink:
            self.row("manifest", "process", at, role="sink", name=name, file=f"{name}.sink.jsonl")
            self._open(f"{name}.sink", "sink", name)

    def channel(self, name: str, *, fan_out: int = 1, preset: int = 0, expire_ms: int = EXPIRE_MS, **more: Any) -> Channel:
        """A channel whose clock stands at `preset`. `more` goes into the spec."""
        made = Channel(name, preset, fan_out, expire_ms, preset=preset, more=more)
        self.channels[name] = made
        return made

    def call(self, proc: str, f: str, channel: str, at: float, *, asked: dict, told: dict, **more: Any) -> None:
        """Invoke row and completion row of any operation: what it asks for is in both, what it is told in the second alone.

        `reply=None` leaves it unanswered; `intended_ns` may be among what is asked. The server answers at the first send, or at
        `served`. More: how long it `took`, and its `sends`.
        """
        self._numbers += 1
        reply, done_s, served_s = more.pop("reply", "ok"), at + more.pop("took", 0.001), more.pop("served", at)
        base = {"f": f, "op": f"{proc}-{self._numbers}.0", "channel": channel, "first_send_ns": ns(at), **asked}
        self.row(proc, "operation", at, type="invoke", **base)
        if reply is not None:
            times = {"done_ns": ns(done_s), "last_send_ns": ns(at), "sends": 1, **more}
            answer = {"srv_us": srv_ms(served_s) * 1_000, "era": self.channels[channel].era, **told} if reply == "ok" else {}
            self.row(proc, "operation", done_s, **{**base, "type": reply, **times, **answer})

    def publish(self, proc: str, channel: str, messages: str | Sequence[str], at: float, **more: Any) -> list[int]:
        """Publish messages; the clocks that they have. `late`: how long before its send the call was meant to be sent.

        `applied=False`: the server never saw it (give it a `reply`, too). `clocks` and `results` are what the reply says instead.
        """
        names = [messages] if isinstance(messages, str) else list(messages)
        held = self.channels[channel]
        known = {sent.message: sent.clock for sent in held.kept}
        found: list[int] = []
        said: list[str] = []
        for name in names if more.pop("applied", True) else ():
            said.append("duplicate" if name in known else "created")
            if name not in known:
                held.clock = clock_ahead(held.clock, 1)
                held.kept.append(Sent(name, held.clock))
                known[name] = held.clock
            found.append(known[name])
        asked = [{"message": name, "crc": crc_of(name)} for name in names]
        answer = more.pop("clocks", ()) or found or [held.clock] * len(names)
        words = more.pop("results", ()) or said or ["unknown"] * len(names)
        items = [one | {"clock": at, "result": word} for one, at, word in zip(asked, answer, words, strict=True)]
        intended_ns = more.pop("intended_ns", ns(at - more.pop("late", 0.0)))
        told = {"clock": more.pop("clock", held.clock), "items": items, **more.pop("told", {})}
        self.call(proc, "publish", channel, at, asked={"intended_ns": intended_ns, "items": asked}, told=told, **more)
        return found

    def subscribe(self, proc: str, channel: str, subscriber: str, at: float, **more: Any) -> None:
        """Create a subscriber at the clock of the channel; one that is there stays as it is."""
        held = self.channels[channel]
        result = "exists" if subscriber in held.cursors else "created"
        held.cursors.setdefault(subscriber, held.clock)
        if subscriber not in held.named:
            held.named.append(subscriber)
        told = {"result": result, "clock": held.clock, "cursor": held.cursors[subscriber], **more.pop("told", {})}
        self.call(proc, "subscribe", channel, at, asked={"subscriber": subscriber}, told=told, **more)

    def unsubscribe(self, proc: str, channel: str, subscriber: str, at: float, **more: Any) -> None:
        """Delete a subscriber."""
        gone = self.channels[channel].cursors.pop(subscriber, None)
        told = {"result": "missing" if gone is None else "deleted"}
        self.call(proc, "unsubscribe", channel, at, asked={"subscriber": subscriber}, told=told, **more)

    def fetch(self, proc: str, channel: str, subscriber: str, at: float, *, most: int = 64, **more: Any) -> list[Sent]:
        """Fetch what lies after the cursor; what was delivered. `items`: what the reply holds instead.

        Messages between the cursor and the last one that are gone are told as lost. The caller is handed what the reply holds, or
        `handed`; nothing where its call has not `returned`.
        """
        held = self.channels[channel]
        cursor = held.cursors[subscriber]
        items, waited_ms, handed, returned = (more.pop(name, usual) for name, usual in OF_FETCH.items())
        given = held.unread(subscriber)[:most] if items is None else list(items)
        whole = items is None and len(held.unread(subscriber)) <= most
        upto = held.clock if whole else given[-1].clock if given else cursor
        lost = max(0, clock_distance(cursor, upto) - len(given)) if items is None else 0
        left = {} if whole or items is not None else {"more": 1}
        state = {"clock": held.clock, "cursor": cursor, "upto": upto, "lost": lost, "result": "ok", **left}
        told = state | {"items": [item_of(sent) for sent in given]} | more.pop("told", {})
        asked = {"subscriber": subscriber, "most": most, **({"waited_ms": waited_ms} if waited_ms else {})}
        self.call(proc, "fetch", channel, at, asked=asked, told=told, **more)
        readable = [item for item in told["items"] if "message" in item] if handed is None else handed
        if returned and more.get("reply", "ok") == "ok" and (readable or upto != cursor):
            self.hand(proc, channel, subscriber, at - waited_ms / 1e3, at + more.get("took", 0.001), readable, told["lost"])
        return given

    def hand(self, proc: str, channel: str, subscriber: str, begun: float, at: float, items: list[Any], lost: int = 0) -> None:
        """What a caller's call of fetch, which began at `begun`, returned."""
        if f"{proc}.sink" in self.files:
            times = {"first_send_ns": ns(begun), "done_ns": ns(at)}
            place = {"channel": channel, "subscriber": subscriber}
            self.row(f"{proc}.sink", "handed", at, **place, **times, lost=lost, items=items)

    def acknowledge(self, proc: str, channel: str, subscriber: str, at: float, clock: int | None = None, **more: Any) -> None:
        """Move the cursor to a clock, that of the channel where none is given. `result`: what the reply says instead."""
        held = self.channels[channel]
        cursor, wanted = held.cursors[subscriber], held.clock if clock is None else clock
        result = more.pop("result", "")
        moves = 0 < clock_distance(cursor, wanted) <= clock_distance(cursor, held.clock)
        if moves and result in ("", "OK"):
            held.cursors[subscriber] = wanted
        told = {"result": result or ("OK" if moves else "stale"), "cursor": held.cursors[subscriber], **more.pop("told", {})}
        self.call(proc, "acknowledge", channel, at, asked={"subscriber": subscriber, "clock": wanted}, told=told, **more)

    def misuse(self, proc: str, channel: str, subscriber: str, name: str, at: float, *, result: str = "malformed") -> None:
        """A receipt that is handed in to be refused."""
        told = {"channel": channel, "subscriber": subscriber, "name": name, "clock": 1, "result": result}
        self.row(proc, "misuse", at, **told, first_send_ns=ns(at), done_ns=ns(at))

    def expire(self, channel: str, *messages: str) -> None:
        """The life of messages ends: all of them where none is named."""
        held = self.channels[channel]
        held.kept = [sent for sent in held.kept if messages and sent.message not in messages]

    def restore(self, channel: str, clock: int, *, highest: int | None = None) -> None:
        """The server has come back with an older state: messages after `clock` are gone, cursors stand there at most.

        `highest` is where the clock goes on, since callers remember it: by that the era is one higher.
        """
        held = self.channels[channel]
        held.kept = [sent for sent in held.kept if not clock_after(sent.clock, clock)]
        held.cursors = {name: cursor if not clock_after(cursor, clock) else clock for name, cursor in held.cursors.items()}
        held.clock = clock if highest is None else highest
        held.era += highest is not None

    def finals(self, at: float) -> None:
        """What the server holds in the end: one row per channel."""
        for held in self.channels.values():
            items = [{"subscriber": name, "cursor": cursor} for name, cursor in held.cursors.items()]
            told = {"channel": held.name, "clock": held.clock, "era": held.era, "srv_us": srv_ms(at) * 1_000}
            self.row("harness", "final", at, name="end", **told, count=len(items), items=items)

    def write(self, *, snapshots: Iterable[str] = ("end",), closed: float = END_S) -> Path:
        """Tell what is left, close the files at that time, write the spec; returns the run's folder."""
        self._now_s = closed
        if "end" in snapshots:
            self.finals(closed)
        for stem, file in self.files.items():
            if stem.split(".")[0] not in self.left_open:
                file.close()
        self.samples()
        spec = {"channels": [held.entry() for held in self.channels.values()], **self.spec}
        (self.folder / "spec.json").write_text(json.dumps(spec))
        return self.folder


def item_of(sent: Sent) -> dict[str, Any]:
    """A delivered message as its row has it."""
    return {"message": sent.message, "clock": sent.clock, "crc": crc_of(sent.message)}


def crc_of(message: str) -> int:
    """The crc32 of the content of a message."""
    return zlib.crc32(message.encode())
