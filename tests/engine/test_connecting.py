"""How a queue reaches its server: urls, clients, prefixes, times and bounds, forks, threads, event loops."""

import asyncio
import contextlib
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from engine import AsyncQueue, ConnectOptions, Queue, Worker, async_queues, queues
from engine.errors import AuthenticationFailed, EngineError, Malformed, OutcomeUnknown, ServerUnavailable
from engine.redis import resolver
from engine.redis.dialer import identify, resolver_of
from engine.redis.endpoint import Endpoint
from engine.testing import EmbeddedServer, server_binary
from tests.engine.using import DEFAULT_DEADLINE_S, Count, Relay, ids_of, in_child, raw_client, refused, some_handlers, wait_until

FAST = ConnectOptions(deadline_ms=1_000, timeout_ms=700, connect_timeout_ms=700)


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1].split("/")[0])


@pytest.mark.feature("BL35")
@pytest.mark.parametrize("decode", [False, True])
def test_a_queue_goes_where_a_client_goes_on_connections_of_its_own(ironclaim_url: str, decode: bool) -> None:
    """Whatever the client does with replies and retries: the engine's calls are not its business."""
    client: Any = redis.Redis(port=port_of(ironclaim_url), db=3, decode_responses=decode, client_name="svc")
    with Queue("q", client=client) as queue:
        assert queue.enqueue("work", {"n": 1}, id="a").created and client.exists(queue.model.keys.job("a")) == 1
        assert "svc" in {info["name"] for info in client.client_list()}
        assert queue.url == f"redis://127.0.0.1:{port_of(ironclaim_url)}/3".replace("127.0.0.1", "localhost")
    settings = Endpoint(client=client).settings()
    assert settings["retry"].get_retries() == 0 and not settings["decode_responses"]
    client.flushdb()
    client.close()


@pytest.mark.feature("BL35")
async def test_an_asyncio_client_serves_an_async_queue(ironclaim_url: str) -> None:
    client: Any = redis.asyncio.Redis.from_url(ironclaim_url, decode_responses=True)
    async with AsyncQueue("q", client=client) as queue:
        assert (await queue.enqueue("work", {}, id="a")).created
    assert await client.exists(Queue("q").model.keys.job("a")) == 1
    await client.aclose()


def test_clients_that_do_not_fit_are_refused_with_the_reason() -> None:
    fitting, sentinels = redis.Redis(), Sentinel([("localhost", 1)])
    greeting = redis.Redis(connection_pool=redis.ConnectionPool(redis_connect_func=lambda connection: None))
    for client, reason in (
        (sentinels, "Sentinel.master_for"), (sentinels.slave_for("m"), "reads from replicas"), (greeting, "redis_connect_func"),
        (redis.asyncio.Redis(), "a redis.Redis, one that"), ("redis://localhost", "a redis.Redis, one that"),
    ):  # fmt: skip
        refused(Malformed, reason, Queue, "q", client=client)
    refused(Malformed, "redis.asyncio.Redis", AsyncQueue, "q", client=fitting)
    refused(Malformed, "without a url", Queue, "q", client=fitting, url="redis://localhost:1")
    own = type("Connection", (redis.Connection,), {})
    made = Endpoint(client=redis.Redis(connection_pool=redis.ConnectionPool(connection_class=own)))
    reason = "client: .*test_connecting.Connection.* is not allowed, .*Connection is not one of redis-py's own"
    refused(Malformed, reason, made.of_kind, asynchronous=True)
    routed = [Endpoint(f"sentinel://h/m{db}") for db in ("", "?db=0", "?db=1")]
    assert [routed[0].reaches(other) for other in routed] == [True, True, False]


def test_tls_and_credentials_of_a_url_and_of_a_client_reach_the_connection() -> None:
    url = "rediss://ada:secret@example.org:7000/2"
    for endpoint in (Endpoint(f"{url}?ssl_cert_reqs=none"), Endpoint(client=redis.Redis.from_url(f"{url}?ssl_cert_reqs=none"))):
        wanted = {"host": "example.org", "port": 7000, "db": 2, "username": "ada", "password": "secret", "ssl_cert_reqs": "none"}
        assert endpoint.connection_class is redis.SSLConnection and wanted.items() <= endpoint.settings().items()
    assert Endpoint(client=redis.Redis.from_url(url)).url == "rediss://example.org:7000/2"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with a password, a user of its own and a Unix socket."""
    path = tmp_path_factory.mktemp("socket") / "s"
    with EmbeddedServer(flags=("--unixsocket", str(path))) as server:
        admin: Any = redis.Redis(port=server.port)
        admin.execute_command("ACL", "SETUSER", "ada", "on", ">pw", "~*", "&*", "+@all")
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+info", "+time", "+script", "+select")
        yield server, path
        admin.close()


def test_a_user_with_a_password_and_a_unix_socket(guarded: tuple[EmbeddedServer, Path]) -> None:
    server, path = guarded
    for url in (f"redis://ada:pw@127.0.0.1:{server.port}", f"unix://ada:pw@{path}", f"unix://{path}?db=2"):
        with Queue("q", url=url) as queue:
            assert queue.enqueue("work", {}).created
            assert asyncio.run(AsyncQueue("q", url=url).counts()).waiting == queue.counts().waiting > 0
    with redis.Redis(unix_socket_path=str(path)) as client:
        connection = client.connection_pool.get_connection()
        assert identify(connection) is not None, "no proxy is in between"
        assert not connection._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)  # type: ignore[union-attr]
        client.connection_pool.release(connection)


def test_a_server_that_turns_the_greeting_down_says_why_and_is_no_script_fault(guarded: tuple[EmbeddedServer, Path]) -> None:
    server, _ = guarded
    for url, reason, kind in (
        (f"redis://127.0.0.1:{server.port}/99", "DB index is out of range", ServerUnavailable),
        (f"redis://ada:wrong@127.0.0.1:{server.port}", "(?i)invalid username-password pair", AuthenticationFailed),
        (f"redis://:unneeded@127.0.0.1:{server.port}", "(?i)AUTH|password", AuthenticationFailed),
        (f"redis://reader:pw@127.0.0.1:{server.port}", "(?i)permission", ServerUnavailable),
    ):
        with Queue("q", url=url) as queue:
            for call in (queue.counts, lambda: queue.enqueue("work", {})):
                started_s, raised = time.monotonic(), refused(ServerUnavailable, reason, call)
                assert type(raised) is kind and time.monotonic() - started_s < DEFAULT_DEADLINE_S


@pytest.mark.parametrize("program", ["valkey-server", "redis-server"])
def test_a_password_that_is_missing_is_said_at_once(program: str) -> None:
    binary = server_binary() if program == "valkey-server" else shutil.which(program)
    if binary is None:
        pytest.skip(f"no {program} here")
    with EmbeddedServer(binary=binary) as server:
        with raw_client(server.url) as admin:
            admin.config_set("requirepass", "pw")
        url = f"redis://127.0.0.1:{server.port}"

        async def without_blocking() -> None:
            async with AsyncQueue("q", url=url) as queue:
                await queue.enqueue("work", {})

        with Queue("q", url=url) as queue:
            worker = Worker(queue, some_handlers())
            for call in (lambda: queue.enqueue("work", {}), lambda: asyncio.run(without_blocking()), worker.run):
                started_s = time.monotonic()
                refused(AuthenticationFailed, "NOAUTH Authentication required", call)
                assert time.monotonic() - started_s < 5
        with Queue("q", url=f"redis://:pw@127.0.0.1:{server.port}") as queue:
            assert queue.enqueue("work", {}).created


@pytest.mark.feature("BQ01", "BL06", "MQ25")
def test_a_prefix_keeps_queues_of_one_name_apart(ironclaim_url: str, client: Any) -> None:
    with Queue("q", url=ironclaim_url, prefix="shop") as shop, Queue("q", url=ironclaim_url) as plain:
        shop.enqueue("work", {}, id="a")
        assert (shop.counts().waiting, plain.counts().waiting) == (1, 0)
        keys = client.keys("*")
        assert {key.split("{")[0] for key in keys if "{" in key} == {"shop:"} and "shop:{q}:job:a" in keys


@pytest.mark.feature("MQ22")
def test_the_queues_of_a_server_are_listed_by_their_last_use(ironclaim_url: str) -> None:
    for name in ("one", "two"):
        with Queue(name, url=ironclaim_url) as queue:
            queue.counts()
            assert name not in [info.name for info in queues(ironclaim_url)], "to look at a queue makes none"
            before_ms = queue.driver.server_now_ms()
            queue.enqueue("work", {})
            now_ms = queue.driver.server_now_ms()
            time.sleep(0.002)
    with Queue("three", url=ironclaim_url, prefix="shop") as queue:
        queue.enqueue_many([{"name": "work", "payload": 1}])
    found = queues(ironclaim_url)
    assert [info.name for info in found] == ["two", "one"] and before_ms <= found[0].used_ms <= now_ms
    assert [info.name for info in queues(ironclaim_url, prefix="shop")] == ["three"]
    assert asyncio.run(async_queues(ironclaim_url)) == found


def answers(queue: Queue) -> bool:
    """Whether the server answers within the times of the queue."""
    with contextlib.suppress(EngineError):
        return queue.counts().srv_us > 0
    return False


@pytest.mark.slow
@pytest.mark.feature("BN31")
def test_times_are_kept(ironclaim_server: EmbeddedServer, closed_port: int) -> None:
    with Relay(ironclaim_server.port) as relay, Queue("q", url=relay.url, connect=FAST) as queue:
        wait_until(lambda: answers(queue), "it has a connection")
        relay.standing, started_s = "hush_reply", time.monotonic()
        refused(OutcomeUnknown, "", queue.enqueue, "work", {})
        assert 0.7 < time.monotonic() - started_s < DEFAULT_DEADLINE_S
    closed, started_s = Queue("q", url=f"redis://127.0.0.1:{closed_port}", connect=FAST), time.monotonic()
    refused(ServerUnavailable, "", closed.counts)
    assert time.monotonic() - started_s < DEFAULT_DEADLINE_S


@pytest.mark.parametrize(("name", "least", "most"), [
    ("timeout_ms", 10, 600_000), ("connect_timeout_ms", 10, 600_000), ("deadline_ms", 10, 15_000),
    ("connections_max", 0, 10_000), ("idle_check_ms", 0, 3_600_000),
])  # fmt: skip
def test_bounds_of_the_options(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(ConnectOptions(**{name: value}), name) == value
    for value in (least - 1, most + 1, "1", None, True):
        refused(Malformed, name, ConnectOptions, **{name: value})


def test_sixteen_threads_share_one_queue(queue: Queue) -> None:
    def use(number: int) -> None:
        for count in range(25):
            assert queue.enqueue("work", {}, id=f"{number}-{count}").created
        queue.enqueue_many([{"name": "work", "payload": 1, "id": f"{number}-many-{count}"} for count in range(25)])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(use, range(16)))
    assert len(set(ids_of(queue, "waiting"))) == 16 * 50


async def use(queue: AsyncQueue, job: str) -> bool:
    return (await queue.enqueue("work", {}, id=job)).created


# -- forks


def test_children_of_a_preloaded_process_use_a_queue_while_its_threads_do_too(queue: Queue) -> None:
    """As gunicorn does with preload, from a process whose other threads are in the middle of calls."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            queue.counts()

    with ThreadPoolExecutor(4) as pool, contextlib.ExitStack() as ends:
        ends.callback(stop.set)
        threads = [pool.submit(busy) for _ in range(4)]
        for number in range(8):
            assert in_child(lambda number=number: queue.enqueue("work", {}, id=f"child-{number}")) == 0
    assert [thread.result() for thread in threads] == [None] * 4 and queue.counts().waiting == 8


def test_a_lock_that_another_thread_held_at_the_fork_does_not_hang_the_child(queue: Queue) -> None:
    queue.counts()
    with queue.driver._connections._lock, queue.gathering._lock, resolver._shared_lock:
        routed = Endpoint("sentinel://h/m")
        assert in_child(lambda: (resolver_of(routed), queue.close(), queue.enqueue("work", {}, id="a"))) == 0
    assert queue.counts().waiting == 1


def test_a_child_that_closes_the_queue_leaves_its_parents_connections_open(queue: Queue, client: Any) -> None:
    queue.counts()
    before = client.info("stats")["total_connections_received"]
    assert in_child(queue.close) == 0
    queue.counts()
    assert client.info("stats")["total_connections_received"] == before


async def test_a_child_of_a_process_with_a_running_loop_uses_an_async_queue_in_its_own(ironclaim_url: str, client: Any) -> None:
    queue = AsyncQueue("q", url=ironclaim_url)

    def run() -> None:
        # A thread of its own: the copy of the parent's loop still counts as running in this one.
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(asyncio.run, use(queue, "child")).result()

    assert await use(queue, "parent") and in_child(run) == 0
    before = client.info("stats")["total_connections_received"]
    # The parent's loop hears of the reply: the child has taken nothing out of the epoll that they share.
    assert await use(queue, "again") and client.info("stats")["total_connections_received"] == before
    await queue.close()


# -- event loops


def test_an_async_queue_serves_one_loop_after_the_other_and_two_at_once(ironclaim_url: str) -> None:
    queue = AsyncQueue("q", url=ironclaim_url)

    assert asyncio.run(use(queue, "first")) and asyncio.run(use(queue, "second"))

    async def both() -> None:
        assert await use(queue, "third")
        with ThreadPoolExecutor(1) as pool:
            other = asyncio.get_running_loop().run_in_executor(pool, lambda: asyncio.run(use(queue, "fourth")))
            assert await use(queue, "fifth") and await other
        # Those of the loop that has ended are not kept.
        assert await use(queue, "sixth") and len(queue.driver._pools._found) == 2
        await queue.close()

    asyncio.run(both())


def test_an_idle_connection_that_the_server_closed_is_noticed(ironclaim_url: str, client: Any) -> None:
    with Queue("q", url=ironclaim_url, connect=ConnectOptions(idle_check_ms=0)) as queue:
        queue.counts()
        wait_until(lambda: client.client_kill_filter(_type="normal", skipme=True) >= 1, "its connection is closed")
        assert queue.driver.send(queue.model.call(Count())).definite, "nothing was sent on the closed one"
