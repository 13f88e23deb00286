"""The seeded load on channels: the channels, their subscribers and how they read, and the instant of each publish. Pure
arithmetic, no I/O.

Arrivals are Poisson, and only `Random.random()` is used, with a fixed number of draws for each publish, for the reasons given
in `bench.workload`: a seed gives the same load in every process, and another rate changes the instants but not the messages.
"""

from __future__ import annotations

import math
import random
import re
import string
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from bench.workload import WorkloadError

#: Behaviour of a subscriber. usual: acknowledges each batch at once. slow: works on it for a while first. lazy: acknowledges
#: every second fetch, so it gets everything twice. vanished: stays away for a while. lagging: goes on fetching, which keeps
#: its subscription alive, but acknowledges nothing for a while.
Kind = Literal["usual", "slow", "lazy", "vanished", "lagging"]
USUAL: Kind = "usual"

#: Shares of the subscribers: two plain processes, and the users inside Locust, each run one.
PLAIN_SHARES = ("subscriber-1", "subscriber-2")
LOCUST_SHARE = "consumer-1"
SHARES = (*PLAIN_SHARES, LOCUST_SHARE)

#: Number of channels with one subscriber: enough that one of their clocks wraps every few seconds of a run.
SINGLES = 40
#: Lifetime of an unread message: LONG_MS is longer than any run, SHORT_MS is shorter than a lagging subscriber's delay.
LONG_MS = 1_800_000
SHORT_MS = 1_000

#: Size of a message's content, as is typical of small messages.
CONTENT_BYTES = (150, 250)
#: Least and greatest number of messages in a batch.
BATCH = (2, 6)
#: A repeated publish is one of this many latest publishes of its channel.
REPEAT_BACK = 8

_ID_PREFIX = re.compile(r"[0-9a-z][0-9a-z_-]{0,39}")
_PAD_SOURCE_BYTES = 4_096
_DRAWS = 8


@dataclass(frozen=True, slots=True)
class PlannedSubscriber:
    """One subscriber. `share`: the process that runs it, one of SHARES."""

    name: str
    kind: Kind
    share: str


@dataclass(frozen=True, slots=True)
class PlannedChannel:
    """One channel. `rate_per_s`: publish calls per second at rate 1. `group`: channels of a group are measured together."""

    name: str
    group: str
    rate_per_s: float
    expire_ms: int
    subscribers: tuple[PlannedSubscriber, ...]

    @property
    def fan_out(self) -> int:
        """Number of subscribers."""
        return len(self.subscribers)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its subscribers."""
        return tuple(subscriber.name for subscriber in self.subscribers)

    @property
    def slow(self) -> tuple[str, ...]:
        """Names of the subscribers that are late by plan, whose latency is not measured."""
        return tuple(subscriber.name for subscriber in self.subscribers if subscriber.kind != USUAL)


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """One message. `offset_ms`: that of its first publish. A message that is published again has exactly the same bytes."""

    id: str
    offset_ms: float
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedPublish:
    """One publish call, `offset_ms` after the start of the schedule; several messages form one batch. `sender`: index that
    decides which part of the load sends it. `new`: number of messages that are published for the first time."""

    index: int
    offset_ms: float
    channel: str
    messages: tuple[PlannedMessage, ...]
    sender: int
    new: int


@dataclass(frozen=True, slots=True)
class ChannelWorkload:
    """The publishes of a run, without end, at `rate` times the rates of the channels. Shares are fractions of all calls.

    Raises WorkloadError naming field, value and bound.
    """

    seed: int
    rate: float = 1.0
    id_prefix: str = ""
    batch_share: float = 0.06
    repeat_share: float = 0.04

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise WorkloadError(f"seed: {self.seed!r} is not a whole number from 0 to {2**63 - 1}")
        if isinstance(self.rate, bool) or not isinstance(self.rate, int | float) or not 0.01 <= self.rate <= 1_000:
            raise WorkloadError(f"rate: {self.rate!r} is not a number from 0.01 to 1000")
        if not self.id_prefix:
            object.__setattr__(self, "id_prefix", f"b{self.seed}")
        if not _ID_PREFIX.fullmatch(self.id_prefix):
            raise WorkloadError(f"id_prefix: {self.id_prefix!r} is not 1 to 40 of 0-9 a-z _ - (the first of them 0-9 a-z)")

    @property
    def channels(self) -> tuple[PlannedChannel, ...]:
        """All channels, the same for every seed."""
        return CHANNELS

    def channel(self, name: str) -> PlannedChannel:
        """The channel of that name. Raises KeyError."""
        return next(channel for channel in CHANNELS if channel.name == name)

    def publishes(self, part: int = 0, parts: int = 1) -> Iterator[PlannedPublish]:
        """The publishes in order of their instants. Of `parts` senders, sender `part` gets those with sender % parts == part.

        Together the senders send each publish once, without communication. A repeated publish comes from the same sender as the
        first one.
        """
        if not 1 <= parts <= 1_000 or not 0 <= part < parts:
            raise WorkloadError(f"part, parts: {part!r} of {parts!r} is not one of 1 to 1000 parts, counted from 0")
        return (publish for publish in self._publishes() if publish.sender % parts == part)

    def new_messages(self, until_ms: float) -> dict[str, int]:
        """Channel -> number of steps that its clock takes until `until_ms`, if everything is sent."""
        counts = dict.fromkeys((channel.name for channel in CHANNELS), 0)
        for publish in takewhile(lambda publish: publish.offset_ms <= until_ms, self._publishes()):
            counts[publish.channel] += publish.new
        return counts

    def _publishes(self) -> Iterator[PlannedPublish]:
        rng = random.Random(self.seed)
        pad_source = "".join(string.ascii_letters[int(rng.random() * 52)] for _ in range(_PAD_SOURCE_BYTES))
        total = sum(channel.rate_per_s for channel in CHANNELS)
        recent: dict[str, deque[PlannedPublish]] = {channel.name: deque(maxlen=REPEAT_BACK) for channel in CHANNELS}
        # The sum is in units of the mean gap, so that another rate scales the instants exactly.
        gaps = 0.0
        index = 0
        while True:
            gaps -= math.log(1.0 - rng.random())
            draws = [rng.random() for _ in range(_DRAWS)]
            channel = _channel_at(draws[0] * total)
            offset_ms = round(gaps * 1000 / (total * self.rate), 3)
            publish = self._plan(index, offset_ms, channel, draws, recent[channel], pad_source)
            recent[channel].append(publish)
            yield publish
            index += 1

    def _plan(
        self, index: int, offset_ms: float, channel: str, draws: list[float], recent: deque[PlannedPublish], pad_source: str
    ) -> PlannedPublish:
        def fresh(count: int) -> tuple[PlannedMessage, ...]:
            contents = [_content(index, part, draws[4], draws[5], pad_source) for part in range(count)]
            return tuple(
                PlannedMessage(f"{self.id_prefix}-{index}-{part}", offset_ms, content) for part, content in enumerate(contents)
            )

        if draws[1] < self.repeat_share and recent:
            before = recent[int(draws[2] * len(recent))]
            new = int(draws[3] * 2)
            return PlannedPublish(index, offset_ms, channel, (*before.messages[: BATCH[1]], *fresh(new)), before.sender, new)
        smallest, largest = BATCH
        is_batch = 1.0 - draws[1] < self.batch_share
        new = smallest + int(draws[3] * (largest - smallest + 1)) if is_batch else 1
        return PlannedPublish(index, offset_ms, channel, fresh(new), index, new)


def of_share(share: str) -> tuple[tuple[PlannedChannel, PlannedSubscriber], ...]:
    """The subscribers of a share, each with its channel. Raises WorkloadError when there is no such share."""
    if share not in SHARES:
        raise WorkloadError(f"share: {share!r} is not one of {', '.join(SHARES)}")
    return tuple((channel, one) for channel in CHANNELS for one in channel.subscribers if one.share == share)


def _channel_at(place: float) -> str:
    """The channel whose interval in the cumulated rates contains `place`."""
    for channel in CHANNELS:
        place -= channel.rate_per_s
        if place < 0:
            return channel.name
    return CHANNELS[-1].name


def _content(index: int, part: int, size: float, start: float, pad_source: str) -> dict[str, Any]:
    smallest, largest = CONTENT_BYTES
    pad_bytes = max(
        0, smallest + int(size * (largest - smallest + 1)) - len('{"index":0000,"part":0,"intended_ns":000000000000000,"pad":""}')
    )
    pad_start = int(start * (_PAD_SOURCE_BYTES - pad_bytes))
    return {"index": index, "part": part, "pad": pad_source[pad_start : pad_start + pad_bytes]}


def _single(number: int) -> PlannedChannel:
    """A channel with one subscriber; a few of each kind that is late by plan."""
    kinds: dict[int, Kind] = {5: "slow", 6: "slow", 11: "lazy", 12: "lazy", 17: "vanished", 18: "vanished"}
    reader = PlannedSubscriber("reader", kinds.get(number % 20, USUAL), PLAIN_SHARES[(number + 1) % 2])
    return PlannedChannel(f"wrap-{number:02}", "fan-out 1", 1.0, LONG_MS, (reader,))


def _ten(name: str) -> PlannedChannel:
    """A channel with ten subscribers, in two processes."""
    kinds: dict[int, Kind] = {3: "lazy", 6: "slow", 9: "vanished"}
    readers = [PlannedSubscriber(f"reader-{n:02}", kinds.get(n, USUAL), PLAIN_SHARES[(n + 1) % 2]) for n in range(1, 11)]
    return PlannedChannel(name, "fan-out 10", 4.0, LONG_MS, tuple(readers))


def _hundred() -> PlannedChannel:
    """A channel with a hundred subscribers, all inside Locust."""
    kinds: dict[int, Kind] = {0: "slow", 10: "lazy", 20: "vanished"}
    readers = [PlannedSubscriber(f"reader-{n:03}", kinds.get(n % 50, USUAL), LOCUST_SHARE) for n in range(1, 101)]
    return PlannedChannel("fan-100", "fan-out 100", 1.0, LONG_MS, tuple(readers))


def _short() -> PlannedChannel:
    """A channel whose messages expire soon, with one subscriber that loses some."""
    readers = (PlannedSubscriber("reader", USUAL, LOCUST_SHARE), PlannedSubscriber("laggard", "lagging", LOCUST_SHARE))
    return PlannedChannel("short", "short life", 2.0, SHORT_MS, readers)


CHANNELS: tuple[PlannedChannel, ...] = (
    *(_single(number) for number in range(1, SINGLES + 1)),
    _ten("fan-10"),
    _ten("fan-10-b"),
    _hundred(),
    _short(),
)
