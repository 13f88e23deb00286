"""What idle workers ask of the server, what the loss of the one that sweeps costs (rules 13 and 22), and claims of many workers
at the same moment, on a real server."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from engine import Queue, Worker
from engine.observer import Intended, Observer
from engine.redis.driver import SyncDriver
from tests.engine.using import DEADLINE_S, Call, Sweep, Wait, at_work, claim, ids_of, kill, some_handlers, wait_until


class Counting(Observer):
    """Counts the calls that left, by their operation, and the sweeps of each worker."""

    def __init__(self) -> None:
        self.calls, self.sweeps = Counter[str](), Counter[str]()

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        self.calls[type(call.operation).__name__] += 1
        if isinstance(call.operation, Sweep):
            self.sweeps[call.operation.incarnation] += 1
        return None


@contextmanager
def idle(url: str, number: int) -> Iterator[tuple[list[Worker], Counting]]:
    """So many workers with nothing to do, each of which has beaten and waits; and the calls of all of them together."""
    observer = Counting()  # pyright: ignore[reportAbstractUsage]
    with Queue("q", url=url, observer=observer) as queue:
        workers = [Worker(queue, some_handlers(), name=f"w{at}") for at in range(number)]
        with at_work(*workers):
            wait_until(lambda: min(observer.calls[name] for name in ("Beat", "Wait", "NoteQueue")) >= number, "all are idle")
            yield workers, observer


def test_a_worker_that_was_paused_before_its_run_claims_nothing_until_it_is_resumed(ironclaim_url: str) -> None:
    observer: Any = Counting()  # pyright: ignore[reportAbstractUsage]
    ran = threading.Event()
    handlers = some_handlers(lambda job: ran.set())
    with Queue("q", url=ironclaim_url, observer=observer) as queue:
        queue.enqueue("work", {})
        worker = Worker(queue, handlers, name="w", sweep_ms=50)
        worker.watch(False)  # As a shard's worker is told first.
        worker.pause()
        worker.resume()
        worker.pause()
        with at_work(worker):
            wait_until(lambda: observer.calls["Sweep"] >= 3, "it sweeps for the others")
            assert not observer.calls["Claim"] and not ran.is_set()
            worker.resume()
            wait_until(ran.is_set, "it goes on")
        worker.stop()
        assert worker.run() == "stopped", "and one that was stopped before its run ends at once"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "calls_most", "commands_most"), [(1, 2, 20), (10, 5, 40)])
def test_idle_workers_ask_little(ironclaim_url: str, number: int, calls_most: int, commands_most: int, client: Any) -> None:
    """For each sweep of the leader, one a second, so many calls of all together and so many commands inside of scripts.

    When the machine has stood still, they look whether the leader lives: what they ask when nothing happens is the least of
    several spans of time."""
    sweeps, spans = 5, list[tuple[bool, Counter[str], dict[str, int]]]()
    with Queue("q", url=ironclaim_url) as queue:
        # The class is known, and the queue has run jobs.
        queue.enqueue("work", {})
        with idle(ironclaim_url, number) as (_, counting):
            wait_until(lambda: queue.counts().finished == 1, "it has run")
            while len(spans) < 8 and not any(little for little, _, _ in spans):
                before, begun = counting.calls.copy(), counting.sweeps.copy()
                client.config_resetstat()
                wait_until(lambda begun=begun: max((counting.sweeps - begun).values(), default=0) >= sweeps, "the leader sweeps")
                stats, made = client.info("commandstats"), counting.calls - before
                used = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
                inside = sum(used.values()) - sum(used.get(name, 0) for name in ("evalsha", "blpop", "info", "config|resetstat"))
                little = sum(made.values()) <= calls_most * sweeps and inside <= commands_most * sweeps
                spans.append((little, made, used))
    assert spans[-1][0], spans


@pytest.mark.slow
def test_rule_13_a_leader_that_is_killed_is_succeeded_within_about_a_second(queue: Queue, workers: Any, client: Any) -> None:
    processes = {process.pid: process for process in [workers.start(name=f"w{at}") for at in range(3)]}
    wait_until(lambda: len(queue.workers.list()) == 3, "all are listed")

    def leader() -> int:
        return next((info.pid for info in queue.workers.list() if info.leads and info.pid is not None), 0)

    def led_ms() -> int:
        return int(client.hget(queue.model.keys.sweep, "led_ms") or 0)

    first, begun_ms = wait_until(leader, "one leads"), led_ms()
    wait_until(lambda: led_ms() > begun_ms, "it sweeps")
    kill(processes[first])
    killed_ms = queue.driver.server_now_ms()
    wait_until(lambda: leader() not in (0, first), "another one leads")
    wait_until(lambda: led_ms() > killed_ms, "it sweeps")
    # Before three beats of the one before have run out; on a machine that does nothing else, after 1.3 s.
    assert led_ms() - killed_ms < 30_000


@pytest.fixture
def long_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Workers block for five minutes, so that it shows what ends it; in ms."""
    for module in ("machine.claiming", "worker"):
        monkeypatch.setattr(f"engine.worker.{module}.BLOCK_MS", 300_000)
    return 300_000


@pytest.mark.usefixtures("long_blocks")
def test_rule_22_a_marker_that_nobody_has_is_set_again_for_a_follower_that_blocks(queue: Queue, client: Any) -> None:
    """As after the death of a worker with the marker in hand: only the leader sweeps, and all of them block."""
    with idle(queue.url, 3):
        queue.pause("work")
        queue.enqueue("work", {})
        client.delete(queue.model.keys.wake("work"))
        client.hdel(queue.model.keys.paused, "work")
        wait_until(lambda: queue.counts().finished == 1, "it has run")


def test_a_stop_does_not_wait_for_the_block_of_an_idle_worker(ironclaim_url: str, long_blocks: int) -> None:
    def callers() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("caller-")}

    # Not those of another test, whose server may never answer.
    before = callers()
    with idle(ironclaim_url, 3) as (workers, _):
        assert callers() - before
        began_s = time.monotonic()
        for worker in workers:
            worker.stop()
        wait_until(lambda: callers() <= before, "all have ended")
        assert time.monotonic() - began_s < long_blocks / 1000 / 2


@pytest.mark.feature("BQ12", "BL14", "MQ04", "BN07")
def test_each_job_is_claimed_once_by_whoever_asks_at_the_same_time(queue: Queue) -> None:
    """It leaves the waiting and is in hand in one step: nobody sees it in neither place, or in both."""
    jobs = {f"j{number}" for number in range(400)}
    queue.enqueue_many([{"name": "work", "payload": {}, "id": job} for job in sorted(jobs)])
    start, odd = threading.Barrier(5), list[object]()

    def work(worker: int) -> list[str]:
        start.wait()
        claims = [claim(queue, limit=5, incarnation=f"{worker:016x}") for _ in range(30)]
        return [leased.lease.job for claimed in claims for leased in claimed.jobs]

    def watch() -> None:
        start.wait()
        for _ in range(60):
            counts = queue.counts()
            if counts.waiting + counts.active != 400:
                odd.append(counts)

    with ThreadPoolExecutor(5) as threads:
        watching = threads.submit(watch)
        taken = [job for found in threads.map(work, range(4)) for job in found]
        watching.result()
    assert odd == [] and (len(taken), set(taken)) == (400, jobs)
    assert set(ids_of(queue, "active")) == jobs and ids_of(queue, "waiting") == []


@pytest.mark.feature("BN07", "BQ05")
def test_who_waits_for_work_is_woken_by_the_enqueue(queue: Queue, ironclaim_url: str, client: Any) -> None:
    wait = queue.model.call(Wait(30_000, ("work",)))
    driver = SyncDriver(ironclaim_url, queue.model.scripts.values(), block_ms_max=30_000)
    with ThreadPoolExecutor(1) as threads:
        woken = threads.submit(driver.run, wait)
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "it blocks on the server")
        assert claim(queue).jobs == () and not woken.done()
        queue.enqueue("work", {}, id="j")
        assert woken.result(DEADLINE_S).work
    driver.close()
    assert [leased.lease.job for leased in claim(queue).jobs] == ["j"]


@pytest.mark.feature("BL01")
def test_a_job_without_an_id_gets_one_of_its_own(queue: Queue, client: Any) -> None:
    """Bull counts them; here they are random, and the sequence that orders jobs is what is counted."""
    made = [queue.enqueue("work", {"n": number}).job for number in range(50)]
    assert len(set(made)) == 50 and client.get(queue.model.keys.seq) == "50"
    assert [leased.lease.job for leased in claim(queue, limit=100).jobs] == made
