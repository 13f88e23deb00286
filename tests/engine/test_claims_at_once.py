"""Claims of many workers at the same moment, and of workers that wait for work: each job goes to one, and at
once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine import Queue
from engine.redis.driver import SyncDriver
from tests.engine.using import DEADLINE_S, Wait, claim, ids_of, wait_until


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
