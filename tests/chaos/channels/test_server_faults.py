"""The server ends and comes back, or goes back to a snapshot: each witness sees the effect on a real server, or fails."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from chaos import mutants, processes
from chaos.channels import faults as channel_faults
from chaos.channels.faults import FAULTS
from chaos.faults import server, snapshot_restore
from record.history import load_file
from tests.chaos.channels.stage import CHANNEL, Stage, planned
from tests.chaos.channels.stage import stage as stage
from tests.chaos.histories import carried_out


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DOWN_S", 0.3)
    monkeypatch.setattr(snapshot_restore, "LOST_LOAD_S", 0.5)


def seen_in_full(stage: Stage, name: str, folder: Path, delay_ms: int = 0) -> list[dict[str, Any]]:
    """The rows of a fault, each of whose stages was seen, in their order."""
    folder.mkdir()
    fault = planned(name, delay_ms)
    rows, *_ = carried_out(FAULTS[name](stage.scene, fault), fault, folder / "fault.jsonl")
    usual = [(one, "ok") for one in ("inject", "witness", "heal", "healed")]
    assert [(row["stage"], row["result"]) for row in rows] == usual, rows
    assert [row["t_ns"] for row in rows] == sorted(row["t_ns"] for row in rows)
    return rows


def a_server_that_did_not_end_is_no_witness(name: str, stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "END_TIMEOUT_S", 0.2)
        patch.setattr(channel_faults, "AHEAD_TIMEOUT_S", 0.2)
        object.__setattr__(stage.scene, "signal", mutants.pretend)
        fault = stage.make(name)
        assert fault.inject().ok and not fault.witness().ok
        fault.heal()
        assert not fault.witness_healed().ok
        object.__setattr__(stage.scene, "signal", processes.send)


def a_process_that_is_not_answered_again_is_named(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "ANSWER_TIMEOUT_S", 0.5)
        fault = stage.make("server-restart")
        fault.inject()
        fault.witness()
        network = stage.scene.network
        assert network is not None
        network.cut(["publisher-1"])
        healed = fault.heal()
        reader = stage.scene.watch.view("subscriber-1")
        assert stage.scene.wait(lambda: reader.answered.sent_ns > healed.t_ns, timeout_s=60)
        seen = fault.witness_healed()
        assert not seen.ok and "all but publisher-1" in seen.detail
        network.heal_all()


def test_a_server_that_ends_comes_back_with_everything(stage: Stage, tmp_path: Path) -> None:
    a_server_that_did_not_end_is_no_witness("server-restart", stage)
    seen: set[str] = set()
    for delay_ms in range(20):
        if len(seen) == len(server.SIGNALS):
            break
        before = stage.scene.keyspace.clocks()[CHANNEL]
        rows = seen_in_full(stage, "server-restart", tmp_path / str(delay_ms), delay_ms)
        assert (stage.scene.keyspace.clocks()[CHANNEL] or 0) >= (before or 0)
        seen.add(rows[0]["detail"].split()[0])
    assert seen == {number.name for number in server.SIGNALS}
    a_process_that_is_not_answered_again_is_named(stage)
    servers = stage.scene.servers
    assert servers.complaint() == ""
    servers._server.process.send_signal(signal.SIGKILL)
    servers._server.process.wait()
    assert servers.complaint() == "the embedded server exited in mid-run with code -9"
    servers.start()
    assert servers.complaint() == ""


@pytest.mark.slow
def test_a_server_that_goes_back_to_a_snapshot_is_seen_in_its_clocks(stage: Stage) -> None:
    copy = stage.scene.servers.folder.with_name("snapshot")
    a_server_that_did_not_end_is_no_witness("snapshot-restore", stage)
    shutil.rmtree(copy)
    with pytest.MonkeyPatch.context() as patch:
        # The server is killed and started again with its own files.
        patch.setattr(snapshot_restore.SnapshotRestore, "change_files", lambda self: "its own files")
        fault = stage.make("snapshot-restore")
        fault.inject()
        seen = fault.witness()
        assert not seen.ok and seen.detail.endswith("; 0 clocks went back")
        fault.heal()
        fault.witness_healed()
    shutil.rmtree(copy)
    fault = stage.make("snapshot-restore")
    injected = fault.inject()
    # The snapshot stands before all that may be lost.
    row = [row for row in load_file(stage.folder / "harness.jsonl").rows if row["stage"] == "snapshot"][-1]
    assert (row["fault"], row["name"], row["result"]) == ("1-snapshot-restore", "snapshot-restore", "ok")
    assert row["t_ns"] < injected.t_ns
    published = load_file(stage.folder / "publisher-1.jsonl").rows
    safe = [item["clock"] for one in published if one["type"] == "ok" and one["done_ns"] < row["t_ns"] for item in one["items"]]
    witnessed = fault.witness()
    assert (stage.scene.keyspace.clocks()[CHANNEL] or 0) >= max(safe)
    seen = (injected, witnessed, fault.heal(), fault.witness_healed())
    assert all(one.ok for one in seen), seen
    assert [one.t_ns for one in seen] == sorted(one.t_ns for one in seen)
