"""A channel run with everything that its page shows, from a small simulation: channels that cross the wrap one after the other,
fan-out to 1, 10 and many, long polls, a slow subscriber, a killed one, a cut connection, a restarted server, and a snapshot that
takes the clocks back."""

import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.models.dsps import CLOCK_MAX, clock_ahead
from tests.reports.channel_story import ChannelStory
from tests.reports.story import ns

#: Name, target, start and end of each fault, as parts of the time in which messages are published.
FAULTS = (
    *(("net-reply-lost", "publisher-1", 0.12, 0.17), ("subscriber-kill", "subscriber-1", 0.27, 0.37)),
    *(("net-down", "subscriber-2", 0.47, 0.53), ("server-restart", "servers", 0.62, 0.65)),
    ("snapshot-restore", "servers", 0.78, 0.81),
)

#: The snapshot is that many seconds old when it is restored.
SNAPSHOT_AGE_S = 2.0

#: What subscribers do once nothing is published any more.
DRAIN_S = 6.0

SUBSCRIBERS = ("consumer-1", "subscriber-1", "subscriber-2")


@dataclass
class Simulation:
    """Things that happen, in the order of their instants."""

    story: ChannelStory
    length_s: float
    chance: random.Random
    agenda: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    #: (channel, subscriber) -> since when it waits for messages; absent while it works.
    waiting: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Subscriber -> the process that it lives in, and how long it rests between two fetches where it is slow.
    process: dict[str, str] = field(default_factory=dict)
    slow_s: dict[str, float] = field(default_factory=dict)
    raw: list[dict[str, object]] = field(default_factory=list)

    def at(self, at: float, act: Callable[[float], None]) -> None:
        """Do something then."""
        heapq.heappush(self.agenda, (at, next(self.numbers), act))

    def run(self) -> None:
        """Everything up to the end."""
        while self.agenda:
            at, _, act = heapq.heappop(self.agenda)
            act(at)

    def healed_s(self, at: float, *targets: str) -> float | None:
        """When the fault ends that hits one of these now; None when none does."""
        hit = (end for _, target, start, end in FAULTS if target in targets and start <= at / self.length_s < end)
        return next((end * self.length_s for end in hit), None)

    def publish(self, channel: str, number: int) -> Callable[[float], None]:
        """Publish one message; a fault that is in the way makes it late."""
        proc = f"publisher-{1 + number % 2}"

        def act(intended: float) -> None:
            sent = intended + self.chance.expovariate(2_500)
            took, sends = 0.0004 + self.chance.expovariate(3_000), 1
            if (healed := self.healed_s(sent, "servers", proc)) is not None:
                took, sends = healed - sent + self.chance.uniform(0.01, 0.3), 3
            served = sent + took - 0.0002

            def serve(_: float) -> None:
                more = {"took": took, "sends": sends, "served": served, "intended_ns": ns(intended)}
                self.story.publish(proc, channel, f"{channel}-{number}", sent, **more)
                self.ring(channel, served)

            self.at(served, serve)

        return act

    def ring(self, channel: str, at: float) -> None:
        """Wake whoever waits for a message of this channel."""
        for subscriber in self.story.channels[channel].cursors:
            if (channel, subscriber) in self.waiting and subscriber not in self.slow_s:
                self.look(channel, subscriber, at + 0.0006 + self.chance.expovariate(1_500))

    def look(self, channel: str, subscriber: str, at: float) -> None:
        """A subscriber asks, as soon as nothing is in its way."""
        proc, since = self.process[subscriber], self.waiting.pop((channel, subscriber), at - 0.0005)
        if (healed := self.healed_s(at, "servers", proc)) is not None:
            at = healed + self.chance.uniform(0.1, 0.8)
            since = at - 0.001

        def act(now: float) -> None:
            given = self.story.fetch(proc, channel, subscriber, since, took=now - since + 0.0003, served=now)
            forgets = self.chance.random() < 0.02 and now < self.length_s
            if given and not forgets:
                self.at(now + 0.001, lambda at: self.story.acknowledge(proc, channel, subscriber, at, given[-1].clock))
            rest_s = self.slow_s.get(subscriber, 0.0) if now < self.length_s else 0.0
            then = self.look if rest_s or forgets else self.rest
            self.at(now + 0.002 + rest_s, lambda at: then(channel, subscriber, at))

        self.at(at, act)

    def rest(self, channel: str, subscriber: str, at: float) -> None:
        """Wait for the next message; look at once when one has come meanwhile."""
        if self.story.channels[channel].unread(subscriber):
            self.look(channel, subscriber, at)
        else:
            self.waiting[channel, subscriber] = at

    def fault(self, number: int, name: str, target: str, start: float, end: float) -> None:
        """One fault with its stages and its phases."""
        fault, start_s, end_s = f"{number}-{name}", start * self.length_s, end * self.length_s
        self.story.stages(fault, target, start_s, start_s + 0.2, end_s, end_s + 0.3, detail=f"{{}} of {name} seen")
        self.story.phases(**{name: start_s, f"after-{name}": end_s})
        if name == "snapshot-restore":
            taken_s = start_s - SNAPSHOT_AGE_S
            self.story.fault(fault, target, "snapshot", taken_s)
            clocks: dict[str, int] = {}
            self.at(taken_s, lambda _: clocks.update({one.name: one.clock for one in self.story.channels.values()}))
            self.at(start_s, lambda _: self.restore(clocks))

    def restore(self, clocks: dict[str, int]) -> None:
        """The server comes back as it was when the snapshot was taken; callers remember all clocks but the last, now and then."""
        for name, clock in clocks.items():
            held = self.story.channels[name]
            forgotten = min(self.chance.randrange(3), held.clock - clock)
            self.story.restore(name, clock, highest=clock_ahead(held.clock, -forgotten))

    def sample(self, at: float) -> None:
        """The raw clocks as the harness reads them: between restore and the first call they are those of the snapshot."""
        for held in self.story.channels.values():
            back = self.healed_s(at, "servers") is not None and at > FAULTS[-1][2] * self.length_s
            clock = clock_ahead(held.clock, -round(SNAPSHOT_AGE_S)) if back else held.clock
            self.raw.append({"t_ns": ns(at), "channel": held.name, "clock": str(clock)})


def lay_out(sim: Simulation, wrapping: int, many: int) -> dict[str, float]:
    """The channels, and how many messages a second each gets."""
    rates: dict[str, float] = {}
    for number in range(wrapping):
        name, rate = f"wrap-{number + 1}", 1.5 + number % 3 * 0.5
        crossing_s = sim.length_s * (number + 1) / (wrapping + 2)
        preset = clock_ahead(CLOCK_MAX, -round(rate * crossing_s))
        sim.story.channel(name, fan_out=10 if number % 5 == 4 else 1, preset=preset)
        rates[name] = rate
    for fan_out in (1, 10, many):
        name = f"fan-{fan_out}"
        slow = {f"{name}-s1": sim.length_s / 9} if fan_out == 10 else {}
        sim.story.channel(name, fan_out=fan_out).more |= {"slow": list(slow)} if slow else {}
        sim.slow_s |= slow
        rates[name] = 1.0
    return rates


def busy(folder: Path, *, length_s: float = 40.0, wrapping: int = 6, many: int = 20, seed: int = 7) -> Path:
    """The run: `wrapping` channels that cross, fan-out to 1, 10 and `many`; published for `length_s`, then drained."""
    story = ChannelStory(folder)
    sim = Simulation(story, length_s, random.Random(seed))
    for name, role in (("harness", "harness"), ("publisher-1", "publisher"), ("publisher-2", "publisher")):
        story.process(name, role)
    for name in SUBSCRIBERS:
        story.process(name, "subscriber")
    rates = lay_out(sim, wrapping, many)
    for place, channel in enumerate(story.channels.values()):
        for number in range(channel.fan_out):
            subscriber = f"{channel.name}-s{number + 1}"
            sim.process[subscriber] = SUBSCRIBERS[(number + place) % 3]
            story.subscribe(sim.process[subscriber], channel.name, subscriber, 0.1)
            sim.rest(channel.name, subscriber, 0.2)
            for at in (*([0.5] if subscriber in sim.slow_s else []), length_s + 2.0):
                sim.at(at, lambda at, c=channel.name, s=subscriber: sim.look(c, s, at))
    for channel, rate in rates.items():
        for number in range(int((length_s - 1) * rate)):
            sim.at(1 + number / rate + sim.chance.random() * 0.2, sim.publish(channel, number))
    story.phases(lead_in=0.0)
    for number, fault in enumerate(FAULTS, 1):
        sim.fault(number, *fault)
    story.phases(drain=length_s, end=length_s + DRAIN_S)
    for second in range(int(length_s + DRAIN_S)):
        sim.at(float(second), sim.sample)
    sim.run()
    faults = enumerate(FAULTS, 1)
    story.spec["plan"] = [{"fault": f"{at}-{name}", "name": name, "target": target} for at, (name, target, *_) in faults]
    run = story.write(closed=length_s + DRAIN_S)
    (run / "samples" / "channels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sim.raw))
    return run
