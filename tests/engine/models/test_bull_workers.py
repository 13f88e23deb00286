"""Workers on queues of Bull's: what they may be told, what they survive, and what they leave on the wire when they end."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from chaos.foreign_keys import BullKeys
from engine import AsyncQueue, Handlers, Job, Malformed, PriorityQueue, Queue, Worker, models
from engine.models.foreign.bull import UNNAMED
from engine.testing import EmbeddedServer
from tests.engine.helpers.node_bull import NodeBull
from tests.engine.using import Book, at_work, lent, make_worker, wait_until

WIRE = BullKeys("bull:q:")


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    yield from lent(Queue("q", models.Bull(), url=ironclaim_url))


@pytest.fixture
def node(client: redis.Redis) -> NodeBull:
    """Its clock is the server's at the start."""
    seconds, micros = client.time()  # type: ignore[misc]
    return NodeBull(client, "bull:q:", seconds * 1000 + micros // 1000)


def worker_of(queue: Queue, book: Book, name: str, **settings: Any) -> Worker:
    return make_worker(queue, book, name, UNNAMED, sweep_ms=50, **settings)


@pytest.mark.feature("BL06", model="bull")
def test_keys_begin_with_the_prefix(ironclaim_url: str, client: redis.Redis) -> None:
    with Queue("q", models.Bull(), url=ironclaim_url, prefix="app:jobs") as queue:
        queue.enqueue(UNNAMED, {})
        book = Book()
        worker_of(queue, book, "w").run(burst=True)
    assert book.by("w") == ["1"] and client.smembers("app:jobs:q:completed") == {"1"}
    keys: Any = client.keys("*")
    assert {key for key in keys if not key.startswith("app:jobs:")} == set()


@pytest.mark.feature("BL21", model="bull")
def test_a_paused_worker_starts_nothing_and_others_go_on(queue: Queue, node: NodeBull, client: redis.Redis) -> None:
    book = Book(hold=True)
    worker = worker_of(queue, book, "w", concurrency=1, prefetch=8)
    for _ in range(4):
        node.add({})
    with at_work(worker):
        wait_until(lambda: book.running == 1, "one runs")
        worker.pause()
        wait_until(lambda: client.llen(WIRE.active) == 1, "what has not started goes back")
        assert client.lrange(WIRE.wait, 0, -1) == ["4", "3", "2"] and not client.exists(WIRE.meta_paused) and node.pop() == "2"
        book.release()
        wait_until(lambda: client.smembers(WIRE.completed) == {"1"}, "what runs goes on")
        with at_work(worker_of(queue, book, "other")):
            wait_until(lambda: sorted(book.by("other")) == ["3", "4"], "the others run elsewhere")
        node.add({})
        worker.resume()
        wait_until(lambda: book.by("w") == ["1", "5"], "it goes on")


@pytest.mark.feature("BL22", model="bull")
def test_so_many_jobs_run_at_once(queue: Queue, node: NodeBull, client: redis.Redis) -> None:
    book = Book(hold=True)
    for _ in range(9):
        node.add({})
    with at_work(worker_of(queue, book, "w", concurrency=3)):
        wait_until(lambda: book.running == 3, "three run")
        assert client.llen(WIRE.active) == 3 and len(client.keys("bull:q:*:lock")) == 3
        book.release()
        wait_until(lambda: client.scard(WIRE.completed) == 9, "all")
    assert book.most == 3


@pytest.mark.feature("BL31", model="bull")
def test_events_tell_of_jobs_of_either_side(queue: Queue, node: NodeBull, client: redis.Redis) -> None:
    queue.events.on()
    handlers = Handlers()

    @handlers(UNNAMED)
    def run(job: Job) -> None:
        if job.payload == "fails":
            raise ValueError("no")
        job.progress(50)
        wait_until(lambda: client.hget(WIRE.job(job.id), "progress") == "50", "it is told")

    node.add("runs")
    queue.enqueue(UNNAMED, "fails", attempts=1)
    Worker(queue, handlers, name="w", concurrency=1).run(burst=True)
    queue.pause()
    queue.resume()
    assert queue.clean("finished") == 1
    told = [(event.kind, event.job, event.detail) for event in queue.events.read("0-0", wait_ms=0)]
    assert [event for event in told if event[1] == "1"] == [("claimed", "1", "w"), ("progress", "1", "50"), ("finished", "1", "")]
    assert [kind for kind, job, _ in told if job == "2"] == ["created", "claimed", "failed", "buried"]
    assert [kind for kind, job, _ in told if not job] == ["paused", "resumed"]


@pytest.mark.feature("BL35", model="bull")
def test_a_queue_goes_where_a_client_goes(ironclaim_server: EmbeddedServer) -> None:
    made: Any = redis.Redis(port=ironclaim_server.port, db=3, decode_responses=True)
    with Queue("q", models.Bull(), client=made) as queue:
        assert queue.enqueue(UNNAMED, {"n": 1}).job == "1"
    assert made.hget(WIRE.job("1"), "data") == '{"n":1}'
    made.flushdb()
    made.close()

    async def use() -> None:
        other: Any = redis.asyncio.Redis(port=ironclaim_server.port, db=3, decode_responses=True)
        async with AsyncQueue("q", models.Bull(), client=other) as queue:
            assert (await queue.enqueue(UNNAMED, {})).job == "1"
        assert await other.lrange(WIRE.wait, 0, -1) == ["1"]
        await other.flushdb()
        await other.aclose()

    asyncio.run(use())


@pytest.mark.feature("BL36", model="bull")
def test_a_stop_waits_for_what_runs_and_gives_the_rest_back(queue: Queue, node: NodeBull, client: redis.Redis) -> None:
    book = Book(hold=True)
    for _ in range(4):
        node.add({})
    worker = worker_of(queue, book, "w", concurrency=1, prefetch=8)
    with at_work(worker):
        wait_until(lambda: book.running == 1, "one runs")
        worker.stop()
        wait_until(lambda: client.lrange(WIRE.wait, 0, -1) == ["4", "3", "2"], "the rest is back, in its order")
        assert client.lrange(WIRE.active, 0, -1) == ["1"] and client.keys("bull:q:*:lock") == ["bull:q:1:lock"]
        book.release()
    assert client.smembers(WIRE.completed) == {"1"} and not client.keys("bull:q:*:lock") and not client.exists(WIRE.active)


@pytest.fixture
def priorities(ironclaim_url: str) -> Iterator[PriorityQueue]:
    yield from lent(PriorityQueue("q", url=ironclaim_url))


@pytest.mark.feature("BL34", model="bull")
def test_a_priority_queue_is_five_queues(priorities: PriorityQueue, client: redis.Redis) -> None:
    words = ("low", "normal", "medium", "high", "critical")
    for word in words:
        priorities.enqueue(UNNAMED, {"p": word}, priority=word, attempts=1)
    priorities.enqueue(UNNAMED, {}, attempts=1)
    for word in words:
        root = f"bull:q:prio:{word}:"
        assert client.lrange(root + "wait", 0, -1) == (["2", "1"] if word == "normal" else ["1"])
        opts = {} if word == "normal" else {"priority": word}
        assert client.hmget(root + "1", "data", "opts") == [f'{{"p":"{word}"}}', json.dumps(opts, separators=(",", ":"))]
    assert {word: counts.waiting for word, counts in priorities.counts().items()} == {**dict.fromkeys(words, 1), "normal": 2}
    priorities.pause()
    assert len(client.keys("bull:q:prio:*:meta-paused")) == 5
    priorities.resume()
    assert not client.keys("bull:q:prio:*:meta-paused")
    with pytest.raises(Malformed, match="priority"):
        priorities.enqueue(UNNAMED, {}, priority="urgent")  # type: ignore[arg-type]


@pytest.mark.feature("BL34", model="bull")
@pytest.mark.parametrize("strategy", ["", "strict"])
def test_workers_of_a_priority_queue_prefer_higher_ones(priorities: Any, client: Any, strategy: str, monkeypatch: Any) -> None:
    """Jobs of Node's priority queue, which lie in the same five queues."""
    # The others do not take the place of a queue whose claim is answered late.
    monkeypatch.setattr("engine.worker.machine.concurrency.PATIENCE_S", 60.0)
    handlers, ran = Handlers(), list[str]()
    handlers(UNNAMED, inline=True)(lambda job: ran.append(job.payload))
    for word in ("low", "normal", "critical"):
        producer = NodeBull(client, f"bull:q:prio:{word}:", 0)
        for _ in range(30):
            producer.add(word)
    settings = {"strategy": strategy} if strategy else {}
    assert priorities.workers(handlers, concurrency=1, sweep_ms=50, **settings).run(burst=True) == "empty"
    assert sorted(ran) == sorted(["low", "normal", "critical"] * 30)
    assert ran.index("low") >= (50 if strategy else 1) and ran[:30].count("critical") >= 20
    assert client.scard("bull:q:prio:critical:completed") == 30
