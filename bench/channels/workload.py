"""The seeded load on channels: which channels there are, who reads them and how, and which message is published when. Pure
arithmetic, no I/O.

Arrivals are Poisson, and only `Random.random()` is used, with a fixed number of draws for each publish, for the reasons that
`bench.workload` gives: one seed is the same load in every process, and another rate moves the instants but not what is sent.
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

#: What a subscriber does with what it fetches. usual: acknowledges each batch at once. slow: works on it for a while first.
#: lazy: acknowledges every second fetch, so it is given everything twice. vanished: stays away for a while. lagging: goes on to
#: fetch, and so keeps its place, but acknowledges nothing for a while.
Kind = Literal["usual", "slow", "lazy", "vanished", "lagging"]
USUAL: Kind = "usual"

#: Who runs which subscriber: two plain processes, and the users inside Locust.
PLAIN_SHARES = ("subscriber-1", "subscriber-2")
LOCUST_SHARE = "consumer-1"
SHARES = (*PLAIN_SHARES, LOCUST_SHARE)

#: Channels that one subscriber reads: as many as a run needs so that one of their clocks wraps every few seconds.
SINGLES = 40
#: How long an unread message lives: longer than any run, and shorter than a subscriber lags behind.
LONG_MS = 1_800_000
SHORT_MS = 1_000

#: Size of a content: as small messages are in practice.
CONTENT_BYTES = (150, 250)
#: Messages of a batch.
BATCH = (2, 6)
#: A message that is published again is one of the last so many publishes of its channel.
REPEAT_BACK = 8

_ID_PREFIX = re.compile(r"[0-9a-z][0-9a-z_-]{0,39}")
_PAD_SOURCE_BYTES = 4_096
_DRAWS = 8


@dataclass(frozen=True, slots=True)
class PlannedSubscriber:
    """`share`: who runs it, one of SHARES."""

    name: str
    kind: Kind
    share: str


@dataclass(frozen=True, slots=True)
class PlannedChannel:
    """`rate_per_s`: calls that publish, at rate 1. `group`: those that are measured together."""

    name: str
    group: str
    rate_per_s: float
    expire_ms: int
    subscribers: tuple[PlannedSubscriber, ...]

    @property
    def fan_out(self) -> int:
        """How many read it."""
        return len(self.subscribers)

    @property
    def names(self) -> tuple[str, ...]:
        """Its subscribers."""
        return tuple(subscriber.name for subscriber in self.subscribers)

    @property
    def slow(self) -> tuple[str, ...]:
        """Subscribers whose latency says nothing: by plan they are late."""
        return tuple(subscriber.name for subscriber in self.subscribers if subscriber.kind != USUAL)


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """`offset_ms`: of the publish that it was first part of; a message that is published again is the same in every byte."""

    id: str
    offset_ms: float
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedPublish:
    """One call, `offset_ms` after the start of the schedule; several messages go as one batch. `sender`: whose part it is.
    `new`: how many of the messages are published for the first time."""

    index: int
    offset_ms: float
    channel: str
    messages: tuple[PlannedMessage, ...]
    sender: int
    new: int


@dataclass(frozen=True, slots=True)
class ChannelWorkload:
    """What a run publishes, without end, at `rate` times the rates of the channels. Shares are fractions of all calls.

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
        """The publishes in order of their instants; of `parts` senders, sender `part` gets those that are its own.

        Senders need not talk to each other: together they send each once, and whatever is published again comes from the one that
        has published it before.
        """
        if not 1 <= parts <= 1_000 or not 0 <= part < parts:
            raise WorkloadError(f"part, parts: {part!r} of {parts!r} is not one of 1 to 1000 parts, counted from 0")
        return (publish for publish in self._publishes() if publish.sender % parts == part)

    def new_messages(self, until_ms: float) -> dict[str, int]:
        """How many steps the clock of each channel takes until then, if everything is sent."""
        counts = dict.fromkeys((channel.name for channel in CHANNELS), 0)
        for publish in takewhile(lambda publish: publish.offset_ms <= until_ms, self._publishes()):
            counts[publish.channel] += publish.new
        return counts

    def _publishes(self) -> Iterator[PlannedPublish]:
        rng = random.Random(self.seed)
        pad_source = "".join(string.ascii_letters[int(rng.random() * 52)] for _ in range(_PAD_SOURCE_BYTES))
        total = sum(channel.rate_per_s for channel in CHANNELS)
        recent: dict[str, deque[PlannedPublish]] = {channel.name: deque(maxlen=REPEAT_BACK) for channel in CHANNELS}
        # the sum is kept in mean gaps, so that another rate scales the instants exactly
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
    """The channel in whose stretch of the summed rates the place lies."""
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
    """A channel with one reader. Of the kinds that are late by plan there are a few of each."""
    kinds: dict[int, Kind] = {5: "slow", 6: "slow", 11: "lazy", 12: "lazy", 17: "vanished", 18: "vanished"}
    reader = PlannedSubscriber("reader", kinds.get(number % 20, USUAL), PLAIN_SHARES[(number + 1) % 2])
    return PlannedChannel(f"wrap-{number:02}", "fan-out 1", 1.0, LONG_MS, (reader,))


def _ten(name: str) -> PlannedChannel:
    """A channel with ten readers, in two processes."""
    kinds: dict[int, Kind] = {3: "lazy", 6: "slow", 9: "vanished"}
    readers = [PlannedSubscriber(f"reader-{n:02}", kinds.get(n, USUAL), PLAIN_SHARES[(n + 1) % 2]) for n in range(1, 11)]
    return PlannedChannel(name, "fan-out 10", 4.0, LONG_MS, tuple(readers))


def _hundred() -> PlannedChannel:
    """A channel with a hundred readers, all inside Locust."""
    kinds: dict[int, Kind] = {0: "slow", 10: "lazy", 20: "vanished"}
    readers = [PlannedSubscriber(f"reader-{n:03}", kinds.get(n % 50, USUAL), LOCUST_SHARE) for n in range(1, 101)]
    return PlannedChannel("fan-100", "fan-out 100", 1.0, LONG_MS, tuple(readers))


def _short() -> PlannedChannel:
    """A channel whose messages die soon, with one reader who loses some."""
    readers = (PlannedSubscriber("reader", USUAL, LOCUST_SHARE), PlannedSubscriber("laggard", "lagging", LOCUST_SHARE))
    return PlannedChannel("short", "short life", 2.0, SHORT_MS, readers)


CHANNELS: tuple[PlannedChannel, ...] = (
    *(_single(number) for number in range(1, SINGLES + 1)),
    _ten("fan-10"),
    _ten("fan-10-b"),
    _hundred(),
    _short(),
)
