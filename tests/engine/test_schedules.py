"""`queue.schedules`, synchronous and asyncio: what a service types and gets, and workers and schedulers that tick."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine import Handlers, Malformed, Queue, Schedule, Scheduler, Worker
from record.history import HistoryFile
from record.recorder import Recorder
from tests.engine.helpers.schema import checked_rows
from tests.engine.using import START_MS, TickPolicy, Timing, at_work, refused, wait_until

DAY_MS = 86_400_000


@pytest.fixture
def schedules(face: Any) -> Any:
    """Those of a queue under a test's clock."""
    face.use_test_clock(START_MS)
    return face.schedules


def test_a_schedule_and_its_state(schedules: Any) -> None:
    every_day = {"cron": "0 3 * * *", "zone": "Europe/Berlin", "missed": "skip", "late_ms": 5, "overlap": "skip"}
    assert schedules.get("nightly") is None
    assert schedules.put("nightly", "clean", {"deep": True}, **every_day, priority=9, headers={"by": "cron"}) == "new"
    known: Schedule = schedules.get("nightly")
    assert (known.name, known.job_name, known.payload, known.options.priority) == ("nightly", "clean", {"deep": True}, 9)
    assert known.options.headers == (("by", "cron"),) and known.timing == Timing(cron="0 3 * * *", zone="Europe/Berlin")
    assert known.policy == TickPolicy("skip", 5, "skip") and known.enabled and START_MS < known.next_ms <= START_MS + DAY_MS
    assert (known.last_ms, known.last_job, known.count, known.missed, known.skipped, known.error) == (0, "", 0, 0, 0, "")


@pytest.mark.feature("BN18")
def test_what_is_put_again_keeps_its_next_tick_unless_its_timing_changed(schedules: Any, face: Any) -> None:
    hourly: dict[str, Any] = {"every_ms": 3_600_000}
    assert schedules.put("s", "clean", 1, **hourly) == "new"
    next_ms = schedules.get("s").next_ms
    assert next_ms == START_MS + 3_600_000
    face.use_test_clock(START_MS + 1000)
    assert schedules.put("s", "clean", 1, **hourly) == "same" and schedules.put("s", "clean", 2, **hourly) == "changed"
    assert schedules.put("s", "clean", 2, **hourly, overlap="skip") == "changed"
    assert schedules.get("s").next_ms == next_ms and schedules.put("s", "clean", 2, every_ms=60_000) == "changed"
    assert schedules.get("s").next_ms == START_MS + 61_000
    # What an operator has disabled stays so when the service starts again.
    assert schedules.disable("s") and schedules.put("s", "clean", 2, every_ms=60_000) == "same"
    assert (schedules.get("s").enabled, schedules.get("s").next_ms) == (False, 0)
    assert schedules.put("s", "clean", 2, every_ms=60_000, enabled=True) == "same"
    assert schedules.get("s").next_ms == START_MS + 61_000
    assert schedules.put("s", "clean", 2, every_ms=60_000, enabled=False) == "same" and not schedules.get("s").enabled
    face.use_test_clock(START_MS + 200_000)
    assert schedules.enable("s") and schedules.enable("s")
    # On the grid of its anchor, and not from now.
    assert (schedules.get("s").enabled, schedules.get("s").next_ms) == (True, START_MS + 241_000)


def test_all_of_them_in_pages_and_what_is_not_there(schedules: Any) -> None:
    names = [f"s{number:03d}" for number in range(120)]
    for number, name in enumerate(names):
        schedules.put(name, "clean", number, every_ms=1000 * (number + 1))
    schedules.disable("s000")
    assert [schedule.name for schedule in schedules.list()] == [*names[1:], "s000"]
    assert schedules.remove("s001") and not schedules.remove("s001")
    assert len(schedules.list()) == 119 and schedules.get("s001") is None
    assert (schedules.enable("none"), schedules.disable("none"), schedules.run_now("none")) == (False, False, None)


def test_a_payload_is_written_by_the_queues_serialisers(schedules: Any) -> None:
    schedules.put("raw", "clean", b"\0\xff", every_ms=1000)
    known: Schedule = schedules.get("raw")
    assert (known.payload, known.payload_bytes, known.options.serializer) == (b"\0\xff", b"\0\xff", "raw")


def test_one_more_of_its_jobs_now(schedules: Any, face: Any) -> None:
    schedules.put("s", "clean", {"a": [1]}, months=1, priority=8, key="k", enabled=False)
    first, second = schedules.run_now("s"), schedules.run_now("s")
    assert first.created and second.created and first.job != second.job and first.job.startswith("cron:s:now-")
    assert (face.counts().waiting, schedules.get("s").count) == (2, 0)


# -- workers and schedulers


@pytest.mark.feature("BQ10", "BN13", "MQ08")
def test_a_worker_ticks_and_runs_what_it_ticked_to_the_millisecond(queue: Queue) -> None:
    seen, handlers = list[tuple[str, int]](), Handlers()
    handlers("beat")(lambda job: seen.append((job.id, queue.counts().srv_us // 1000)))
    queue.schedules.put("pulse", "beat", None, every_ms=200)
    with at_work(Worker(queue, handlers)):
        wait_until(lambda: len(seen) >= 5, "the schedules tick")
    # Jobs that came together, after the machine stood still, start in any order.
    seen.sort()
    ticks = [int(job.rpartition(":")[2]) for job, _ in seen]
    assert [after - before for before, after in pairwise(ticks)] == [200] * (len(ticks) - 1)
    assert all(at_ms - tick_ms >= 0 for tick_ms, (_, at_ms) in zip(ticks, seen, strict=True))


@pytest.mark.feature("BQ10", "BN25", "MQ10")
def test_many_schedulers_and_workers_make_one_job_a_tick(queue: Queue, ironclaim_url: str) -> None:
    handlers, seen = Handlers(), list[str]()
    handlers("beat")(lambda job: seen.append(job.id))
    for number in range(5):
        queue.schedules.put(f"s{number}", "beat", None, every_ms=100)
    queues = [Queue("q", url=ironclaim_url) for _ in range(3)]
    runs = [Worker(queues[0], handlers), *(Scheduler(one) for one in queues)]
    with at_work(*runs):
        wait_until(lambda: min(schedule.count for schedule in queue.schedules.list()) >= 10, "the schedules tick")
        for number in range(5):
            queue.schedules.disable(f"s{number}")
        wait_until(lambda: queue.counts().waiting + queue.counts().active == 0, "the schedules tick")
    listed = queue.schedules.list()
    assert len(seen) == len(set(seen)) == sum(schedule.count for schedule in listed)
    for schedule in listed:
        ticks = sorted(int(job.rpartition(":")[2]) for job in seen if job.startswith(f"cron:{schedule.name}:"))
        # Each of them, but those that nobody saw in time because the machine stood still.
        assert len(ticks) + schedule.missed == (ticks[-1] - ticks[0]) // 100 + 1 and len({tick % 100 for tick in ticks}) == 1


@pytest.mark.feature("BN25")
def test_a_scheduler_promotes_reaps_and_ticks_and_runs_nothing(queue: Queue) -> None:
    queue.schedules.put("s", "clean", None, every_ms=100)
    queue.enqueue("clean", None, delay_ms=50)
    with at_work(Scheduler(queue, sweep_ms=20)):
        wait_until(lambda: queue.counts().waiting >= 3, "the schedules tick")
    counts = queue.counts()
    assert (counts.active, counts.finished, counts.delayed) == (0, 0, 0)


def test_rule_29_ticks_leave_rows_and_a_schedule_that_was_set_aside_is_told(
    queue: Queue, tmp_path: Path, ironclaim_url: str, caplog: pytest.LogCaptureFixture, client: Any
) -> None:
    recorder = Recorder(HistoryFile(tmp_path / "p.jsonl", proc="p", role="worker"), queue="q")
    queue.schedules.put("good", "clean", None, every_ms=100)
    queue.schedules.put("bad", "clean", None, every_ms=100)
    client.hset("ic:{q}:cron:bad", "timing", "{}")
    recorded = Queue("q", url=ironclaim_url, observer=recorder)
    with at_work(Scheduler(recorded)):
        wait_until(lambda: queue.counts().waiting >= 2, "the schedules tick")
    recorder.close()
    ticked = [row for row in checked_rows(tmp_path / "p.jsonl") if row.get("f") == "tick" and row["type"] == "ok"]
    made = [item for row in ticked for item in row["items"]]
    assert [item["job"] for item in made] == [f"cron:good:{item['tick_ms']}" for item in made] != []
    assert {(item["schedule"], item["result"]) for item in made} == {("good", "created")}
    assert {row["result"] for row in ticked} == {"ticked"}
    said = "schedule bad cannot tick until it is put again: one of cron, every_ms and months"
    assert [record.getMessage() for record in caplog.records if "bad" in record.getMessage()] == [said]


@pytest.mark.parametrize(
    ("field", "given"), [("sweep_ms", {"sweep_ms": 9}), ("sweep_ms", {"sweep_ms": 2001}), ("worker name", {"name": "a b"})]
)
def test_a_schedulers_bounds(queue: Queue, field: str, given: dict[str, Any]) -> None:
    refused(Malformed, f"^{field}: ", Scheduler, queue, **given)
