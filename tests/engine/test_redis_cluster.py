"""Queues and channels in a real cluster by their url alone: slots that move, redirections, and a primary that is killed."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from chaos.topology.embedded_cluster import EmbeddedCluster
from engine import AsyncQueue, Channel, ConnectOptions, Queue, Worker, async_queues, models, queues
from engine.errors import Malformed, OutcomeUnknown, ServerUnavailable
from engine.testing import free_port
from tests.engine.using import DEADLINE_S, Book, ReadEvents, at_work, refused, wait_until

HURRIED = ConnectOptions(deadline_ms=300, connect_timeout_ms=200)


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        yield made


@pytest.fixture
def cluster(shared: EmbeddedCluster) -> EmbeddedCluster:
    """An empty one."""
    shared.flush()
    return shared


def url_of(cluster: EmbeddedCluster, *nodes: int) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{cluster.ports[node]}" for node in nodes or range(3))


def test_a_queue_is_found_from_any_node_and_listed_in_a_slot_of_its_own(cluster: EmbeddedCluster) -> None:
    names = [f"q{number}" for number in range(6)]
    for number, name in enumerate(names):
        with Queue(name, url=url_of(cluster, number % 3)) as queue:
            assert queue.enqueue("work", {}, id="a").created
            owner = cluster.owner_of(cluster.slot_of(queue.model.keys.prefix))
            assert cluster.client(owner).exists(queue.model.keys.job("a")) == 1
    assert {info.name for info in queues(url_of(cluster))} == {*names}
    assert {info.name for info in asyncio.run(async_queues(url_of(cluster, 2)))} == {*names}
    assert len({cluster.owner_of(cluster.slot_of(f"{{{name}}}")) for name in names}) == 3, "they are not all at one node"


def test_a_slot_that_moves_under_load_is_followed(cluster: EmbeddedCluster) -> None:
    book, sent, stop = Book(), list[str](), threading.Event()
    with Queue("q", url=url_of(cluster)) as queue, Queue("q", url=url_of(cluster)) as worked:
        slot = cluster.slot_of(queue.model.keys.prefix)

        def produce() -> None:
            while not stop.wait(0.002):
                sent.append(queue.enqueue("work", {}).job)

        worker = Worker(worked, book.handlers("w", "work"), concurrency=4, lease_ms=600_000)
        with at_work(worker), ThreadPoolExecutor(1) as threads, ExitStack() as ends:
            ends.callback(stop.set)
            producing, owner = threads.submit(produce), cluster.owner_of(slot)
            for target in ((owner + 1) % 3, (owner + 2) % 3, owner):
                seen = len(sent)
                wait_until(lambda seen=seen: len(sent) > seen + 20, "jobs come")
                cluster.move_slot(slot, target, portion=3)
            stop.set()
            producing.result(DEADLINE_S)
            wait_until(lambda: {job for _, job in book.ran} >= {*sent}, "each runs")
        wait_until(lambda: queue.counts().finished == len(sent), "each is finished once")
    assert len(book.ran) == len(sent) > 60


def redirected(cluster: EmbeddedCluster) -> int:
    """How many calls the nodes have redirected for good."""
    stats: list[Any] = [cluster.client(node).info("errorstats") for node in range(3)]
    return sum(int(found.get("errorstat_MOVED", {}).get("count", 0)) for found in stats)


def test_where_a_slot_has_gone_is_remembered(cluster: EmbeddedCluster) -> None:
    """Calls find their way also where each is redirected anew, so the redirections are counted."""
    with Queue("q", url=url_of(cluster)) as queue:
        slot = cluster.slot_of(queue.model.keys.prefix)
        assert queue.enqueue("work", {}).created
        cluster.move_slot(slot, (cluster.owner_of(slot) + 1) % 3)
        before = redirected(cluster)
        assert all(queue.enqueue("work", {}).created for _ in range(12))
        assert 1 <= redirected(cluster) - before <= 2


async def test_asyncio_calls_follow_a_slot(cluster: EmbeddedCluster) -> None:
    async with AsyncQueue("q", url=url_of(cluster)) as queue:
        slot = cluster.slot_of(queue.model.keys.prefix)
        for count in (20, 40):
            await asyncio.gather(*(queue.enqueue("work", {}) for _ in range(20)))
            assert (await queue.counts()).waiting == count
            target = (await asyncio.to_thread(cluster.owner_of, slot) + 1) % 3
            await asyncio.to_thread(cluster.move_slot, slot, target)
        assert (await queue.counts()).waiting == 40


def test_an_ask_is_followed_within_the_call(cluster: EmbeddedCluster) -> None:
    with Queue("q", url=url_of(cluster)) as queue:
        queue.events.on()
        queue.enqueue("work", {}, id="a")
        move = cluster.begin_move(cluster.slot_of(queue.model.keys.prefix), 0 if _owner(cluster, queue) else 1)
        move.move_keys(move.keys_left())
        asks, call = _asks(cluster, move.target), queue.model.call(ReadEvents("$", 1, 0))
        assert queue.driver.run(call).after != "0-0", "the node that imports the slot has answered"

        async def ask() -> None:
            async with AsyncQueue("q", url=url_of(cluster)) as other:
                assert (await other.driver.run(call)).after != "0-0"

        asyncio.run(ask())
        assert _asks(cluster, move.target) >= asks + 2
        move.finish()
        assert queue.counts().waiting == 1


def _owner(cluster: EmbeddedCluster, queue: Queue) -> int:
    return cluster.owner_of(cluster.slot_of(queue.model.keys.prefix))


def _asks(cluster: EmbeddedCluster, node: int) -> int:
    return int(cluster.client(node).info("commandstats").get("cmdstat_asking", {"calls": 0})["calls"])


@pytest.fixture
def replicated() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(replicas=1) as made:
        yield made


@pytest.mark.slow
def test_a_primary_that_is_killed_is_replaced(replicated: EmbeddedCluster) -> None:
    book, cluster, url = Book(), replicated, url_of(replicated)
    with Queue("q", url=url) as queue, Queue("q", url=url) as worked:
        slot = cluster.slot_of(queue.model.keys.prefix)
        with at_work(Worker(worked, book.handlers("w", "work"))):
            queue.enqueue("work", {}, id="before")
            wait_until(lambda: len(book.ran) == 1, "it runs")
            cluster.wait_until_whole()
            cluster.kill(old := cluster.owner_of(slot))
            new = cluster.wait_for_promotion(slot, old)
            wait_until(lambda: _created(queue), "producers go on")
            wait_until(lambda: len(book.ran) >= 2, "workers go on")
            cluster.start_again(old)
            assert cluster.client(new).exists(queue.model.keys.prefix + "seq") == 1


def _created(queue: Queue) -> bool:
    try:
        return queue.enqueue("work", {}, id="after").job == "after"
    except (ServerUnavailable, OutcomeUnknown):
        return False


def test_channels_run_in_a_cluster(cluster: EmbeddedCluster) -> None:
    for name in ("news", "weather", "sport"):
        with Channel(name, models.Dsps(), url=url_of(cluster)) as channel:
            channel.subscribe("ada")
            channel.publish("m1", {"n": 1})
            assert [message.id for message in channel.fetch("ada", wait_ms=5_000).messages] == ["m1"]


async def test_clients_of_a_cluster_say_where_a_queue_is(cluster: EmbeddedCluster) -> None:
    client: Any = redis.RedisCluster(host="127.0.0.1", port=cluster.ports[0])
    with Queue("q", client=client) as queue:
        assert queue.enqueue("work", {}, id="a").created and queue.url.startswith("redis+cluster://")
        assert client.exists(queue.model.keys.job("a")) == 1
    client.close()
    client: Any = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.ports[1])
    await client.initialize()
    async with AsyncQueue("q", client=client) as queue:
        assert not (await queue.enqueue("work", {}, id="a")).created
    await client.aclose()
    refused(Malformed, "RedisCluster of the same kind", Queue, "q", client=client)


def test_nobody_there_is_said_with_each_address() -> None:
    with Queue("q", url="redis+cluster://127.0.0.1:1", connect=HURRIED) as queue:
        refused(ServerUnavailable, "127.0.0.1:1: ConnectionError", queue.enqueue, "work", {})


CERTIFICATES = Path(__file__).parent / "certificates"


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("IRONCLAIM_REDIS_SERVER"), reason="the bundled Valkey is built without TLS")
def test_tls_leads_to_the_tls_ports_of_all_nodes() -> None:
    """Over TLS the nodes name their TLS ports. The certificate and its key are for tests alone."""
    files = [word for name in ("cert", "ca-cert") for word in (f"--tls-{name}-file", str(CERTIFICATES / "certificate.pem"))]
    ports: list[int] = []

    def flags() -> list[str]:
        ports.append(free_port())
        key = ("--tls-key-file", str(CERTIFICATES / "key.pem"))
        return ["--tls-port", str(ports[-1]), "--tls-cluster", "yes", "--tls-auth-clients", "no", *key, *files]

    with EmbeddedCluster(flags=flags) as cluster:
        for client in map(cluster.client, range(3)):
            client.execute_command("ACL", "SETUSER", "ada", "on", ">p@w", "~*", "&*", "+@all")
        url = f"rediss+cluster://ada:p%40w@localhost:{ports[-1]}?ssl_ca_certs={CERTIFICATES / 'certificate.pem'}"
        for name in ("qa", "qb", "qc", "qd"):
            with Queue(name, url=url) as queue:
                assert queue.enqueue("work", {}).created
        with Queue("q", url=url.replace("p%40w", "wrong"), connect=ConnectOptions(deadline_ms=3_000)) as queue:
            refused(ServerUnavailable, "WRONGPASS", queue.enqueue, "work", {})
        kinds = [one for node in range(3) for one in cluster.client(node).client_list() if one["user"] == "ada"]
        assert not kinds, "each closed its connections"


_GREENLETS = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from engine import Queue
with Queue("q", url=sys.argv[1]) as queue:
    ends = [gevent.spawn(queue.enqueue, "work", number) for number in range(50)]
    gevent.joinall(ends, timeout=240, raise_error=True)
    print(sum(end.value.created for end in ends))
"""


@pytest.mark.slow
def test_greenlets_find_their_way(cluster: EmbeddedCluster) -> None:
    done = subprocess.run([sys.executable, "-c", _GREENLETS, url_of(cluster)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "50"), done.stderr
