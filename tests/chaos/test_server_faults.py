"""Faults of a server on real servers with a writer: each is seen in the world, stage by stage, and none that did nothing is. The
writer is redis-py, not the engine; one after the other they are carried out on one server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos import catalogue, errors, mutants, plan, topologies
from chaos.faults import commands, server, snapshot_restore
from chaos.faults.asking import refusals, setting, tell
from chaos.topology import Durable
from tests.chaos.topology_stage import TopologyStage, stage

#: Faults that a server lives through, and those that end it.
LIVED = ("server-pause", "memory-full", "script-busy", "scripts-flushed", "clients-killed")
ENDED = ("server-kill", "server-restart", "snapshot-restore")

STAGES = {"inject", "witness", "heal", "healed"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults stay for as long as takes to see them."""
    brief = {"server.PAUSE_S": 1.0, "server.DOWN_S": 0.3, "snapshot_restore.LOST_LOAD_S": 0.5}
    for name, value in (brief | {"commands.OOM_HOLD_S": 0.3, "commands.HOLD_S": 0.3, "commands.STORM_S": 0.5}).items():
        monkeypatch.setattr(f"chaos.faults.{name}", value)


def seen_in_full(found: TopologyStage, name: str) -> dict[str, str]:
    """What each stage said; all were seen, in their order."""
    seen = found.carry_out(name)
    assert set(seen) >= STAGES and all(ok for ok, _ in seen.values()), (name, seen)
    at_ns = [found.at_ns[stage] for stage in ("inject", "witness", "heal", "healed")]
    assert at_ns == sorted(at_ns), name
    return {stage: detail for stage, (_, detail) in seen.items()}


def has_no_witness_when_it_does_nothing(found: TopologyStage, name: str) -> None:
    """Effects that never come are not waited for."""
    scene = found.scene
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found, "scene", replace(scene, pretend=True, signal=mutants.pretend))
        for module, names in ((server, ("ASK", "STATE", "END")), (commands, ("OOM", "REFUSED", "ANSWER"))):
            for limit in names:
                patch.setattr(module, f"{limit}_TIMEOUT_S", 0.1)
        patch.setattr(commands, "BUSY_TIMEOUT_S", 0.5)
        patch.setattr(server, "PAUSE_S", 0.2)
        patch.setattr(commands, "STORM_S", 0.1)
        seen = found.carry_out(name)
        assert seen["inject"][0] and not seen["witness"][0], (name, seen)


def is_interrupted(found: TopologyStage) -> None:
    """What was done in part is undone."""

    class Interrupted(commands.MemoryFull):
        def act(self) -> str:
            super().act()
            raise errors.HarnessError("interrupted by SIGINT")

    with pytest.raises(errors.HarnessError, match="interrupted"):
        Interrupted(found.scene, plan.PlannedFault("1-memory-full", "memory-full", plan.SERVERS, 0)).inject()


def loses_what_the_file_of_before_does_not_hold(found: TopologyStage, end: Callable[[], None], name: str, words: str) -> None:
    """In the window that says so."""
    assert words in seen_in_full(found, name)["witness"]
    end()
    loss = catalogue.KINDS[name].loss
    assert loss is not None and (loss.since, loss.before_ms, loss.after_ms) == ("snapshot", 0, 0)
    lost_ns = [found.writer.acknowledged_ns[key] for key in found.lost()]
    assert lost_ns and found.at_ns["snapshot"] <= min(lost_ns) <= max(lost_ns) <= found.at_ns[loss.until]


def test_a_fault_that_a_server_lives_through_is_seen_unless_it_does_nothing_and_loses_nothing(tmp_path: Path) -> None:
    with stage("embedded", tmp_path) as (found, end):
        port = found.servers.address().port
        # Not what the fault sets; no key of the writer may be evicted.
        tell(port, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        settings = {name: setting(port, name) for name in ("maxmemory", "maxmemory-policy", "busy-reply-threshold")}
        assert settings["maxmemory"] == "0"
        is_interrupted(found)
        for name in LIVED:
            has_no_witness_when_it_does_nothing(found, name)
            seen_in_full(found, name)
            assert {name: setting(port, name) for name in settings} == settings, name
        end()
        assert found.lost() == []


@pytest.mark.slow
def test_a_server_comes_back_with_all_of_its_writes_or_with_those_of_a_snapshot(tmp_path: Path) -> None:
    """Each write is on the disk before it is answered."""
    with stage("aof", tmp_path, "always") as (found, end):
        for name in ENDED:
            has_no_witness_when_it_does_nothing(found, name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Durable, "tear", lambda self: 28)
            seen = found.carry_out("server-kill")
            assert seen["witness"][0] and not seen["healed"][0], seen
            assert "the server did not cut off the half command" in seen["healed"][1]
        for name in ("server-kill", "server-restart"):
            seen = seen_in_full(found, name)
            assert ("the server cut off the half command" in seen["healed"]) == (name == "server-kill")
            assert found.lost() == [], name
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshot_restore.SnapshotRestore, "change_files", lambda self: "its own files")
            seen = found.carry_out("snapshot-restore")
            assert not seen["witness"][0] and seen["witness"][1].endswith("; 0 keys went back"), seen
        loses_what_the_file_of_before_does_not_hold(found, end, "snapshot-restore", "keys went back")


def test_a_server_whose_writes_are_on_the_disk_later_loses_the_last_of_them(tmp_path: Path) -> None:
    with stage("aof", tmp_path, "everysec") as (found, end):
        loses_what_the_file_of_before_does_not_hold(found, end, "server-kill", "the server ended; connections refused")


@pytest.mark.slow
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
