"""Servers with access control: the user of the README suffices, one without INFO is served, and a refusal names its command.
Servers that the driver refuses, and processes that fork."""

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from engine import AsyncQueue, Channel, ConnectOptions, Queue, ServerUnavailable, UnsafeServer, Worker, queues
from engine.redis.endpoint import DEADLINE_MS_MAX, Endpoint
from engine.redis.handshake import Handshake, ServerClock, check_server, check_version, parse_hello, parse_info
from engine.testing import EmbeddedServer
from record.history import HistoryFile, load_file
from record.recorder import Recorder
from tests.engine.using import Listing, claim, ids_of, in_child, raises, raw_client, refused, some_handlers, wait_until

README = Path(__file__).resolve().parents[2] / "README.md"
NO_DANGER = "~* &* +@all -@dangerous"
#: Makes a user with these rules; the url for it.
AsUser = Callable[[str], str]


def use_everything(url: str) -> None:
    """A service in small: jobs of all kinds, a worker, administration, events, locks, schedules and limits."""
    handlers = some_handlers(raises(ValueError("no")), "fail")

    @handlers("add")
    def add(job: Any) -> int:
        job.progress(50)
        return job.payload + 1

    with Queue("q", url=url) as queue:
        queue.events.on(100)
        queue.set_limit("add", concurrency=5, rate=1_000, per_ms=1_000)
        parent = queue.enqueue("add", 1, unique="u", delay_ms=5).job
        queue.enqueue("add", 2, needs=[parent], dedup="d", dedup_ms=1_000)
        queue.enqueue_many([{"name": "fail", "payload": number, "attempts": 1} for number in range(3)])
        queue.schedules.put("often", "add", 3, every_ms=60_000)
        queue.pause("add", length_ms=1)
        queue.resume("add")
        assert Worker(queue, handlers, sweep_ms=50).run(burst=True) == "empty" and queue.results.wait(parent).get() == 2
        (dead, *_) = queue.dead.list()
        assert queue.dead.requeue(dead.id).done and queue.jobs.cancel(dead.id).done
        assert queue.dead.requeue_all() == 2 and queue.counts().waiting == 2
        lock = queue.locks.acquire("nightly", ttl_ms=60_000)
        assert lock is not None and queue.locks.release(lock) and queue.stats() and queue.metrics() and queue.workers.list() == []
        assert [found.name for found in queues(url)] == ["q"] and next(queue.events.read("0", wait_ms=1_000)).job == parent
        queue.schedules.remove("often")
        queue.obliterate()


async def test_the_user_of_the_readme_has_what_a_queue_and_a_worker_need(as_user: AsUser) -> None:
    (rules,) = re.findall(r"^ACL SETUSER shop on >secret (.*)$", README.read_text(), re.MULTILINE)
    url = as_user(rules)
    use_everything(url)
    async with AsyncQueue("q", url=url) as queue:
        assert (await queue.enqueue("add", 1)).created


def test_without_info_everything_works_and_is_told(as_user: AsUser, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    url = as_user(NO_DANGER)
    with caplog.at_level(logging.WARNING, logger="ironclaim"):
        use_everything(url)
    (line,) = [one.getMessage() for one in caplog.records if "eviction policy" in one.getMessage()]
    assert "'info' command: the server's eviction policy (it must be noeviction) and its era are unknown" in line
    file = tmp_path / "p.jsonl"
    recorder = Recorder(HistoryFile(file, proc="p", role="producer"), queue="q")
    with Queue("q", url=url, observer=recorder) as queue:
        assert queue.enqueue("add", 1).created
    recorder.close()
    (row,) = [row for row in load_file(file).rows if row["kind"] == "connection"]
    assert (row["server_role"], row["server_run_id"], row["replid"]) == ("master", "", "")


def test_a_channel_works_without_info(as_user: AsUser) -> None:
    with Channel("news", url=as_user(NO_DANGER)) as channel:
        channel.subscribe("reader")
        assert channel.publish("m1", {"n": 1}).created
        assert [message.content for message in channel.fetch("reader", wait_ms=1_000).messages] == [{"n": 1}]


def test_without_info_no_replica_is_waited_for(as_user: AsUser) -> None:
    with Queue("q", url=as_user(NO_DANGER), durability="replica") as queue:
        refused(UnsafeServer, '^durability="replica" needs the command INFO', queue.enqueue, "add", 1)


@pytest.mark.parametrize("command", ["evalsha", "time", "script"])
def test_a_refusal_names_its_command(as_user: AsUser, command: str) -> None:
    with Queue("q", url=as_user(f"~* &* +@all -{command}")) as queue:
        refused(ServerUnavailable, f"'{command}", queue.enqueue, "add", 1)


def test_hello_is_read_in_both_protocols_and_the_oldest_version_is_good() -> None:
    fields: list[Any] = [b"server", b"redis", b"version", b"7.0.15", b"proto", 2, b"role", b"master", b"modules", []]
    wanted = {"server": "redis", "redis_version": "7.0.15", "role": "master"}
    assert parse_hello(fields) == wanted and parse_hello(dict(zip(fields[::2], fields[1::2], strict=True))) == wanted
    check_version(wanted)
    refusal, old = redis.ResponseError("NOPERM info"), [b"version", b"6.2.14"]
    answers = [refusal, refusal, refusal, old, [1, 0]]
    refused(UnsafeServer, "^redis_version: 6.2.14 is too old", Handshake((), ServerClock(), None).conclude, answers)


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
        for use in (lambda: queue.enqueue("work", {}), queue.counts, lambda: claim(queue), Worker(queue, some_handlers()).run):
            started_s = time.monotonic()
            # As long as it is kept, so is what its frames hold.
            kept = refused(UnsafeServer, r"^maxmemory_policy: allkeys-lru .* it must be noeviction$", use)
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
    queue.enqueue("work", {}, id="before")
    calls = [queue.model.call(Listing(0, 10)) for _ in range(count)]

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(f"redis.connection.AbstractConnection.{method}", interrupted)
    refused(KeyboardInterrupt, "", *((queue.driver.run, calls[0]) if count == 1 else (queue.driver.send_many, calls)))
    assert queue.counts().waiting == 1 and ids_of(queue, "waiting") == ["before"]
