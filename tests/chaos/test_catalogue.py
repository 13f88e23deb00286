"""The catalogue of faults: each kind can be made, declares what it attacks, and loses only where its topology can."""

import pytest

from chaos import catalogue, topologies
from chaos.catalogue import CHANNELS, HTTP, JOBS, KINDS
from chaos.channels.faults import FAULTS as OF_CHANNELS
from chaos.faults import FAULTS as OF_JOBS

MADE = {JOBS: OF_JOBS, HTTP: OF_JOBS, CHANNELS: OF_CHANNELS}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_kind_can_be_made_for_each_load_that_it_fits(kind: catalogue.FaultKind) -> None:
    for load in kind.loads:
        assert kind.name in MADE[load]
    assert kind.loads and kind.attacks and kind.seconds > 0
    assert set(kind.topologies) <= set(topologies.TOPOLOGIES)


def test_whatever_can_be_made_is_in_the_catalogue() -> None:
    # That one is for clients of other projects, which have no guarantees to attack.
    assert set(OF_JOBS) - set(KINDS) == {"foreign-freeze"} and set(OF_CHANNELS) <= set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.loss], ids=lambda kind: kind.name)
def test_a_loss_is_declared_where_the_fault_can_happen_and_under_its_durability_alone(kind: catalogue.FaultKind) -> None:
    assert kind.loss is not None
    for topology in topologies.TOPOLOGIES:
        for durability in topologies.DURABILITIES[topology]:
            declared = {entry["fault"]: entry for entry in catalogue.declared_loss(topology, durability)}
            assert (kind.name in declared) == (topology in kind.topologies and durability in kind.loss.durabilities)
            if kind.name in declared:
                assert declared[kind.name]["text"] == kind.loss.text
                avoided_by = declared[kind.name]["avoided_by"]
                others = set(topologies.DURABILITIES[topology]) - set(kind.loss.durabilities)
                assert avoided_by in others if others else avoided_by == ""
        assert catalogue.declared_loss(topology, "") == catalogue.declared_loss(topology, topologies.DURABILITIES[topology][0])
