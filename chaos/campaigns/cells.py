"""What is drilled in a night: a pure function of the date, so that the date repeats it.

A cell is a model on a topology with a durability. Each night has one drill of each cell, with a seed that no other night has. Its
faults move on through the kinds that the catalogue has for the cell: so many nights as it has kinds see each of them, and one
night in four has none, which shows what the load and the judge make of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from bench import models
from bench.models import DSPS
from chaos import catalogue
from chaos.topologies import AOF, CLUSTER, DURABILITIES, TOPOLOGIES

#: Faults of one drill, and every how many nights a cell is drilled without any.
FAULTS_A_NIGHT = 2
CONTROL_EVERY = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """A model on servers; `durability`: what an answer means there."""

    model: str
    topology: str
    durability: str

    @property
    def name(self) -> str:
        """`bull-aof-everysec` and so on."""
        return f"{self.model}-{self.topology}-{self.durability}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of fault that the catalogue has for it."""
        return catalogue.fitting(self.topology, catalogue.CHANNELS if self.model == DSPS else catalogue.JOBS)


@dataclass(frozen=True, slots=True)
class NightDrill:
    """The drill of a cell in one night."""

    cell: Cell
    seed: int
    faults: tuple[str, ...]


@lru_cache(maxsize=1)
def cells() -> tuple[Cell, ...]:
    """Every model on every topology that fits it, with each durability that makes a difference there."""
    return tuple(
        Cell(model, topology, durability)
        for model in (*models.NAMES, DSPS)
        for topology in TOPOLOGIES
        if fits(model, topology)
        for durability in durabilities(model, topology)
    )


def fits(model: str, topology: str) -> bool:
    """Whether a model can run on a topology: in a cluster, all keys of a queue have to be in one slot."""
    return topology != CLUSTER or model == DSPS or models.in_cluster(model)


def durabilities(model: str, topology: str) -> tuple[str, ...]:
    """The durabilities of a topology; a channel does not wait for replicas, so for it they differ only by the file."""
    found = DURABILITIES[topology]
    return found if model != DSPS or topology == AOF else found[:1]


def night(day: date) -> tuple[NightDrill, ...]:
    """The drills of a night. Each night begins with another cell, so that none is always the last, for which no time is left."""
    number, every = day.toordinal(), cells()
    drills = [drill(cell, place, number) for place, cell in enumerate(every)]
    first = number * FIRST_STEP % len(every)
    return tuple(drills[first:] + drills[:first])


#: By so many cells the beginning moves on from night to night.
FIRST_STEP = 7


def drill(cell: Cell, place: int, number: int) -> NightDrill:
    """The drill of the cell at this place among all, in the night of this number."""
    return NightDrill(cell, number * 100 + place, faults_of(cell.kinds, place, number))


def faults_of(kinds: Sequence[str], place: int, number: int) -> tuple[str, ...]:
    """The kinds of fault of one night, in the order of the catalogue; none in a control. Nights that are none take the next
    kinds each."""
    turns, control = divmod(number + place, CONTROL_EVERY)
    if not control or not kinds:
        return ()
    begun = number + place - turns
    taken = {kinds[(begun * FAULTS_A_NIGHT + step) % len(kinds)] for step in range(FAULTS_A_NIGHT)}
    return tuple(kind for kind in kinds if kind in taken)
