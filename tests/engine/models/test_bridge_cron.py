"""Schedules in a BridgeMQ keyspace: ours stand on the wire as the original has them, foreign ones tick, each tick is one job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import models
from engine.models.bridge import BridgeKeys, BridgeModel
from engine.wire.operations import Tick, Ticked
from engine.worker.machine.sweeping import tick
from tests.conformance.desk import ModelDesk
from tests.engine.desk import START_MS
from tests.engine.helpers.bridge_client import BridgeClient

KEYS = BridgeKeys("bridge:")
MINUTE_MS = 60_000
#: The first full five minutes after the desk's clock starts.
FIRST_MS = -(-START_MS // 300_000) * 300_000


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[ModelDesk]:
    made = ModelDesk(ironclaim_url, models.Bridge())
    yield made
    made.close()


@pytest.fixture
def client(desk: ModelDesk, ironclaim_url: str) -> Iterator[BridgeClient]:
    made = BridgeClient(ironclaim_url)
    yield made
    made.close()


def to(desk: ModelDesk, at_ms: int) -> None:
    desk.tick(at_ms - desk.now_ms)


def ticks(desk: ModelDesk) -> list[Tick]:
    """The calls that a scheduler makes now of what is due."""
    promoted = desk.run(desk.sweep_operation("s"))
    return [tick(due, promoted.srv_us // 1000, "s" * 16, desk._count("ticks")) for due in promoted.due]


def turn(desk: ModelDesk) -> list[Ticked]:
    """What one scheduler does once."""
    return [desk.run(operation) for operation in ticks(desk)]


def waiting(client: BridgeClient) -> list[str]:
    found: Any = client.redis.lrange(KEYS.waiting, 0, -1)
    return found


@pytest.mark.feature("BQ09", model="bridge")
def test_a_schedule_of_ours_stands_on_the_wire(desk: ModelDesk, client: BridgeClient) -> None:
    schedules = desk.queue.schedules
    schedules.put("report", "email", {"to": "x@y"}, cron="*/5 * * * *", zone="America/New_York")
    assert client.data("report")["schedule"] == {"cron": "*/5 * * * *", "timezone": "America/New_York"}
    assert client.status("report") == "cron" and client.redis.zscore(KEYS.cron, "report") == FIRST_MS
    assert json.loads(client.process_cron(FIRST_MS)) == [
        {"jobId": "report", "cronExpression": "*/5 * * * *", "timezone": "America/New_York"}
    ]
    schedules.disable("report")
    assert client.redis.zscore(KEYS.cron, "report") is None
    schedules.enable("report")
    assert client.redis.zscore(KEYS.cron, "report") == FIRST_MS
    schedules.put("report", "email", {"to": "z"}, cron="*/10 * * * *")
    assert client.data("report")["payload"] == {"to": "z"}
    assert client.data("report")["schedule"] == {"cron": "*/10 * * * *", "timezone": "UTC"}
    schedules.remove("report")
    assert client.redis.zcard(KEYS.cron) == 0
    assert client.redis.exists(KEYS.data("report"), KEYS.status("report")) == 0


@pytest.mark.feature("BQ09", model="bridge")
def test_each_tick_makes_a_job_of_its_own(desk: ModelDesk, client: BridgeClient) -> None:
    """1.3.3: all runs shared one id, lock, status and result."""
    desk.queue.schedules.put("report", "main", {"label": "r"}, cron="*/5 * * * *")
    made: list[str] = []
    for at in range(3):
        to(desk, FIRST_MS + at * 300_000)
        (reply,) = turn(desk)
        assert turn(desk) == []
        made += reply.jobs
    assert made == [f"cron:report:{FIRST_MS + at * 300_000}" for at in range(3)] == waiting(client)
    assert client.redis.zscore(KEYS.cron, "report") == FIRST_MS + 900_000
    job = client.data(made[0])
    assert (job["jobId"], job["schedule"], job["createdAt"]) == (made[0], {}, FIRST_MS)
    assert [leased.lease.job for leased in desk.claim()] == made


@pytest.mark.feature("BQ10", model="bridge")
def test_an_entry_of_a_foreign_client_ticks_and_is_rescheduled(desk: ModelDesk, client: BridgeClient) -> None:
    """6.4: across the gap of 2026-03-08 the score moves as the original's client moves it."""
    job = client.cron(FIRST_MS, "*/5 * * * *", "main", metadata={"own": [1.0]})
    assert turn(desk) == []
    to(desk, FIRST_MS)
    (reply,) = turn(desk)
    assert reply.jobs == (f"cron:{job}:{FIRST_MS}",) == tuple(waiting(client))
    assert client.redis.zscore(KEYS.cron, job) == FIRST_MS + 300_000 and turn(desk) == []
    run = client.data(reply.jobs[0])
    assert (run["type"], run["schedule"], run["metadata"], run["attempts"]) == ("main", {}, {"own": [1.0]}, 0)
    assert client.data(job)["schedule"]["cron"] == "*/5 * * * *" and client.status(job) == "cron"
    to(desk, FIRST_MS + 300_000)
    assert len(turn(desk)) == 1 and len(waiting(client)) == 2
    listed = {schedule.name: schedule for schedule in desk.queue.schedules.list()}
    timing = listed[job].timing
    assert timing is not None and (timing.cron, timing.zone) == ("*/5 * * * *", "America/New_York")


def test_who_moves_the_score_says_when_the_next_tick_is(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.cron(FIRST_MS, kind="main")
    to(desk, FIRST_MS)
    (operation,) = ticks(desk)
    client.redis.zadd(KEYS.cron, {job: FIRST_MS + MINUTE_MS})
    assert desk.run(operation).result == "moved" and waiting(client) == []
    to(desk, FIRST_MS + MINUTE_MS)
    (operation,) = ticks(desk)
    client.redis.zrem(KEYS.cron, job)
    assert desk.run(operation).result == "moved" and turn(desk) == [] and waiting(client) == []
    assert [schedule.name for schedule in desk.queue.schedules.list()] == []


def test_a_tick_that_a_foreign_pass_has_enqueued_is_not_made_again(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.cron(FIRST_MS, kind="main")
    to(desk, FIRST_MS)
    client.process_cron(FIRST_MS)
    (reply,) = turn(desk)
    assert (reply.jobs, reply.skipped, waiting(client)) == ((), 1, [job])
    assert client.redis.zscore(KEYS.cron, job) == FIRST_MS + 300_000
    (leased,) = desk.claim()
    assert leased.lease.job == job and desk.finish(leased.lease) == [("ok", "finished")]
    to(desk, FIRST_MS + 300_000)
    assert len(turn(desk)) == 1, "the entry lives on"


def test_finding_a_foreign_pass_whose_run_has_ended_runs_the_tick_twice(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.cron(FIRST_MS, kind="main")
    to(desk, FIRST_MS)
    client.process_cron(FIRST_MS)
    assert client.claim() is not None
    client.complete(job, None, kind="main")
    (reply,) = turn(desk)
    assert reply.jobs == (f"cron:{job}:{FIRST_MS}",)
    assert "bridge-foreign-cron" in {finding.name for finding in BridgeModel.FINDINGS}


UNREADABLE = [
    "{oops",
    "[]",
    '{"type":"main"}',
    '{"type":"main","schedule":null}',
    '{"type":"main","schedule":{"cron":7}}',
    "null",
]


@pytest.mark.parametrize("data", UNREADABLE)
def test_an_entry_that_nobody_can_read_holds_up_no_other(desk: ModelDesk, client: BridgeClient, data: str) -> None:
    client.redis.zadd(KEYS.cron, {"bad": 1, "gone": 1})
    client.redis.set(KEYS.data("bad"), data)
    client.cron(FIRST_MS, kind="main")
    to(desk, FIRST_MS)
    assert len(turn(desk)) == 1 and len(waiting(client)) == 1
    assert client.redis.zscore(KEYS.cron, "bad") == FIRST_MS + MINUTE_MS and client.redis.zscore(KEYS.cron, "gone") is None
    assert client.redis.hget("bridge:ironclaim:aside", "bad") is not None


@pytest.mark.parametrize("expression", ["not a cron", "99 * * * *", ""])
def test_an_expression_that_nobody_can_read_stops_its_entry_alone(desk: ModelDesk, client: BridgeClient, expression: str) -> None:
    bad = client.cron(FIRST_MS, expression, "main")
    client.cron(FIRST_MS, kind="main")
    to(desk, FIRST_MS)
    assert sorted(len(reply.jobs) for reply in turn(desk)) == [0, 1]
    assert turn(desk) == [] and client.redis.zscore(KEYS.cron, bad) == FIRST_MS + MINUTE_MS


def test_intervals_tick_for_our_side_alone(desk: ModelDesk, client: BridgeClient) -> None:
    desk.queue.schedules.put("often", "main", {"label": "o"}, every_ms=60_000)
    assert client.redis.zcard(KEYS.cron) == 0
    desk.tick(60_000)
    assert len(turn(desk)) == 1 and len(waiting(client)) == 1
