"""Servers that the driver refuses, and processes that fork."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine import ConnectOptions, Queue, UnsafeServer, Worker
from engine.redis.endpoint import DEADLINE_MS_MAX, Endpoint
from engine.redis.handshake import check_server, parse_info
from engine.testing import EmbeddedServer
from tests.engine.using import Listing, claim, ids_of, in_child, raw_client, refused, some_handlers, wait_until

FIT = {"redis_version": "7.2.4", "maxmemory_policy": "noeviction"}


@pytest.mark.parametrize("version", ["7.0", "7.0.0", "7.2.4", "8.1.0", "10.0.1", "255.255.255"])
def test_versions_that_are_new_enough(version: str) -> None:
    check_server({**FIT, "redis_version": version})
    refused(UnsafeServer, "^maxmemory_policy: unknown", check_server, {"redis_version": version})
    refused(UnsafeServer, "^redis_version: unknown", check_server, {"maxmemory_policy": "noeviction"})


UNFIT = {"redis_version": r".*7\.0 or newer", "maxmemory_policy": ".* it must be noeviction"}
POLICIES = ("allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl", "noevictions", "")


@pytest.mark.parametrize(("field", "value"), [
    *(("redis_version", old) for old in ("6.2.14", "6.9", "5.0.7", "2.8", "0.0.0", "", "unknown", "x.y.z")),
    *(("maxmemory_policy", evicting) for evicting in POLICIES),
])  # fmt: skip
def test_versions_that_are_too_old_and_every_policy_that_evicts(field: str, value: str) -> None:
    assert (value or "unknown") in str(refused(UnsafeServer, f"^{field}: {UNFIT[field]}", check_server, {**FIT, field: value}))


def test_info_lines() -> None:
    text = b"# Server\r\nredis_version:7.2.4\r\nexecutable:/a:b\r\n\r\nos:Linux\xff\r\n"
    assert parse_info(text) == {"redis_version": "7.2.4", "executable": "/a:b", "os": "Linux\ufffd"}


def test_a_real_server_that_evicts_is_refused_at_once_and_nothing_is_written() -> None:
    with EmbeddedServer() as server, raw_client(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        queue = Queue("q", url=server.url, connect=ConnectOptions(deadline_ms=DEADLINE_MS_MAX))
        message = r"^maxmemory_policy: allkeys-lru .* it must be noeviction$"
        for use in (lambda: queue.enqueue("work", {}), queue.counts, lambda: claim(queue), Worker(queue, some_handlers()).run):
            started_s = time.monotonic()
            # As long as it is kept, so is what its frames hold.
            kept = refused(UnsafeServer, message, use)
            assert time.monotonic() - started_s < DEADLINE_MS_MAX / 1000, "it does not try again"
            wait_until(lambda: len(client.client_list()) == 1, f"no connection is left behind {kept}")
        assert client.dbsize() == 0
        client.config_set("maxmemory-policy", "noeviction")
        assert queue.enqueue("work", {}).result == "created"
        queue.close()


def test_a_forked_child_does_not_use_its_parents_connections(queue: Queue, client: Any) -> None:
    """The child connects anew; the parent goes on with what it has, also after the child has ended."""
    queue.enqueue("work", {}, id="before")
    connections = client.info("stats")["total_connections_received"]

    def enqueues(who: str) -> bool:
        return [queue.enqueue("work", {}, id=f"{who}-{number}").result for number in range(100)] == ["created"] * 100

    with ThreadPoolExecutor(1) as thread:
        parent = thread.submit(enqueues, "parent")
        assert in_child(lambda: enqueues("child")) == 0 and parent.result()
    assert queue.enqueue("work", {}, id="after").result == "created"
    assert client.info("stats")["total_connections_received"] == connections + 1
    wanted = {"before", "after", *(f"{who}-{number}" for who in ("child", "parent") for number in range(100))}
    assert sorted(ids_of(queue, "waiting")) == sorted(wanted)


def test_the_clients_own_retries_are_off() -> None:
    """Also when connecting; a url cannot turn them on."""
    for url in ("redis://localhost", "rediss://localhost?retry_on_timeout=true", "unix:///tmp/socket?health_check_interval=5"):
        assert (settings := Endpoint(url).settings())["retry"].get_retries() == 0
        assert settings["health_check_interval"] == 0 and not settings["decode_responses"]


@pytest.mark.parametrize("method", ["send_packed_command", "read_response"])
@pytest.mark.parametrize("count", [1, 2])
def test_after_an_interrupt_the_next_call_reads_its_own_reply(queue: Queue, monkeypatch: Any, method: str, count: int) -> None:
    class Interrupted(BaseException):
        pass

    queue.enqueue("work", {}, id="before")
    calls = [queue.model.call(Listing(0, 10)) for _ in range(count)]

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise Interrupted

    monkeypatch.setattr(f"redis.connection.AbstractConnection.{method}", interrupted)
    refused(Interrupted, "", *((queue.driver.run, calls[0]) if count == 1 else (queue.driver.send_many, calls)))
    assert queue.counts().waiting == 1 and ids_of(queue, "waiting") == ["before"]
