"""Faults of clocks, disks, names, leases and memory on real servers and processes: each witness sees the effect, or fails."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import models
from chaos import mutants
from chaos.faults import clocks, disks, leases
from tests.chaos.work_stage import LEASE_MS, TARGET, Stage, stage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]

STAGES = ("inject", "witness", "heal", "healed")

#: Kind of fault -> whom it hits, and the stage that it needs.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{"server-clock-jump": ("servers", {}), "worker-clock-jump": (TARGET, {}), "disk-slow": ("servers", {"topology": "aof"})},
    **{"dns-change": (TARGET, {"dns": True}), "lease-expired": (TARGET, {}), "worker-oom": (TARGET, {})},
    "worker-cut": (TARGET, {}),
}

#: Those that act by the library or the network, which may only pretend.
PRETENDED = ("server-clock-jump", "worker-clock-jump", "disk-slow", "dns-change", "worker-cut")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that does nothing is not waited for."""
    brief = {"clocks.HOLD_S": 0.1, "clocks.CLOCK_TIMEOUT_S": 2.0, "disks.HOLD_S": {"always": 0.1, "everysec": 0.1}}
    brief |= {"leases.STRIKES_S": 2.0, "kills.GROWTH_TIMEOUT_S": 1.0, "leases.CUTS_S": 0.5, "leases.ANSWER_TIMEOUT_S": 0.1}
    for name, value in brief.items():
        monkeypatch.setattr(f"chaos.faults.{name}", value)


def unseen(work: Stage, name: str, target: str = TARGET, **more: Any) -> None:
    """The fault strikes, and its witness sees nothing."""
    fault = work.fault(name, target, **more)
    assert fault.inject().ok
    seen = fault.witness()
    fault.heal()
    assert not seen.ok, seen.detail


#: Kind of fault, whom it hits, and the stage that it needs.
SEEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{name: (name, *case) for name, case in CASES.items()},
    "a disk of a server that syncs once a second": ("disk-slow", "servers", {"topology": "aof", "durability": "everysec"}),
    **{f"clock-wrap of {model}": ("clock-wrap", "servers", {"model": model, "delay_ms": 400}) for model in models.NAMES},
    **{f"lease-expired of {model}": ("lease-expired", TARGET, {"model": model}) for model in models.NAMES[1:]},
    "worker-cut of another format": ("worker-cut", TARGET, {"model": "bull"}),
    "worker-cut behind a proxy": ("worker-cut", TARGET, {"dns": True}),
}


@pytest.mark.parametrize("case", SEEN)
def test_all_four_stages_are_seen(case: str, tmp_path: Path) -> None:
    name, target, more = SEEN[case]
    with stage(tmp_path, **more) as work:
        seen = work.carry_out(name, target)
        (named,) = [row["items"] for row in work.rows if row["stage"] == "witness"]
    assert {stage: seen[stage][0] for stage in STAGES} == dict.fromkeys(STAGES, True), seen
    assert all(ok for ok, _ in seen.values()), seen
    assert name != "lease-expired" or {"job", "fence", "nonce"} <= set(named[0])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", PRETENDED)
def test_a_fault_that_did_nothing_has_no_witness(name: str, tmp_path: Path) -> None:
    target, more = CASES[name]
    with stage(tmp_path, pretend=True, **more) as work:
        unseen(work, name, target)


@pytest.mark.parametrize("script", ["SET_FENCE", "SET_SEQUENCE"])
def test_numbers_that_were_not_set_have_no_witness(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, script, "return 1")
    monkeypatch.setattr(clocks, "CLAIM_TIMEOUT_S", 2.0)
    with stage(tmp_path, delay_ms=400) as work:
        unseen(work, "clock-wrap", "servers")


@pytest.mark.usefixtures("impatient")
def test_leases_that_were_not_ended_have_no_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EXPIRE", "return 1")
    with stage(tmp_path) as work:
        unseen(work, "lease-expired")


def test_only_the_lease_that_is_meant_is_ended(tmp_path: Path) -> None:
    with stage(tmp_path) as work:
        fault, view = work.fault("lease-expired"), work.scene.watch.view(TARGET)
        assert work.scene.wait(lambda: bool(view.running), timeout_s=120)
        token = next(iter(view.running))
        assert not fault._expire(token._replace(fence=token.fence + 1))
        assert not fault._expire(token._replace(nonce="f" * 16 + ":1"))
        fault.heal()


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_did_not_grow_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path) as work:
        monkeypatch.setattr(work.scene.crew, "grow_file", lambda name: tmp_path / "another.grow")
        fault = work.fault("worker-oom")
        injected = fault.inject()
        # Somebody else kills it: it was not too big.
        work.scene.crew.children[TARGET].exit_expected = True
        work.scene.signal(work.scene.crew.children[TARGET].pid, signal.SIGKILL)
        seen = fault.witness()
    assert not injected.ok and not seen.ok and "resident" in seen.detail


def test_a_worker_that_is_too_big_and_lives_has_no_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.base.REAP_TIMEOUT_S", 0.5)
    with stage(tmp_path) as work:
        work.scene = replace(work.scene, signal=mutants.pretend)
        fault = work.fault("worker-oom")
        assert fault.inject().ok
        seen = fault.witness()
    assert not seen.ok and "did not die" in seen.detail


def test_a_worker_whose_history_is_full_goes_on_working(tmp_path: Path) -> None:
    with stage(tmp_path) as work:
        seen = work.carry_out("recorder-disk-full", make_fault=disks.RecorderDiskFull)
    assert all(ok for ok, _ in seen.values()), seen


def test_a_history_that_is_not_full_has_no_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.faults.disks.STOP_TIMEOUT_S", 1.0)
    monkeypatch.setattr("chaos.faults.disks.ROOM_BYTES", 1 << 40)
    with stage(tmp_path) as work:
        unseen(work, "recorder-disk-full", make_fault=disks.RecorderDiskFull)


def test_the_jump_is_drawn_by_the_seed(tmp_path: Path) -> None:
    with stage(tmp_path) as work:
        assert all(jump_of(work, seed) == jump_of(work, seed) for seed in range(3))
        found = {jump_of(work, seed) for seed in range(60)}
    assert found == {sign * jump for jump in clocks.JUMPS_S for sign in (1, -1)}


def jump_of(work: Any, seed: int) -> int:
    work.scene.crew.spec = replace(work.scene.crew.spec, seed=seed, lease_ms=LEASE_MS)
    return work.fault("server-clock-jump", "servers")._jump_s
