"""Workers of queues with shards: all of them served in turns, few connections, few calls while idle; on a
real server."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from engine import AsyncQueue, Handlers, Malformed, Queue, Worker, WorkerGroup
from engine.ops.workers import Beat, Beaten
from engine.queue.sharding import Layout
from engine.worker.machine.concurrency import Places, Quota
from engine.worker.machine.events import MS, WatchAsked
from tests.engine.helpers.machine import Machine
from tests.engine.using import DEADLINE_S, Book, Workers, at_work, make_worker, raises, refused, some_handlers, wait_until

SHARDS, HANDLERS = 16, "tests.engine.helpers.worker_handlers:handlers"


@pytest.fixture
def queue(ironclaim_url: str) -> Any:
    with Queue("mails", url=ironclaim_url, shards=SHARDS) as made:
        yield made


def many(count: int, name: str = "work", keys: int = 40) -> list[dict[str, Any]]:
    return [{"name": name, "payload": number, "id": f"j{number}", "key": f"k{number % keys}"} for number in range(count)]


# -- whose place it is


class Shards:
    """Some shards that want places, at a time that the test sets."""

    def __init__(self, places: int, count: int) -> None:
        self.places = Places(places)
        self.quotas = [self.places.join() for _ in range(count)]
        self.poked: list[int] = []
        for number, quota in enumerate(self.quotas):
            quota.poke = lambda number=number: self.poked.append(number)
        self.now_ns = 1

    def look(self, number: int, held: int = 0, running: int = 0, *, wants: bool = True) -> int:
        return self.quotas[number].update(held, running, self.now_ns, wants=wants)

    @property
    def granted(self) -> list[int]:
        return [quota.granted for quota in self.quotas]


def test_one_shard_has_all_places_until_others_want_some() -> None:
    shards = Shards(8, 3)
    assert shards.look(0) == 1 and shards.look(0, held=1) == 8 and shards.look(1) == 0
    # It gives back what is more than its part, but no place in which a job runs.
    assert shards.look(0, held=8, running=6) == 6 and shards.poked == [1] and shards.granted == [6, 1, 0]
    assert shards.look(1, held=1) == 2 and shards.look(1, held=2) == 2
    assert shards.look(0, held=8, running=3) == 4, "the other one could use its part"
    assert shards.look(1, held=2) == 4 and shards.look(1, held=3) == 4
    assert shards.look(0, wants=False) == 0 and shards.look(1, held=4) == 8


def test_more_shards_than_places_take_turns() -> None:
    shards = Shards(1, 3)
    for number in range(3):
        shards.look(number)
    assert shards.granted == [1, 0, 0]
    shards.now_ns += 25 * MS + 1
    assert shards.look(0, held=5, running=1) == 1 and not shards.quotas[0].open, "it claims no more, and keeps its place"
    assert shards.look(0, held=0) == 0 and shards.granted == [0, 1, 0] and shards.poked == [1]
    assert shards.look(1, wants=False) == 0 and shards.granted == [0, 0, 1] and shards.poked == [1, 2]
    assert shards.look(2, held=1, running=1, wants=False) == 1
    assert shards.look(2, wants=False) == 0 and shards.granted == [1, 0, 0]


def test_turn_goes_on_where_nobody_waits_any_more() -> None:
    shards = Shards(1, 2)
    shards.look(0)
    shards.look(1)
    shards.now_ns += 25 * MS + 1
    shards.look(0, held=1, running=1)
    shards.look(1, wants=False)
    assert shards.look(0) == 1 and shards.quotas[0].open


def test_shard_that_has_ended_gives_its_places_to_others() -> None:
    shards = Shards(2, 3)
    for number in range(3):
        shards.look(number)
    shards.quotas[0].leave()
    assert shards.granted == [0, 1, 1] and isinstance(shards.quotas[0], Quota) and shards.places.free == 0


# -- work


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_all_shards_are_worked_off_in_the_order_of_each_key(kind: str, ironclaim_url: str) -> None:
    with ExitStack() as stack:
        queue: Any = (Queue if kind == "sync" else AsyncQueue)("mails", url=ironclaim_url, shards=SHARDS)
        plain = stack.enter_context(Queue("mails", url=ironclaim_url, shards=SHARDS))
        plain.enqueue_many(many(1_000))
        seen: dict[str, list[int]] = {}
        lock, most, running = threading.Lock(), [0], [0]
        handlers = Handlers()

        @handlers("work")
        def work(job: Any) -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
                seen.setdefault(f"k{job.payload % 40}", []).append(job.payload)
            with lock:
                running[0] -= 1

        assert Worker(queue, handlers, concurrency=1).run(burst=True) == "empty"
        assert {key: sorted(done) for key, done in seen.items()} == seen and sum(map(len, seen.values())) == 1_000
        assert most == [1] and plain.counts().finished == 1_000
        if kind == "async":
            asyncio.run(queue.close())


def test_handlers_run_in_so_many_places_over_all_shards(queue: Queue) -> None:
    book = Book(hold=True)
    queue.enqueue_many(many(60))
    worker, paused = (make_worker(queue, book, name, concurrency=5) for name in ("w", "paused"))
    paused.pause()
    with at_work(paused), at_work(worker):
        wait_until(lambda: book.running == 5, "all places are taken")
        wait_until(lambda: sorted(info.name for info in queue.workers.list()) == ["paused", "w"], "each is listed once")
        wait_until(lambda: any(info.leads for info in queue.workers.list()), "one of them leads, if in one shard")
        book.release()
        wait_until(lambda: queue.counts().finished == 60, "all have run")
    assert book.by("paused") == [], "paused before it had a worker for each shard"
    assert book.most == 5 and len(set(book.ran)) == 60
    wait_until(lambda: queue.workers.list() == [], "it has left all shards")


def test_jobs_delays_failures_results_and_ticks(queue: Queue) -> None:
    handlers = Handlers()
    handlers("double")(lambda job: 2 * job.payload)
    handlers("fail")(raises(ValueError("no")))
    handlers("tick")(lambda job: ticked.set())
    ticked = threading.Event()
    queue.enqueue_many([{"name": "fail", "payload": None, "id": f"f{n}", "attempts": 1} for n in range(12)])
    queue.schedules.put("often", "tick", None, every_ms=200)
    with at_work(Worker(queue, handlers)):
        assert [queue.call("double", number, key=f"k{number}") for number in range(10)] == [2 * number for number in range(10)]
        assert queue.enqueue("double", 7, id="later", delay_ms=300).created
        assert queue.results.wait("later").value == 14 and queue.results.get("later").ok  # type: ignore[union-attr]
        assert ticked.wait(120)
        queue.schedules.remove("often")

        def at_rest() -> bool:
            counts = queue.counts()
            return counts.dead == 12 and counts.waiting + counts.active + counts.delayed == 0

        wait_until(at_rest, "all are dead, and no tick is left")
    assert {job.id for job in queue.dead.list(error="ValueError")} == {f"f{n}" for n in range(12)}
    assert queue.dead.requeue("f3").done and queue.dead.discard("f4").done
    assert queue.dead.requeue_all(limit=4) == 4 and queue.counts().waiting == 5
    assert queue.dead.clear() == 6 and queue.counts().dead == 0
    told = [("double", 11)]
    wait_until(lambda: [(times.name, times.succeeded.count) for times in queue.stats()[:1]] == told, "what it told when it left")


def test_running_job_is_cancelled_and_pause_of_the_worker_is_heard(queue: Queue) -> None:
    """Over the one control connection of all shards."""
    begun, cancelled, handlers = threading.Event(), threading.Event(), Handlers()

    @handlers("work")
    def work(job: Any) -> None:
        begun.set()
        wait_until(lambda: job.cancelled, "it hears of it")
        cancelled.set()

    with at_work(Worker(queue, handlers, name="w", lease_ms=3_600_000, beat_ms=3_600_000)):
        queue.enqueue("work", None, id="a", key="acme")
        assert begun.wait(120)
        assert queue.jobs.cancel("a").done and cancelled.wait(DEADLINE_S), "long before the next renewal"
        queue.workers.pause("w")
        queue.enqueue_many(many(20))
        begun.clear()
        queue.workers.resume("w")
        assert begun.wait(120)
        for number in range(20):
            wait_until(lambda number=number: queue.jobs.cancel(f"j{number}").done, "it waits or runs")


def test_worker_of_shards_has_no_child_processes_and_no_group(queue: Queue) -> None:
    handlers = some_handlers()
    refused(Malformed, "processes", Worker, queue, handlers, processes=2)
    refused(Malformed, "a queue with shards has a Worker of its own", WorkerGroup, [queue], handlers)
    queue.counts()
    with Queue("mails", url=queue.url) as plain, pytest.raises(Malformed, match="shards: None .* 16: so many shards"):
        Worker(plain, handlers).run()
    stopped = Worker(queue, handlers)
    stopped.stop()
    assert stopped.run() == "stopped"


# -- what idle workers cost


@pytest.mark.slow
def test_signal_while_the_first_worker_of_a_shard_begins_stops_that_one(queue: Queue) -> None:
    """A signal handler runs between any two lines of the thread that begins the workers, which holds the lock."""

    class Interrupted(dict[str, Worker]):
        def __setitem__(self, name: str, worker: Worker) -> None:
            if not self:
                sharded.stop()
            super().__setitem__(name, worker)

    sharded: Any = make_worker(queue, Book(), "w")
    sharded._shards._of_each = Interrupted()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(sharded.run)
        try:
            assert run.result(DEADLINE_S) == "stopped"
        finally:
            sharded.stop()


def test_idle_workers_of_many_shards_ask_little(ironclaim_url: str, raw: Any) -> None:
    """Three workers of 16 shards block three times in five seconds, as those of one queue do."""
    handlers = some_handlers()
    with ExitStack() as stack:
        queues = [stack.enter_context(Queue("mails", url=ironclaim_url, shards=SHARDS)) for _ in range(3)]
        stack.enter_context(at_work(*(Worker(queue, handlers, name=f"w{at}") for at, queue in enumerate(queues))))
        names = Layout(1, SHARDS).names("mails")

        def calm() -> bool:
            return all(len(raw.zrange(f"ic:{{{name}}}:workers", 0, -1)) == 3 for name in names)

        wait_until(calm, "all are listed")
        wait_until(lambda: raw.info("clients")["blocked_clients"] == 3, "each blocks once")
        # From one end of the blocks to the next one.
        raw.config_resetstat()
        begun_s, used = time.monotonic(), dict[str, Any]()

        def blocked_again() -> bool:
            used.update(raw.info("commandstats"))
            return int(used.get("cmdstat_blpop", {}).get("calls", 0)) >= 6

        wait_until(blocked_again, "they block again", 60)
        took_s = time.monotonic() - begun_s
        assert took_s > 5, used["cmdstat_blpop"]
        # About 14 a second, a few more where leaders change on a busy machine; were each worker to sweep each
        # shard, it were 48.
        assert used["cmdstat_evalsha"]["calls"] / took_s < 24, used


@pytest.mark.slow
def test_jobs_of_a_killed_worker_run_elsewhere(queue: Queue, workers: Workers) -> None:
    """Also those of shards that it leads and whose other workers are idle: the one that leads shard 0 looks
    after them."""

    def start(name: str) -> Any:
        return workers.start("--concurrency", "8", "--shards", "16", name=name, queue="mails", handlers=HANDLERS)

    payload = {"folder": str(workers.folder)}
    queue.enqueue_many([{"name": "hold", "payload": payload, "id": f"h{n}", "key": f"k{n}"} for n in range(8)])
    first = start("w0")
    wait_until(lambda: len(workers.marks("start")) == 8, "it holds all")
    others = [start("w1"), start("w2")]
    wait_until(lambda: sum(info.alive for info in queue.workers.list()) == 3, "all are listed")
    first.kill()
    first.wait()
    for other in others:
        workers.open_gate(other.pid)
    wait_until(lambda: queue.counts().finished == 8, "all have run elsewhere")
    assert {mark.pid for mark in workers.marks("end")} <= {other.pid for other in others}


# -- the beats of an idle shard


def beats(machine: Machine, for_ms: int, *, watch_in_ms: int = 0) -> list[int]:
    """When the machine beats, each beat answered at once with its next turn to look after the leader."""
    found, end_ms = list[int](), machine.now_ms + for_ms
    while machine.now_ms < end_ms:
        call = machine.out.get("sweep")
        if call is not None and isinstance(call.operation, Beat):
            found.append(machine.now_ms)
            machine.answer("sweep", Beaten(machine.srv_us, "ok", False, False, watch_in_ms, 0))
        elif call is not None:
            machine.fail("sweep")
        machine.wait(100)
    return found


def idle_shard() -> Machine:
    return Machine(beat_ms=1_000, idle_beats=16).given()


def test_idle_worker_of_a_shard_beats_rarely_and_leaves_the_leader_to_others() -> None:
    machine = idle_shard()
    assert [at_ms // 1_000 for at_ms in beats(machine, 40_000, watch_in_ms=1_500)] == [0, 16, 32]
    assert machine.steps._heartbeat.next_beat("0" * 16, (), machine.now_ns, {}).ttl_ms == 48_000


def test_worker_that_watches_beats_as_ever_and_at_once() -> None:
    machine = idle_shard()
    beats(machine, 3_000)
    assert len(beats(machine.told(WatchAsked(True)), 5_000)) in (5, 6)
    assert len(beats(machine.told(WatchAsked(False)), 15_000)) <= 1


def test_worker_with_a_job_in_hand_beats_as_ever() -> None:
    machine = Machine(beat_ms=1_000, idle_beats=16)
    beats(machine, 3_000)
    assert len(beats(machine.given(machine.job("a")), 3_000)) in (3, 4)
