"""Faults of a server on real servers with a writer: each is seen in the world, stage by stage, and none that did nothing is. The
writer is redis-py, not the engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos import catalogue, mutants, topologies
from chaos.errors import HarnessError
from chaos.faults import (
    clients_killed,
    memory_full,
    script_busy,
    scripts_flushed,
    server_base,
    server_pause,
    server_restart,
    snapshot_restore,
)
from chaos.faults.commands import refusals, setting, tell
from chaos.plan import SERVERS, PlannedFault
from chaos.topology import Durable
from tests.chaos.topology_stage import TopologyStage, stage

#: Faults that a server lives through, and those that end it.
LIVED = ("server-pause", "memory-full", "script-busy", "scripts-flushed", "clients-killed")
ENDED = ("server-kill", "server-restart", "snapshot-restore")

STAGES = {"inject", "witness", "heal", "healed"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults stay for as long as takes to see them."""
    monkeypatch.setattr(server_pause, "PAUSE_S", 1.0)
    monkeypatch.setattr(memory_full, "HOLD_S", 0.3)
    monkeypatch.setattr(script_busy, "HOLD_S", 0.3)
    for module in (scripts_flushed, clients_killed):
        monkeypatch.setattr(module, "STORM_S", 0.5)
    monkeypatch.setattr(server_restart, "DOWN_S", 0.3)
    monkeypatch.setattr(snapshot_restore, "LOST_LOAD_S", 0.5)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects that never come are not waited for."""
    monkeypatch.setattr(server_base, "ASK_TIMEOUT_S", 0.1)
    monkeypatch.setattr(server_pause, "STATE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(memory_full, "REFUSED_TIMEOUT_S", 0.1)
    monkeypatch.setattr(script_busy, "BUSY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(scripts_flushed, "REFUSED_TIMEOUT_S", 0.1)
    monkeypatch.setattr(clients_killed, "ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(server_restart, "END_TIMEOUT_S", 0.1)


def seen_in_full(found: TopologyStage, name: str) -> dict[str, str]:
    """What each stage said; all were seen, in their order."""
    seen = found.carry_out(name)
    assert set(seen) >= STAGES and all(ok for ok, _ in seen.values()), seen
    at_ns = [found.at_ns[stage] for stage in ("inject", "witness", "heal", "healed")]
    assert at_ns == sorted(at_ns)
    return {stage: detail for stage, (_, detail) in seen.items()}


@pytest.mark.parametrize("name", LIVED)
def test_a_fault_that_a_server_lives_through_is_seen_and_loses_nothing(name: str, tmp_path: Path) -> None:
    with stage("embedded", tmp_path) as (found, end):
        port = found.servers.address().port
        settings = {name: setting(port, name) for name in ("maxmemory", "maxmemory-policy", "busy-reply-threshold")}
        seen_in_full(found, name)
        assert {name: setting(port, name) for name in settings} == settings
        end()
        assert found.lost() == []


@pytest.mark.parametrize("name", ["server-kill", "server-restart"])
def test_a_server_whose_writes_are_on_the_disk_comes_back_with_all_of_them(name: str, tmp_path: Path) -> None:
    with stage("aof", tmp_path, "always") as (found, end):
        seen = seen_in_full(found, name)
        assert ("the server cut off the half command" in seen["healed"]) == (name == "server-kill")
        end()
        assert found.lost() == []


@pytest.mark.parametrize(
    ("name", "durability", "words"),
    [("snapshot-restore", "always", "keys went back"), ("server-kill", "everysec", "the server ended; connections refused")],
)
def test_what_a_file_of_before_does_not_hold_is_lost_in_the_window_that_says_so(
    name: str, durability: str, words: str, tmp_path: Path
) -> None:
    with stage("aof", tmp_path, durability) as (found, end):
        assert words in seen_in_full(found, name)["witness"]
        end()
        loss = catalogue.KINDS[name].loss
        assert loss is not None and (loss.since, loss.before_ms, loss.after_ms) == ("snapshot", 0, 0)
        lost_ns = [found.writer.acknowledged_ns[key] for key in found.lost()]
        assert lost_ns and found.at_ns["snapshot"] <= min(lost_ns) <= max(lost_ns) <= found.at_ns[loss.until]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("topology", "name"), [*(("embedded", name) for name in LIVED), *(("aof", name) for name in ENDED)])
def test_a_fault_that_does_nothing_has_no_witness(topology: str, name: str, tmp_path: Path) -> None:
    with stage(topology, tmp_path) as (found, _):
        found.scene = replace(found.scene, pretend=True, signal=mutants.pretend)
        seen = found.carry_out(name)
        assert seen["inject"][0] and not seen["witness"][0], seen


def test_a_server_that_does_not_mention_the_half_command_has_not_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Durable, "tear", lambda self: 28)
    with stage("aof", tmp_path) as (found, _):
        seen = found.carry_out("server-kill")
        assert seen["witness"][0] and not seen["healed"][0], seen
        assert "the server did not cut off the half command" in seen["healed"][1]


def test_a_snapshot_that_changes_nothing_has_no_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is killed and started again with its own files."""
    monkeypatch.setattr(snapshot_restore.SnapshotRestore, "change_files", lambda self: "its own files")
    with stage("aof", tmp_path) as (found, _):
        seen = found.carry_out("snapshot-restore")
        assert not seen["witness"][0] and seen["witness"][1].endswith("; 0 keys went back"), seen


def test_what_was_done_in_part_is_undone_when_the_fault_is_interrupted(tmp_path: Path) -> None:
    with stage("embedded", tmp_path) as (found, _):
        planned = PlannedFault("1-memory-full", "memory-full", SERVERS, 0)

        class Interrupted(memory_full.MemoryFull):
            def act(self) -> str:
                super().act()
                raise HarnessError("interrupted by SIGINT")

        with pytest.raises(HarnessError, match="interrupted"):
            Interrupted(found.scene, planned).inject()
        assert setting(found.servers.address().port, "maxmemory") == "0"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("topology", topologies.SEVERAL)
def test_of_several_servers_the_primary_of_the_keys_is_hit(topology: str, tmp_path: Path) -> None:
    with stage(topology, tmp_path) as (found, end):
        primary = found.servers.primary()
        for name, code in (("memory-full", "OOM"), ("scripts-flushed", "NOSCRIPT")):
            before = {port: refusals(port, code) for port in found.servers.ports}
            seen_in_full(found, name)
            hit = [server for server, port in enumerate(found.servers.ports) if refusals(port, code) > before[port]]
            assert hit == [primary] == [found.servers.primary()]
        if topology == topologies.REPLICA:
            for name in ("server-pause", "script-busy"):
                seen_in_full(found, name)
        assert tell(found.servers.ports[primary], "PING")
        end()
        assert found.lost() == []
