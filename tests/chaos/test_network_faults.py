"""Faults of the network on real proxies, a real worker and a real producer: each witness sees the effect, or fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from chaos import catalogue, probe, processes, toxiproxy
from chaos.errors import HarnessError
from chaos.faults import FAULTS, network_base
from chaos.faults.base import Scene, Seen
from chaos.plan import NETWORK_FAULT_NAMES, PlannedFault
from tests.chaos.histories import carried_out
from tests.chaos.network_stage import LEASE_MS, TARGETS, Stage, planned
from tests.chaos.network_stage import stage as stage

pytestmark = pytest.mark.slow

#: Those that act on proxies alone; the others are in test_inside_faults.py.
NAMES = tuple(name for name in NETWORK_FAULT_NAMES if not catalogue.KINDS[name].preload)


@pytest.fixture(autouse=True)
def healed(stage: Stage) -> Iterator[None]:
    """Each test starts on a network without faults."""
    yield
    stage.network.heal_all()
    finished = stage.scene.watch.finished()
    assert stage.scene.wait(lambda: stage.scene.watch.finished() > finished + 3, timeout_s=120)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does nothing is not waited for."""
    for name in ("SHORT_LOSSES_S", "ANSWERS_S", "RENEWAL_LEASES"):
        monkeypatch.setattr(f"chaos.faults.network.{name}", 0.1)


def unseen(stage: Stage, name: str) -> tuple[Seen, Seen]:
    """The fault strikes, and its witness sees nothing; what injection and witness say."""
    fault = stage.make(name)
    injected, seen = fault.inject(), fault.witness()
    assert not seen.ok, seen.detail
    fault.heal()
    return injected, seen


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_witnessed_and_healed(name: str, stage: Stage, tmp_path: Path) -> None:
    rows, phases, _ = carried_out(stage.make(name), planned(name), tmp_path / "harness.jsonl")
    stages = [(row["stage"], row["result"], row["target"]) for row in rows]
    assert stages == [(one, "ok", TARGETS) for one in ("inject", "witness", "heal", "healed")], rows
    assert [row["t_ns"] for row in rows] == sorted(row["t_ns"] for row in rows)
    assert [phase for phase, _ in phases] == [name, f"recover-{name}"]
    for target in TARGETS.split(","):
        shown = stage.network._client.show(target)
        assert (shown["enabled"], shown["toxics"]) == (True, [])


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_that_did_nothing_has_no_witness(name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.network, "_pretend", True)
    injected, _ = unseen(stage, name)
    assert injected.ok


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(("name", "spared"), [*zip(NAMES, 2 * TARGETS.split(","), strict=True)])
def test_a_fault_that_spared_one_has_no_witness(name: str, spared: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    poison, cut = stage.network.poison, stage.network.cut
    monkeypatch.setattr(stage.network, "poison", lambda names, toxics: poison(set(names) - {spared}, toxics))
    monkeypatch.setattr(stage.network, "cut", lambda names: cut(set(names) - {spared}))
    unseen(stage, name)


@pytest.mark.parametrize("name", ["net-request-lost", "net-down"])
def test_a_target_that_asks_for_nothing_is_no_witness(name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = stage.make(name)
    fault.inject()
    # As if the producer had nothing to send: its proxy is as dead as the others, and it would not know.
    poll, view = stage.scene.watch.poll, stage.scene.watch.view("producer-1")

    def poll_without_it() -> None:
        poll()
        view.unanswered.clear()

    monkeypatch.setattr(stage.scene.watch, "poll", poll_without_it)
    seen = fault.witness()
    monkeypatch.undo()
    assert not seen.ok and seen.detail.endswith("no call answered: worker-1")
    fault.heal()


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(("name", "other"), [("net-request-lost", "downstream"), ("net-reply-lost", "upstream")])
def test_the_wrong_direction_has_no_witness(name: str, other: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.network.blackhole", lambda stream: toxiproxy.blackhole(other))
    _, seen = unseen(stage, name)
    assert ("not at the server" in seen.detail) == (other == "upstream")


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_that_stays_is_not_healed(name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.network.SHORT_LOSSES_S", 0.0)
    fault = stage.make(name)
    fault.inject()
    assert fault.witness().ok
    # From here on it waits for what never comes.
    for module in ("network_base", "network"):
        monkeypatch.setattr(f"chaos.faults.{module}.ANSWER_TIMEOUT_S", 0.3)
    with monkeypatch.context() as stubborn:
        stubborn.setattr(stage.network, "heal", lambda names: None)
        fault.heal()
    seen = fault.witness_healed()
    assert not seen.ok, seen.detail


def test_a_short_loss_makes_the_engine_repeat_before_the_long_one(stage: Stage) -> None:
    fault = stage.make("net-reply-lost")
    fault.inject()
    view = stage.scene.watch.view("worker-1")
    assert {"claim", "finish"} <= {name for name, t_ns in view.repeated_ns.items() if t_ns >= fault._begun_ns}
    fault.witness()
    fault.heal()
    assert fault.witness_healed().detail.endswith("; repeated: claim, finish, enqueue")


def test_a_toxic_that_the_server_refuses_is_one_line_and_leaves_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = toxiproxy.blackhole("upstream"), toxiproxy.Toxic("nonsense", "upstream")
    poison = stage.network.poison

    def poison_badly(names: list[str], toxics: list[toxiproxy.Toxic]) -> None:
        """The first target gets what it should, the second what does not exist."""
        poison(names[:1], [good])
        poison(names[1:], [bad])

    monkeypatch.setattr(stage.network, "poison", poison_badly)
    with pytest.raises(HarnessError, match="^toxic nonsense-upstream on producer-1: Toxiproxy refused it: ") as caught:
        stage.make("net-request-lost").inject()
    assert len(str(caught.value).splitlines()) == 1
    assert probe.ask(stage.network.proxy("worker-1"), "PING") == "+PONG"


def test_an_interrupt_between_two_targets_leaves_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = stage.network.cut

    def cut_one(names: list[str]) -> None:
        cut(names[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(stage.network, "cut", cut_one)
    with pytest.raises(KeyboardInterrupt):
        stage.make("net-down").inject()
    assert probe.ask(stage.network.proxy("worker-1"), "PING") == "+PONG"


def test_a_fault_is_healed_also_when_the_witness_raises(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = stage.make("net-down")

    def interrupted() -> Seen:
        raise HarnessError("interrupted by SIGINT")

    monkeypatch.setattr(fault, "witness", interrupted)
    with pytest.raises(HarnessError, match="interrupted"):
        carried_out(fault, planned("net-down"), tmp_path / "harness.jsonl")
    assert probe.ask(stage.network.proxy("worker-1"), "PING") == "+PONG"


def test_without_proxies_there_is_no_network_fault(stage: Stage) -> None:
    scene = Scene(stage.scene.crew, stage.scene.watch, stage.scene.wait, processes.send, LEASE_MS, LEASE_MS)
    with pytest.raises(HarnessError, match="^1-net-down: the run has no proxies$"):
        FAULTS["net-down"](scene, planned("net-down"))


def test_a_target_that_was_never_started_is_no_witness_and_no_error(stage: Stage) -> None:
    fault = FAULTS["net-down"](stage.scene, PlannedFault("1-net-down", "net-down", "worker-9,producer-1", 0))
    seen = [fault.inject(), fault.witness(), fault.heal(), fault.witness_healed()]
    assert [(one.ok, one.detail) for one in seen if not one.ok] == 3 * [(False, "never started: worker-9")]
    assert probe.ask(stage.network.proxy("producer-1"), "PING") == "+PONG"


def test_probes_leave_no_key_behind(stage: Stage) -> None:
    fault = stage.make("net-reply-lost")
    assert isinstance(fault, network_base.LostFault)
    assert fault.probe("worker-1") == (False, "worker-1: answered +OK, write at the server")
    server = stage.network.server
    with redis.Redis(server.host, server.port) as client:
        assert client.keys("ironclaim:probe:*") == []
