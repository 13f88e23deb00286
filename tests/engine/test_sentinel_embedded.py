"""The embedded sentinels on real processes: who is primary, a failover, the old primary back, and nothing left behind."""

from pathlib import Path

import pytest
import redis

from chaos.topology.embedded_sentinel import SERVICE, EmbeddedSentinel
from engine.testing import ServerFailed
from tests.engine.using import is_gone, refused, wait_until


def client(servers: EmbeddedSentinel, server: int) -> redis.Redis:
    return redis.Redis(port=servers.servers[server].port, decode_responses=True, socket_timeout=5)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_sentinels_promote_a_replica_and_the_old_primary_comes_back_empty(tmp_path: Path) -> None:
    with EmbeddedSentinel(logs=tmp_path) as servers:
        assert servers.primary() == 0 and [servers.role(number) for number in range(3)] == ["master", "slave", "slave"]
        assert sorted(servers.pids) == [*(f"sentinel-{n}" for n in range(3)), *(f"server-{n}" for n in range(3))]
        sentinels = [("127.0.0.1", port) for port in servers.sentinel_ports]
        found = redis.Sentinel(sentinels, socket_timeout=5).discover_master(SERVICE)
        assert found == ("127.0.0.1", servers.server_ports[0])
        assert servers.url == f"sentinel://{','.join(f'{host}:{port}' for host, port in sentinels)}/{SERVICE}?db=0"
        with client(servers, 0) as old:
            old.set("key", "kept")
            assert old.wait(2, 5_000) == 2
        servers.kill(0)
        new = servers.wait_for_failover(0)
        assert new in (1, 2) and servers.primary() == new and not servers.alive(0) and "server-0" not in servers.pids
        with client(servers, new) as promoted:
            assert promoted.get("key") == "kept" and promoted.set("key", "new")
        servers.start_again(0)
        with client(servers, 0) as old:
            assert (old.dbsize(), servers.role(0), servers.primary()) == (0, "master", new)
            servers.wait_until_whole()
            assert servers.role(0) == "slave"
            wait_until(lambda: old.get("key") == "new", "the old primary has what the new one has")
        pids = list(servers.pids.values())
    assert all(map(is_gone, pids)) and "Unhandled" not in (tmp_path / "sentinel-0.log").read_text()
    with pytest.raises(ServerFailed, match="not running"):
        _ = servers.url


@pytest.mark.slow
def test_an_operator_s_failover_and_names_for_what_stands_in_front() -> None:
    told: dict[str, int] = {}

    def announce(name: str, port: int) -> int:
        told[name] = port
        return port

    with EmbeddedSentinel(replicas=1, announce=announce) as servers:
        assert list(told) == ["server-0", "server-1", "sentinel-0", "sentinel-1", "sentinel-2"]
        servers.failover()
        assert servers.wait_for_failover(0) == 1


@pytest.mark.slow
def test_without_a_majority_nobody_is_primary() -> None:
    with EmbeddedSentinel(replicas=1) as servers:
        servers.sentinels[0].kill()
        assert servers.primary() == 0
        servers.sentinels[1].kill()
        assert servers.primary() is None
        refused(ServerFailed, "the sentinels name server None", servers.wait_for_failover, 0, timeout_s=0.1)
