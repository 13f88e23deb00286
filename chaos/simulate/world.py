"""Virtual time, the order of events, and the record of what happened."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar
from unittest.mock import patch

from chaos.simulate.chance import Chance
from chaos.simulate.profile import Mishaps
from engine.queue import era
from engine.redis import exchange

P = TypeVar("P", bound=Mishaps)

MS = 1_000_000
#: 2100-01-02: the server's clock at the start of an episode, a day after the first time that a test queue may have.
EPOCH_MS = 4_102_444_800_000 + 86_400_000


class Row(NamedTuple):
    """One line of the trace. `job`: ids that it is about."""

    at_ns: int
    who: str
    what: str
    result: Any
    jobs: tuple[str, ...] = ()
    fault: bool = False


class Found(Exception):
    """An invariant is broken: its name, which shrinking keeps, and what is wrong."""

    def __init__(self, invariant: str, text: str, jobs: tuple[str, ...] = ()) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.jobs = jobs


class TimeIsUp(Exception):
    """The plan says that the episode is not played any further."""


class World(Generic[P]):
    """One episode's time, events, record and chance. All processes share one monotonic clock, as on one machine."""

    def __init__(self, profile: P, chance: Chance, play_until_ns: int = 0) -> None:
        self.profile = profile
        self.chance = chance
        self.now_ns = 1_000_000 * MS
        self.steps = 0
        self.rows: list[Row] = []
        #: When the last fault had spent its force.
        self.trouble_ns = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._play_until_ns = play_until_ns

    def at(self, when_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time. Equal times keep the order in which they were asked for."""
        self._order += 1
        heapq.heappush(self._events, (max(when_ns, self.now_ns), self._order, action, arguments))

    def run(self, until_ns: int, ended: Callable[[], bool]) -> None:
        """Let things happen until a time, or until `ended`, which is asked after each event."""
        events = self._events
        while events and events[0][0] <= until_ns and not ended():
            self.now_ns, _, action, arguments = heapq.heappop(events)
            action(*arguments)
            if 0 < self._play_until_ns < self.now_ns:
                raise TimeIsUp
        if not ended():
            self.now_ns = max(self.now_ns, until_ns)

    def note(self, who: str, what: str, result: Any = "", jobs: tuple[str, ...] = (), *, fault: bool = False) -> None:
        """Add a line to the record."""
        self.rows.append(Row(self.now_ns, who, what, result, jobs, fault))

    def disturbed(self, until_ns: int) -> None:
        """A fault has an effect until then."""
        self.trouble_ns = max(self.trouble_ns, until_ns)

    @contextmanager
    def clock_of_calls(self) -> Iterator[None]:
        """Calls on their way take the time, and the jitter of their pauses, from here."""
        jitter = iter(range(1 << 62))
        world = self

        class Time:
            @staticmethod
            def monotonic_ns() -> int:
                return world.now_ns

        class Random:
            @staticmethod
            def random() -> float:
                return world.chance.draw("jitter", next(jitter))

        times = patch.object(exchange, "time", Time), patch.object(era, "time", Time)
        with times[0], times[1], patch.object(exchange, "random", Random):
            yield
