"""What an episode follows from, how it went, and what plays it: the same for whatever the simulator is played with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from chaos.simulate.chance import Fault
from chaos.simulate.profile import Mishaps
from chaos.simulate.world import Found, Row


class Action(Protocol):
    """One call that an episode makes."""

    def smaller(self) -> Iterator[Self]:
        """The same call with a part left out, once for each part that may be."""
        ...


P = TypeVar("P", bound=Mishaps)
A = TypeVar("A", bound=Action)


@dataclass(frozen=True, slots=True)
class Plan(Generic[P, A]):
    """All that an episode follows from. `faults` None: those of the seed."""

    seed: int
    profile: P
    actions: tuple[A, ...]
    faults: tuple[Fault, ...] | None = None
    #: Not played beyond this time.
    until_ns: int = 0


@dataclass(slots=True)
class Result:
    """How an episode went."""

    steps: int
    rows: list[Row]
    faults: list[Fault]
    found: Found | None
    counts: Counter[str] = field(default_factory=Counter)


class Player(Protocol[P, A]):
    """Plays episodes, one after the other, with one model on one server."""

    def plan(self, seed: int, profile: P) -> Plan[P, A]:
        """The plan that a seed makes of a profile."""
        ...

    def play(self, plan: Plan[P, A]) -> Result:
        """One episode."""
        ...
