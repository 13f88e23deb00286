"""A queue's counters in Prometheus' text format."""

from __future__ import annotations

import asyncio

import pytest

from engine import AsyncQueue
from engine.wire.operations import Bury, Failure
from tests.engine.desk import Desk, desk

__all__ = ["desk"]


@pytest.mark.feature("BN33")
def test_metrics_tell_states_and_counters_in_the_text_format(desk: Desk) -> None:
    desk.enqueue("j1", "j2", "j3", "j4")
    first, second, _ = desk.claim(limit=3)
    desk.enqueue("j5", delay_ms=1000)
    desk.finish(first.lease)
    desk.run(Bury((Failure(second.lease, "no"),)))
    text = desk.queue.metrics()
    assert text.endswith("\n")
    lines = text.splitlines()
    expected = {"waiting": 1, "delayed": 1, "blocked": 0, "active": 1, "dead": 1, "done": 1}
    assert [line for line in lines if line.startswith("ironclaim_jobs{")] == [
        f'ironclaim_jobs{{queue="desk",state="{state}"}} {number}' for state, number in expected.items()
    ]
    assert 'ironclaim_jobs_finished_total{queue="desk"} 1' in lines and 'ironclaim_jobs_buried_total{queue="desk"} 1' in lines
    assert [line.split()[2:] for line in lines if line.startswith("# TYPE")] == [
        ["ironclaim_jobs", "gauge"],
        ["ironclaim_jobs_finished_total", "counter"],
        ["ironclaim_jobs_buried_total", "counter"],
        ["ironclaim_run_seconds", "histogram"],
    ]

    async def other() -> str:
        async with AsyncQueue("desk", url=desk.queue.url) as queue:
            return await queue.metrics()

    assert asyncio.run(other()) == text
