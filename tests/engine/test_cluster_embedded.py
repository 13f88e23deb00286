"""The embedded cluster on real processes: up when asked for, gone afterwards, and a slot that can be stopped half way."""

import socket
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AskError, MovedError

import chaos.topology.embedded_cluster as cluster_module
from chaos.topology.embedded_cluster import EmbeddedCluster
from engine.testing import ServerFailed, free_port
from tests.engine.cluster_desk import CALM_MS
from tests.engine.using import is_gone, refused, refuses, shell_script

#: Two keys of one slot.
FIRST, SECOND = "{tag}first", "{tag}second"


@pytest.fixture
def cluster(three_primaries: EmbeddedCluster) -> EmbeddedCluster:
    """An empty cluster with no move on its way."""
    three_primaries.end_moves(three_primaries.slot_of(FIRST))
    three_primaries.flush()
    return three_primaries


@pytest.mark.slow
def test_three_primaries_share_the_slots_inside_the_block_and_are_gone_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them finds its bus port taken and tries another."""
    taken = socket.create_server(("127.0.0.1", 0))
    offered = iter([free_port(), taken.getsockname()[1]])
    monkeypatch.setattr(cluster_module, "free_port", lambda: next(offered, None) or free_port())
    with taken, EmbeddedCluster(node_timeout_ms=CALM_MS) as cluster:
        assert next(offered, None) is None and len(set(cluster.ports)) == 3
        for node, url in enumerate(cluster.urls):
            with redis.Redis.from_url(url) as client:
                info: Any = client.execute_command("CLUSTER INFO")
                assert (info["cluster_state"], info["cluster_slots_ok"], info["cluster_size"]) == ("ok", "16384", "3")
                assert client.info("server")["process_id"] == cluster.pids[node]
        assert {cluster.owner_of(slot) for slot in (0, 5_460, 5_461, 10_922, 10_923, 16_383)} == {0, 1, 2}
        pids, ports = cluster.pids, cluster.ports
        folders = [Path(f"/proc/{pid}/cwd").resolve() for pid in pids]
    assert len(set(folders)) == 3 and not any(folder.exists() for folder in folders) and all(map(is_gone, pids))
    assert all(map(refuses, ports))
    refused(ServerFailed, "not running", getattr, cluster, "ports")


def test_a_program_that_does_not_run_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    broken = shell_script(tmp_path, "echo 'no cluster here' >&2; exit 1")
    refused(ServerFailed, "exited with code 1; no cluster here", EmbeddedCluster(binary=broken).__enter__)


@pytest.mark.slow
def test_a_move_stops_where_the_test_wants_it(cluster: EmbeddedCluster) -> None:
    slot = cluster.slot_of(FIRST)
    target = ((source := cluster.owner_of(slot)) + 1) % 3
    old, new = cluster.client(source), cluster.client(target)
    old.mset({FIRST: "1", SECOND: "2"})

    move = cluster.begin_move(slot, target)
    assert sorted(move.keys_left()) == [FIRST.encode(), SECOND.encode()] and old.mget(FIRST, SECOND) == [b"1", b"2"]
    move.move_keys([FIRST.encode()])
    assert (move.keys_left(), cluster.owner_of(slot)) == ([SECOND.encode()], source)
    asked = refused(AskError, f"{slot} 127.0.0.1:{cluster.ports[target]}", old.get, FIRST)
    moved = refused(MovedError, f"{slot} 127.0.0.1:{cluster.ports[source]}", new.get, FIRST)
    assert (type(asked), type(moved)) == (AskError, MovedError)
    refused(redis.ResponseError, "Multiple keys request during rehashing of slot", old.mget, FIRST, SECOND)
    # It reads a key of that slot which it does not declare.
    refused(redis.ResponseError, "non local key", old.eval, "return redis.call('GET', ARGV[1])", 1, SECOND, FIRST)

    move.finish()
    assert cluster.owner_of(slot) == target and new.mget(FIRST, SECOND) == [b"1", b"2"]
    assert old.execute_command("CLUSTER COUNTKEYSINSLOT", slot) == 0


@pytest.mark.slow
def test_a_whole_move_is_seen_stage_by_stage(cluster: EmbeddedCluster) -> None:
    slot = cluster.slot_of(FIRST)
    source = cluster.owner_of(slot)
    for number in range(5):
        cluster.client(source).set(f"{{tag}}{number}", number)
    seen: list[int] = []
    cluster.move_slot(slot, (source + 1) % 3, portion=2, step=lambda move: seen.append(len(move.keys_left())))
    assert seen == [5, 3, 1, 0, 0] and cluster.owner_of(slot) == (source + 1) % 3


def test_a_key_that_was_written_at_both_nodes_stops_the_move(cluster: EmbeddedCluster) -> None:
    slot = cluster.slot_of(FIRST)
    target = ((source := cluster.owner_of(slot)) + 1) % 3
    cluster.client(source).set(FIRST, "here")
    move = cluster.begin_move(slot, target)
    with cluster.client(target).client() as asking:
        asking.execute_command("ASKING")
        asking.set(FIRST, "and there")
    refused(redis.ResponseError, "BUSYKEY", move.finish)


def set_node_timeout(cluster: EmbeddedCluster, timeout_ms: int) -> None:
    """Of the nodes that live: short only while one is dead, or on a machine that stands still others would take over."""
    for node in range(len(cluster.servers)):
        if cluster.alive(node):
            cluster.client(node).config_set("cluster-node-timeout", timeout_ms)


@pytest.mark.slow
def test_a_replica_takes_the_place_of_a_killed_primary_which_comes_back_empty_and_follows() -> None:
    with EmbeddedCluster(replicas=1, node_timeout_ms=CALM_MS) as cluster:
        slot = cluster.slot_of(FIRST)
        old = cluster.primary_of(slot)
        assert old is not None and (cluster.role(old), len(cluster.pids)) == ("master", 6)
        (replica,) = cluster.replicas_of(old)
        cluster.client(old).set(FIRST, "kept")
        assert cluster.client(old).execute_command("WAIT", 1, 5_000) == 1
        cluster.kill(old)
        assert not cluster.alive(old)
        set_node_timeout(cluster, 1_000)
        assert cluster.wait_for_promotion(slot, old) == replica and cluster.role(replica) == "master"
        assert cluster.client(replica).get(FIRST) == b"kept"
        set_node_timeout(cluster, CALM_MS)
        port = cluster.ports[old]
        cluster.start_again(old)
        cluster.wait_until_whole()
        assert (cluster.role(old), cluster.ports[old], cluster.replicas_of(replica)) == ("slave", port, [old])
        cluster.failover(old)
        assert cluster.wait_for_promotion(slot, replica) == old and cluster.client(old).get(FIRST) == b"kept"
