"""Rule 26: the handler of a cancelled job hears of it at the next renewal, wherever it runs, and is refused afterwards."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from engine import Handlers, Queue
from engine.worker.worker import Worker
from tests.engine.helpers.waiting import wait_until


@pytest.mark.feature("MQ32")
@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_rule_26_a_handler_hears_that_its_job_was_cancelled(queue: Queue, kind: str) -> None:
    handlers, started, heard = Handlers(), threading.Event(), list[bool]()

    def plain(job: Any) -> None:
        started.set()
        job.lease_lost.wait(10)
        heard.append(job.cancelled_by_hand)

    async def coroutine(job: Any) -> None:
        started.set()
        while not job.lease_lost.is_set():
            await asyncio.sleep(0.01)
        heard.append(job.cancelled_by_hand)

    handlers("work")(plain if kind == "thread" else coroutine)
    queue.enqueue("work", {}, id="j")
    worker = Worker(queue, handlers, lease_ms=1000, sweep_ms=50)
    thread = threading.Thread(target=lambda: worker.run(burst=True))
    thread.start()
    assert started.wait(10)
    assert queue.jobs.cancel("j").state == "active"
    thread.join(15)
    wait_until(lambda: heard, "the handler has heard of it")
    assert heard == [True]
    counts = queue.counts()
    assert (counts.finished, counts.active, counts.waiting, queue.jobs.state("j")) == (0, 0, 0, "cancelled")
