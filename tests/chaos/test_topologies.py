"""Topologies: who is primary, what stands in front of whom, and their faults on real servers. The writer is redis-py, not the
engine."""

from pathlib import Path

import pytest
import redis
from redis.exceptions import RedisClusterException

from chaos import catalogue, topologies
from chaos.catalogue import fitting
from chaos.channels import plan as channel_plan
from chaos.errors import HarnessError
from chaos.plan import FAULTS_A_MINUTE, NETWORK_FAULT_NAMES, SERVERS, draw, worker_names
from chaos.topology import Setting, make
from chaos.topology.base import client_of
from tests.chaos.topology_stage import stage, wait
from tests.engine.helpers.waiting import wait_until

WORKERS = worker_names(3)


@pytest.mark.parametrize("topology", topologies.TOPOLOGIES)
def test_a_plan_has_only_faults_that_belong_to_its_topology(topology: str) -> None:
    plans = [draw(seed, workers=WORKERS, topology=topology) for seed in range(20)]
    for plan in plans:
        assert sorted(planned.name for planned in plan.faults) == sorted(catalogue.usual(topology))
        for planned in plan.faults:
            kind = catalogue.KINDS[planned.name]
            assert topology in kind.topologies and (planned.target == SERVERS) == (kind.hits == catalogue.SERVERS)
    alone = topology not in topologies.FOLLOWED
    assert all(plan.needs_network() is alone for plan in plans) and alone == ("net-down" in fitting(topology))
    assert len({tuple(planned.name for planned in plan.faults) for plan in plans}) > 1


@pytest.mark.parametrize("topology", topologies.TOPOLOGIES)
def test_a_short_plan_has_a_drawn_few_of_them_and_most_are_of_servers(topology: str) -> None:
    few = [draw(seed, workers=WORKERS, topology=topology, minutes=1) for seed in range(400)]
    assert few == [draw(seed, workers=WORKERS, topology=topology, minutes=1) for seed in range(400)]
    assert {len(plan.faults) for plan in few} <= {0, 2, FAULTS_A_MINUTE}
    for plan in few:
        # Two that share their time leave place for one.
        wanted = 0 if not plan.faults else 1 if any(planned.during for planned in plan.faults) else 2
        assert sum(planned.target == SERVERS for planned in plan.faults) == wanted
    # Whatever belongs to it comes in some plan.
    assert {planned.name for plan in few for planned in plan.faults} == set(fitting(topology))


def test_channels_leave_out_what_needs_one_server_or_a_proxy_for_each() -> None:
    assert fitting("cluster", catalogue.CHANNELS) == ("subscriber-kill", *fitting("cluster", hits=(catalogue.SERVERS,)))
    publishers = channel_plan.publisher_names(2)
    for seed in range(20):
        faults = channel_plan.draw(seed, publishers=publishers, topology="sentinel", minutes=1).faults
        assert {one.name for one in faults} <= set(fitting("sentinel", catalogue.CHANNELS)) and len(faults) <= FAULTS_A_MINUTE
    assert not set(NETWORK_FAULT_NAMES) & set(fitting("cluster"))


def test_several_servers_need_proxies(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="needs proxies"):
        make("replica", Setting(tmp_path / "server.log"))


@pytest.mark.slow
def test_replicas_that_stand_still_are_seen_to_lag_and_to_catch_up(tmp_path: Path) -> None:
    with stage("replica", tmp_path) as (found, end):
        seen = found.carry_out("replica-lag")
        assert all(ok for ok, _ in seen.values()), seen
        end()
        assert found.servers.is_whole() and found.lost() == []


@pytest.mark.slow
def test_a_cluster_announces_its_proxies_and_loses_nothing_when_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody takes a primary for dead that pauses with its machine.
    monkeypatch.setattr("chaos.topology.several.NODE_TIMEOUT_MS", 15_000)
    with stage("cluster", tmp_path) as (found, end):
        old = found.servers.primary()

        def known() -> set[int]:
            found.client.nodes_manager.initialize()
            return {node.port for node in found.client.get_nodes()}

        # The node that is asked hears of the last replicas by gossip.
        wait_until(lambda: known() == set(found.servers.servers.announced_ports), "all are announced", 120)
        assert not known() & set(found.servers.ports)
        for name in ("failover-clean", "slot-move"):
            seen = found.carry_out(name)
            assert all(ok for ok, _ in seen.values()), seen
        assert found.servers.primary() not in (None, old) and found.servers.complaint() == ""
        end()
        assert found.lost() == []


@pytest.mark.slow
def test_a_failover_that_no_fault_says_is_noticed(tmp_path: Path) -> None:
    with stage("sentinel", tmp_path) as (found, _):
        assert found.servers.unplanned_failover() == "" and found.servers.known == 0
        found.servers.failover()
        assert wait(lambda: "in place of server-0, without a fault" in found.servers.unplanned_failover(), timeout_s=120)


@pytest.mark.slow
def test_a_client_that_does_not_hear_of_a_decision_is_seen_at_the_primary_that_was_cut_off(tmp_path: Path) -> None:
    """redis-py looks for the primary only when a connection fails: here none does."""
    with stage("sentinel", tmp_path) as (found, end):
        old = found.servers.primary()
        seen = found.carry_out("primary-cut")
        stray = seen.pop("stray")
        assert all(ok for ok, _ in seen.values()), seen
        assert stray[0] is False and f"ran at server-{old} after" in stray[1]
        end()


@pytest.mark.slow
@pytest.mark.parametrize("topology", topologies.FOLLOWED)
def test_failovers_with_and_without_lost_writes(topology: str, tmp_path: Path) -> None:
    with stage(topology, tmp_path) as (found, end):
        for name in ("failover-clean", "primary-kill", "failover-lossy"):
            old = found.servers.primary()
            seen = found.carry_out(name)
            assert all(ok for ok, _ in seen.values()), seen
            assert found.servers.primary() not in (None, old) and found.servers.is_whole()
        end()
        assert found.servers.complaint() == ""


@pytest.mark.slow
def test_sentinels_and_servers_are_known_by_their_proxies_alone(tmp_path: Path) -> None:
    with stage("sentinel", tmp_path) as (found, _):
        inner = found.servers.servers
        proxies = {*inner.server_ports, *inner.sentinel_ports}
        assert len(proxies) == 6 and not proxies & {*found.servers.ports, *(one.port for one in inner.sentinels)}
        with redis.Redis(port=inner.sentinels[0].port, decode_responses=True) as sentinel:
            told: list = [sentinel.execute_command(f"SENTINEL {what}", "ironclaim") for what in ("SENTINELS", "REPLICAS")]
        assert {int(one["port"]) for one in (*told[0], *told[1])} <= proxies
        assert found.servers.address().port == found.servers.ports[0]


def test_a_url_of_each_kind_has_a_client() -> None:
    with pytest.raises(RedisClusterException, match="at least one reachable node"):
        client_of("redis+cluster://127.0.0.1:1", 0.1)
    assert client_of("sentinel://127.0.0.1:1,127.0.0.1:2/name?db=0", 0.1).connection_pool.service_name == "name"
