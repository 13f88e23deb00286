"""What a drill is asked for beyond single options: a mutant, servers and faults that fit each other.

Standard library only, so that make can refuse what does not fit before it sets anything up.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from bench.models import LANES
from chaos import catalogue, topologies
from chaos.channels.mutants import MUTANTS as OF_CHANNELS
from chaos.errors import HarnessError
from chaos.mutants import Mutant, find
from chaos.mutants.of_jobs import MUTANTS as OF_JOBS
from chaos.plan import chosen


class Asked(NamedTuple):
    """The mutant (None: the clean engine), how producers send, and the servers."""

    mutant: Mutant | None
    face: str
    topology: str


def of_jobs(arguments: argparse.Namespace) -> Asked:
    """What `run bench` and `run http` are asked for. Raises HarnessError."""
    mutant = find(arguments.mutant, OF_JOBS)
    if mutant and arguments.model != LANES:
        raise HarnessError(f"mutants are of the model {LANES}, not of {arguments.model}")
    face = arguments.face if mutant is None else mutant.scenario.get("face", arguments.face)
    topology = arguments.topology or (mutant.topology if mutant else topologies.EMBEDDED)
    return _fitting(Asked(mutant, face, topology), catalogue.load_of(face), arguments)


def of_channels(arguments: argparse.Namespace) -> Asked:
    """What `run channels` is asked for. Raises HarnessError."""
    asked = Asked(find(arguments.mutant, OF_CHANNELS), catalogue.DIRECT, arguments.topology or topologies.AOF)
    return _fitting(asked, catalogue.CHANNELS, arguments)


def _fitting(asked: Asked, load: str, arguments: argparse.Namespace) -> Asked:
    """The same. Raises HarnessError for a durability or a kind of fault that the servers and the load have not."""
    topologies.check(asked.topology, arguments.durability or "")
    chosen(asked.topology, load, arguments.faults, arguments.minutes)
    return asked
