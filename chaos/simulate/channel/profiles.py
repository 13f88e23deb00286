"""The kinds of episodes that channels are played with in turn, and what their publishers will do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from chaos.simulate.profile import QUIET, Mishaps


@dataclass(frozen=True, slots=True)
class ChannelProfile(Mishaps):
    """One kind of episode. `calls` publish; some of them (`bulk`) several messages in one script, some (`again`) a message that
    another call publishes as well. `to_wrap`: how many clocks are left before the circle begins anew; 0: it begins at clock 0."""

    subscribers: int = 2
    publishers: int = 2
    calls: int = 24
    bulk: float = 0.3
    again: float = 0.2
    to_wrap: int = 0
    #: Most messages of a fetch; shares of the fetches that are not acknowledged, or twice, or by an older receipt.
    most: int = 5
    lazy: float = 0.2
    twice: float = 0.2
    old: float = 0.2


@dataclass(frozen=True, slots=True)
class PlannedPublish:
    """One call, and the ids of its messages. `number` names it in the trace."""

    at_ms: int
    number: int
    messages: tuple[str, ...]

    def smaller(self) -> Iterator[PlannedPublish]:
        """The same call with one message less."""
        if len(self.messages) > 1:
            for at in range(len(self.messages)):
                yield replace(self, messages=self.messages[:at] + self.messages[at + 1 :])


def plan_publishes(profile: ChannelProfile, chooser: random.Random) -> tuple[PlannedPublish, ...]:
    """What the publishers of an episode will do."""
    made: list[str] = []
    calls: list[PlannedPublish] = []
    for number in range(profile.calls):
        count = chooser.randint(2, 6) if chooser.random() < profile.bulk else 1
        messages: list[str] = []
        for _ in range(count):
            known = [message for message in made if message not in messages]
            if known and chooser.random() < profile.again:
                messages.append(chooser.choice(known[-6:]))
            else:
                made.append(f"m{len(made) + 1}")
                messages.append(made[-1])
        at_ms = int(chooser.random() * profile.chaos_ms)
        if calls and chooser.random() < 0.3:
            at_ms = calls[-1].at_ms + chooser.randrange(3)
        calls.append(PlannedPublish(at_ms, number, tuple(messages)))
    return tuple(calls)


CHANNEL_PROFILES = (
    ChannelProfile("everything"),
    ChannelProfile("wrap", to_wrap=12),
    ChannelProfile("network", process=QUIET, server=QUIET, calls=40, subscribers=3),
    ChannelProfile(
        "late copies", network={"copy": 0.15, "late request": 0.08, "lose reply": 0.03}, process=QUIET, server=QUIET, again=0.4
    ),
    ChannelProfile("late publishes", network={"late request": 0.4, "lose request": 0.3}, process=QUIET, server=QUIET, again=0.0),
    ChannelProfile("wrap and late copies", to_wrap=6, network={"copy": 0.15, "late request": 0.08}, process=QUIET, server=QUIET),
    ChannelProfile("crashes", network={"copy": 0.05}, process={"kill": 0.02, "freeze": 0.01, "cut off": 0.005}, to_wrap=20),
    ChannelProfile("clock", server={"clock back": 0.004, "clock forward": 0.004, "stall": 0.001}),
    ChannelProfile("stalls", network=QUIET, process=QUIET, server={"stall": 0.01}),
    ChannelProfile("memory", network={"copy": 0.02}, process=QUIET, server={"memory": 0.01}),
    ChannelProfile("cut scripts", server={"cut script": 0.05}, network={"copy": 0.05, "lose reply": 0.03}, to_wrap=15),
)
#: What a run has to meet.
CHANNEL_EXPECTED = (
    *("publish created", "publish duplicate", "publish refused", "subscribe created", "subscribe exists"),
    *("fetch messages", "fetch nothing", "acknowledge OK", "acknowledge stale", "wrapped", "cut off", "refused for memory"),
    *("told created", "told duplicate", "acknowledged", "acknowledged stale"),
)
