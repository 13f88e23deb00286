"""Queues behind real sentinels: failover by SIGKILL and by order, servers that come back, and what a majority is worth."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

from chaos.topology.embedded_sentinel import SERVICE, EmbeddedSentinel
from engine import AsyncChannel, AsyncQueue, Channel, ConnectOptions, OutcomeUnknown, Queue, ServerUnavailable, Worker, models
from engine.testing import EmbeddedServer, ServerFailed
from engine.testing.server import ask_server
from tests.engine.using import DEADLINE_S, Book, at_work, refused, wait_until

#: For calls that cannot succeed: they take all of it.
HURRIED = ConnectOptions(deadline_ms=5_000, timeout_ms=2_000, connect_timeout_ms=2_000)
#: What a server may be silent for on a busy machine without being missed: with the second of the default there were failovers
#: that no test had asked for.
DOWN_AFTER_MS = 4_000
#: Commands that change keys or run scripts.
WRITES = {"EVALSHA", "EVAL", "SET", "ZADD", "BLPOP", "SCRIPT"}


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedSentinel]:
    with EmbeddedSentinel(down_after_ms=DOWN_AFTER_MS) as made:
        yield made


@pytest.fixture
def servers(shared: EmbeddedSentinel) -> EmbeddedSentinel:
    """All of them up and in step, and nothing in them."""
    shared.wait_until_whole()
    primary = shared.primary()
    assert primary is not None
    shared.servers[primary].flush()
    return shared


def failed_over(servers: EmbeddedSentinel, old: int | None) -> int:
    """Let the sentinels make a replica the primary, as an operator does; the new one. Where they give up, which they do when a
    replica is not promoted in time, nobody tries again but who asked."""

    def replaced() -> list[int]:
        # Refused while one is under way.
        with contextlib.suppress(OSError):
            servers.failover()
        with contextlib.suppress(ServerFailed):
            return [servers.wait_for_failover(old)]
        return []

    return wait_until(replaced, "another primary")[0]


class Monitor:
    """What a server is sent, from now on."""

    def __init__(self, port: int) -> None:
        self._client: Any = redis.Redis(port=port)
        self.words: list[str] = []
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._began.wait(120)

    def _read(self) -> None:
        try:
            with self._client.monitor() as commands:
                self._began.set()
                for command in commands.listen():
                    self.words.append(command["command"].split(" ", 1)[0].upper())
        except redis.RedisError:
            # The server was ended.
            return


class Producers:
    """Four threads that enqueue, 80 jobs a second, until they are stopped: fewer than a worker on a busy machine runs."""

    def __init__(self, queue: Queue) -> None:
        self.acknowledged: list[str] = []
        self.errors: list[Exception] = []
        self._queue = queue
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        count = 0
        while not self._stop.wait(0.05):
            job = f"p{number}-{count}"
            count += 1
            try:
                self._queue.enqueue("work", {}, id=job)
                self.acknowledged.append(job)
            except Exception as error:
                self.errors.append(error)

    def stop(self) -> list[str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert not self.errors
        return self.acknowledged


async def test_clients_that_ask_sentinels_say_where_a_queue_is(servers: EmbeddedSentinel) -> None:
    addresses = [("127.0.0.1", port) for port in servers.sentinel_ports]
    client: Any = Sentinel(addresses).master_for(SERVICE, db=2)
    with Queue("q8", client=client) as queue:
        assert queue.enqueue("work", {}, id="a").created and client.exists(queue.model.keys.job("a")) == 1
        assert queue.url == servers.url.removesuffix("?db=0")
    client.close()
    client: Any = AsyncSentinel(addresses).master_for(SERVICE, db=2)
    async with AsyncQueue("q8", client=client) as queue:
        assert not (await queue.enqueue("work", {}, id="a")).created
    await client.aclose()


@pytest.mark.slow
def test_a_killed_primary_is_followed_and_gets_no_write_when_it_is_back(servers: EmbeddedSentinel) -> None:
    book, patient = Book(), ConnectOptions(deadline_ms=15_000)
    with Queue("q1", url=servers.url, connect=patient) as queue, Queue("q1", url=servers.url, connect=patient) as worked:
        old = servers.primary()
        assert old is not None
        with at_work(Worker(worked, book.handlers("w", "work"), concurrency=4)):
            producers = Producers(queue)
            wait_until(lambda: len(book.ran) > 50, "jobs run")
            servers.kill(old)
            by_the_old_one, new = len(producers.acknowledged), servers.wait_for_failover(old)
            before = len(producers.acknowledged)
            servers.start_again(old)
            monitor = Monitor(servers.servers[old].port)
            wait_until(lambda: len(producers.acknowledged) > before + 100, "producers go on")
            wait_until(lambda: servers.role(old) == "slave", "it is made a replica")
            acknowledged = producers.stop()
            client: Any = redis.Redis(port=servers.servers[new].port)
            there = {job for job in acknowledged if client.exists(queue.model.keys.job(job))}
            client.close()
            wait_until(lambda: there <= {job for _, job in book.ran}, "each job that the new primary has runs")
            lost = set(acknowledged[by_the_old_one:]) - there - {job for _, job in book.ran}
    assert monitor.words and not WRITES.intersection(monitor.words)
    # What the new primary has acknowledged is there; each of the four may have had an answer of the old one still to read.
    assert len(lost) <= 4


def test_connections_in_use_end_when_their_server_is_named_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentinel itself ends the connections of a server that it demotes. One that it is told to watch no more is not touched.
    A worker on threads has one, and a coroutine another one. Their waits last: they do not end by themselves.
    Then a minority of sentinels names nobody."""
    for module in ("worker.machine.claiming", "worker.worker", "queue.asynchronous.parts", "queue.asynchronous.calls"):
        monkeypatch.setattr(f"engine.{module}.BLOCK_MS", 600_000)
    with EmbeddedSentinel(replicas=0) as servers, EmbeddedServer() as other:
        old: Any = redis.Redis(port=servers.servers[0].port)
        client: Any = redis.Redis(port=other.port)
        url = servers.url + "&client_name=service"

        def kept() -> set[str]:
            return {one["cmd"] for one in old.client_list() if one["name"] == "service"}

        def switch() -> None:
            wait_until(lambda: {"blpop", "xread"} <= kept(), "both wait at the old one")
            for sentinel in servers.sentinels:
                ask_server(sentinel.port, f"SENTINEL REMOVE {SERVICE}")
                ask_server(sentinel.port, f"SENTINEL MONITOR {SERVICE} 127.0.0.1 {other.port} 2")
            wait_until(asked_anew, "a connection is opened to the new one")
            wait_until(lambda: not kept(), "none is kept")

        def asked_anew() -> bool:
            with Queue("another", url=url) as asked, contextlib.suppress(ServerUnavailable):
                asked.counts()
            return "cmdstat_evalsha" in client.info("commandstats")

        async def story() -> None:
            async with AsyncQueue("q", url=url) as queue:
                await queue.enqueue("work", {}, id="before")
                waiting = asyncio.ensure_future(anext(queue.events.read("$", wait_ms=600_000)))
                await asyncio.to_thread(switch)
                waiting.cancel()

        with Queue("w", url=url) as worked, at_work(Worker(worked, Book().handlers("w", "work"))):
            asyncio.run(story())
        old.close()
        client.close()
        a_minority_names_nobody(servers)


def a_minority_names_nobody(servers: EmbeddedSentinel) -> None:
    queue = Queue("q5", url=servers.url)
    assert queue.enqueue("work", {}).created
    for sentinel in servers.sentinels[1:]:
        sentinel.kill()
    # What is connected stays: nobody has named another one.
    assert queue.enqueue("work", {}).created
    # Other options, so it does not share what the first queue has found.
    other = ConnectOptions(deadline_ms=2_500, timeout_ms=2_000, connect_timeout_ms=2_000)
    with Queue("q5", url=servers.url, connect=other) as late, pytest.raises(ServerUnavailable, match="no majority of 3"):
        late.enqueue("work", {})
    queue.close()


@pytest.mark.slow
def test_a_server_that_came_back_empty_at_its_address_is_not_the_one_that_is_named() -> None:
    """It is up again before the sentinels have missed it: they name its address, with the run id of the one before."""
    with EmbeddedSentinel(down_after_ms=60_000) as servers, Queue("q3", url=servers.url, connect=HURRIED) as queue:
        # They ask for the run id every ten seconds, and would then name the new one.
        for sentinel in servers.sentinels:
            ask_server(sentinel.port, "SENTINEL DEBUG INFO-PERIOD 600000")
        old = servers.primary()
        assert old is not None and queue.enqueue("work", {}).created
        servers.kill(old)
        servers.start_again(old)
        refused((ServerUnavailable, OutcomeUnknown), "which was named the primary", queue.enqueue, "work", {}, id="lost")
        client: Any = redis.Redis(port=servers.servers[old].port)
        assert "cmdstat_evalsha" not in client.info("commandstats")
        client.close()


def test_after_a_failover_queues_channels_and_workers_leave_the_old_primary(servers: EmbeddedSentinel) -> None:
    """On threads, where a worker waits, and on an event loop, where a fetch does."""
    url, book = servers.url + "&client_name=service", Book()

    async def story(demote: Callable[[], None]) -> None:
        async with AsyncQueue("q4", url=url) as queue, AsyncChannel("news", url=url) as channel:
            await asyncio.gather(*(queue.enqueue("work", {}, id=f"a{number}") for number in range(20)))
            await channel.subscribe("ada")
            await channel.publish("m1", {"n": 1})
            assert (await channel.fetch("ada", wait_ms=20_000)).messages[0].id == "m1"
            await channel.acknowledge("ada", (await channel.fetch("ada")).receipt or "")
            waiting = asyncio.create_task(channel.fetch("ada", wait_ms=30_000))
            await asyncio.to_thread(demote)
            # What the old primary answers in the moment before its clients have heard may be lost, so there are several.
            for number in range(2, 60):
                await channel.publish(f"m{number}", {"n": number})
                if waiting.done() and (await waiting).messages:
                    break
                if waiting.done():
                    waiting = asyncio.create_task(channel.fetch("ada", wait_ms=5_000))
                await asyncio.wait([waiting], timeout=0.5)
            assert (await waiting).messages, "it hears of them on a connection to the new primary"
            assert (await queue.enqueue("work", {}, id="a0")).created is False, "the new primary has what the old one had"
            assert (await queue.counts()).waiting == 20

    def named(client: Any) -> bool:
        return "service" in {one["name"] for one in client.client_list()}

    with Queue("q2", url=url) as queue, Queue("q2", url=url) as worked, at_work(Worker(worked, book.handlers("w", "work"))):
        queue.enqueue("work", {}, id="before")
        wait_until(lambda: len(book.ran) == 1, "it runs")
        old = servers.primary()
        assert old is not None

        def demote() -> None:
            client: Any = redis.Redis(port=servers.servers[old].port)
            assert named(client)
            new = failed_over(servers, old)
            wait_until(lambda: not named(client), "none is kept")
            queue.enqueue("work", {}, id="after")
            wait_until(lambda: len(book.ran) == 2, "the worker waits at the new one")
            client.close()
            waiting: Any = redis.Redis(port=servers.servers[new].port)
            assert named(waiting)
            waiting.close()

        asyncio.run(story(demote))


@pytest.mark.slow
def test_one_sentinel_of_the_url_tells_of_the_others(servers: EmbeddedSentinel) -> None:
    url = f"sentinel://127.0.0.1:{servers.sentinel_ports[0]}/{SERVICE}"
    with Queue("q6", url=url) as queue, Channel("news", models.Dsps(), url=url) as channel:
        assert queue.enqueue("work", {}).created and channel.publish("m1", {}).created
    unknown = Queue("q6", url=url.replace(SERVICE, "other"), connect=HURRIED)
    with unknown as queue, pytest.raises(ServerUnavailable, match="primary of other"):
        queue.enqueue("work", {})


@pytest.mark.slow
def test_sentinels_and_servers_have_users_of_their_own(servers: EmbeddedSentinel) -> None:
    for process in (*servers.sentinels, *servers.servers):
        client: Any = redis.Redis(port=process.port)
        password = ">pw" if process in servers.servers else ">watch"
        client.execute_command("ACL", "SETUSER", "ada", "on", password, "~*", "&*", "+@all")
        client.close()
    hosts = servers.url.removeprefix("sentinel://").split("/", 1)[0]
    url = f"sentinel://ada:pw@{hosts}/{SERVICE}?sentinel_username=ada&sentinel_password="
    with Queue("q7", url=url + "watch") as queue:
        assert queue.enqueue("work", {}).created
    with Queue("q7", url=url + "wrong", connect=HURRIED) as queue, pytest.raises(ServerUnavailable, match="WRONGPASS"):
        queue.enqueue("work", {})


@pytest.mark.slow
def test_a_forked_child_asks_for_itself(servers: EmbeddedSentinel) -> None:
    with Queue("q9", url=servers.url) as queue:
        assert queue.enqueue("work", {}, id="parent").created
        child = os.fork()
        if not child:
            os._exit(0 if queue.enqueue("work", {}, id="child").created else 1)
        assert os.waitpid(child, 0)[1] == 0 and queue.counts().waiting == 2
