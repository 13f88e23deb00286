"""The connections of both drivers to a server that a resolver names: none is used that leads elsewhere by now."""

import asyncio
import contextlib
import os
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import AskError

from engine import AsyncQueue, Queue
from engine.redis import dialer, driver
from engine.redis.dialer import Dialer, Subscription
from engine.redis.endpoint import Endpoint, Node
from engine.redis.exchange import Sent
from engine.redis.resolver import asked_node, note_errors
from tests.engine.using import Count, refused, wait_until


def named_node(node: Node) -> Any:
    """Stands for a resolver that names one node."""
    made: Any = SimpleNamespace(primary=node, old=False, doubted=False, heard=list[Any]())
    made.known = lambda slot: None if made.doubted else made.primary
    made.node = made.fresh = lambda slot: made.primary
    made.serves, made.replaced = (lambda node: node == made.primary), (lambda node: made.old)
    made.at = lambda address: Node(address.host, address.port, "asked")
    made.join, made.part = (lambda holder: made.heard.append("join")), (lambda holder: made.heard.append("part"))
    made.note_error = lambda error: made.heard.append(type(error))
    return made


class Blocked:
    """The pool of an AsyncQueue, called as that of a Queue is."""

    def __init__(self, pool: Any, runner: asyncio.Runner) -> None:
        self._pool, self._runner = pool, runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pool, name)
        if not callable(found):
            return found

        async def call(*given: Any) -> Any:
            done = found(*given)
            return await done if asyncio.iscoroutine(done) else done

        return lambda *given: self._runner.run(call(*given))


@pytest.fixture
def named(ironclaim_server: Any, client: Any) -> Any:
    return named_node(Node("127.0.0.1", ironclaim_server.port, client.info("server")["run_id"]))


def ids(client: Any) -> set[str]:
    """The connections of the server."""
    return {one["id"] for one in client.client_list()}


@pytest.fixture
def others(client: Any) -> set[str]:
    """Those that were there before the test: other tests have left some."""
    return ids(client)


@pytest.fixture
def pool(kind: str, ironclaim_url: str, named: Any, others: set[str], runner: asyncio.Runner, monkeypatch: Any) -> Any:
    for module in ("dialer", "async_driver"):
        monkeypatch.setattr(f"engine.redis.{module}.resolver_of", lambda endpoint: named)
    if kind == "sync":
        with contextlib.closing(Queue("q", url=ironclaim_url)) as queue:
            yield queue.driver._connections
    else:
        queue = AsyncQueue("q", url=ironclaim_url)

        async def here() -> Any:
            return queue.driver._connections

        yield Blocked(runner.run(here()), runner)
        runner.run(queue.close())


def test_a_connection_is_for_one_node_and_used_while_it_is_named(pool: Any, named: Any, client: Any, others: set[str]) -> None:
    taken = pool.take(0)
    pool.give_back(taken)
    assert [*pool._idle] == [None, named.primary.address] and named.heard == ["join"]
    assert pool.take(0) is taken and named.heard == ["join"], "nobody is asked for an idle one"
    pool.give_back(taken)
    named.doubted = True
    assert pool.take(0) is taken and named.heard == ["join", "join"]
    assert asked_node(pool.resolver, AskError("0 127.0.0.1:7005")) == Node("127.0.0.1", 7_005, "asked")
    note_errors(pool.resolver, ["reply", redis.ConnectionError("gone"), ValueError(), OSError(), KeyboardInterrupt()])
    assert named.heard[2:] == [redis.ConnectionError, OSError]
    pool.give_back(taken)
    pool.close()
    assert named.heard[4:] == ["part"] and pool._idle == {None: []}
    wait_until(lambda: ids(client) <= others, "it is closed")


def test_a_server_replaced_while_connecting_is_not_used(pool: Any, named: Any, client: Any, others: set[str]) -> None:
    named.old = True
    refused(redis.ConnectionError, f"127.0.0.1:{named.primary.port} is not the primary any more", pool.take, 0)
    wait_until(lambda: ids(client) <= others, "its connection is closed")
    assert named.heard == ["join", redis.ConnectionError]


def test_connections_to_a_former_server_are_closed_though_in_use(pool: Any, named: Any, client: Any, others: set[str]) -> None:
    idle, used = pool.take(0), pool.take(0)
    pool.give_back(idle)
    pool.leave()
    assert len(ids(client) - others) == 2, "it is named still"
    named.primary = Node("127.0.0.1", 1, "other")
    pool.leave()
    if isinstance(pool, Blocked):
        pool._runner.run(asyncio.sleep(0))
    wait_until(lambda: ids(client) <= others, "both are closed")
    assert [*pool._idle] == [None] and used is not idle


async def test_of_a_fixed_address_nothing_is_looked_at(ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url) as queue:
        pool: Any = queue.driver._connections
        assert asked_node(pool.resolver, AskError("0 127.0.0.1:7005")) is None and pool.leave() is None
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        connections = queue.driver._connections
        assert connections._leave() is None
        await connections.give_back(await connections.take(0))
        assert await connections._dialer.node(0) is None


@pytest.mark.parametrize("way", ["send_many", "depart"])
def test_a_call_that_could_not_be_written_is_sent_again(queue: Queue, client: Any, named: Any, way: str) -> None:
    pool: Any = queue.driver._connections
    pool.resolver = pool._dialer.resolver = named
    queue.enqueue("work", {}, id="before")
    # However long this takes, it is not looked at.
    pool._check_ns = 1 << 60
    connection, before = pool.take(0), client.info("stats")["total_connections_received"]
    driver.break_off(connection)
    pool.give_back(connection)
    if way == "depart":
        flight = queue.driver.depart(queue.model.call(Count()))
        assert isinstance(flight.failure, redis.ConnectionError) and queue.driver.arrive(flight).reply.waiting == 1
    else:
        (sent,) = queue.driver.send_many([queue.model.call(Count())])
        assert isinstance(sent, Sent) and sent.reply.waiting == 1
    assert client.info("stats")["total_connections_received"] == before + 1 and redis.ConnectionError in named.heard


def test_a_subscription_is_not_live_at_a_server_that_is_named_no_more(ironclaim_url: str, named: Any) -> None:
    """It was replaced while the connection to it was made."""
    node, said = named.primary, list[Any]()
    named.node = lambda slot: node
    named.primary = None

    def failed(_: Exception) -> None:
        said.append("failed")
        named.primary = node

    way: Any = Dialer(Endpoint(ironclaim_url), named, None, 0)
    more: Any = {"on_message": None, "checked": None, "wanted": lambda: True, "failed": failed, "look_s": 60.0}
    listening = Subscription(way, ("c",), name="n", changed=lambda: said.append(listening.live), **more)
    assert not listening.live
    listening.start()
    wait_until(lambda: said[-1:] == [True], "it is live")
    listening.stop()
    assert said[:2] == ["failed", True]


def test_errors_among_replies_are_told_of_and_that_of_a_connection_is_raised(queue: Queue, client: Any) -> None:
    connection, before = queue.driver._connections.take(0), ids(client)
    for word, wrong in (("PING", False), ("NONSENSE", True)):
        replies = list[Any]()
        connection.send_command(word, check_health=False)
        assert dialer.read_replies(connection, 1, replies) is wrong and isinstance(replies[0], Exception) is wrong
    client.client_kill_filter(_type="normal", skipme=True)
    wait_until(lambda: ids(client) < before, "it is closed")
    refused(redis.ConnectionError, "", dialer.read_replies, connection, 1, [])
    queue.driver._connections.drop(connection)


def test_a_forked_child_begins_anew(queue: Queue, client: Any) -> None:
    queue.counts()
    pool = queue.driver._connections
    for begin in (driver._in_a_forked_child, dialer._in_a_forked_child):
        begin()
    assert pool._idle == {None: []} and not pool._open
    queue.counts()
    before = client.info("stats")["total_connections_received"]
    # As in the child of a fork that Python did not make.
    pool._pid = 0
    queue.gathering._pid = 0
    assert pool.take_idle(0) is None and queue.enqueue("work", {}).created and queue.gathering._pid == os.getpid()
    assert pool._pid == os.getpid() and client.info("stats")["total_connections_received"] == before + 1
