"""Schedules in a BridgeMQ keyspace: ours stand on the wire as the original has them, foreign ones tick, each tick is one job."""

import json

import pytest

from engine.models.foreign.bridge import BridgeModel
from tests.conformance.desk import ModelDesk
from tests.engine.helpers.bridge_client import KEYS, BridgeClient, client, desk, waiting
from tests.engine.using import START_MS, ListSchedules, RemoveSchedule

__all__ = ["client", "desk"]

MINUTE_MS = 60_000
#: The first full five minutes after the desk's clock starts.
FIRST_MS = -(-START_MS // 300_000) * 300_000


@pytest.mark.feature("BQ09", model="bridge")
def test_a_schedule_of_ours_stands_on_the_wire(desk: ModelDesk, client: BridgeClient) -> None:
    schedules = desk.queue.schedules
    schedules.put("report", "email", {"to": "x@y"}, cron="*/5 * * * *", zone="America/New_York")
    assert client.data("report")["schedule"] == {"cron": "*/5 * * * *", "timezone": "America/New_York"}
    assert client.status("report") == "cron" and client.redis.zscore(KEYS.cron, "report") == FIRST_MS
    told = {"jobId": "report", "cronExpression": "*/5 * * * *", "timezone": "America/New_York"}
    assert json.loads(client.process_cron(FIRST_MS)) == [told]
    schedules.disable("report")
    assert client.redis.zscore(KEYS.cron, "report") is None
    schedules.enable("report")
    assert client.redis.zscore(KEYS.cron, "report") == FIRST_MS
    schedules.put("report", "email", {"to": "z"}, cron="*/10 * * * *")
    assert client.data("report")["payload"] == {"to": "z"}
    assert client.data("report")["schedule"] == {"cron": "*/10 * * * *", "timezone": "UTC"}
    schedules.remove("report")
    assert client.redis.zcard(KEYS.cron) == 0 and client.redis.exists(KEYS.data("report"), KEYS.status("report")) == 0


@pytest.mark.feature("BQ09", model="bridge")
def test_each_tick_makes_a_job_of_its_own(desk: ModelDesk, client: BridgeClient) -> None:
    """1.3.3: all runs shared one id, lock, status and result."""
    desk.queue.schedules.put("report", "main", {"label": "r"}, cron="*/5 * * * *")
    made: list[str] = []
    for at in range(3):
        (reply,) = desk.to(FIRST_MS + at * 300_000).turn()
        assert desk.turn() == []
        made += reply.jobs
    assert made == [f"cron:report:{FIRST_MS + at * 300_000}" for at in range(3)] == waiting(client)
    assert client.redis.zscore(KEYS.cron, "report") == FIRST_MS + 900_000
    job = client.data(made[0])
    assert (job["jobId"], job["schedule"], job["createdAt"]) == (made[0], {}, FIRST_MS)
    assert [leased.lease.job for leased in desk.claim()] == made


@pytest.mark.feature("BQ10", model="bridge")
def test_an_entry_of_a_foreign_client_ticks_and_is_rescheduled(desk: ModelDesk, client: BridgeClient) -> None:
    """6.4: across the gap of 2026-03-08 the score moves as the original's client moves it."""
    job = client.cron(FIRST_MS, "*/5 * * * *", "main", metadata={"own": [1.0]}, attempts=2)
    assert desk.turn() == []
    (reply,) = desk.to(FIRST_MS).turn()
    assert reply.jobs == (f"cron:{job}:{FIRST_MS}",) == tuple(waiting(client))
    assert client.redis.zscore(KEYS.cron, job) == FIRST_MS + 300_000 and desk.turn() == []
    run = client.data(reply.jobs[0])
    assert (run["type"], run["schedule"], run["metadata"], run["attempts"]) == ("main", {}, {"own": [1.0]}, 0)
    assert run["createdAt"] == FIRST_MS and client.data(job)["schedule"]["cron"] == "*/5 * * * *" and client.status(job) == "cron"
    assert len(desk.to(FIRST_MS + 300_000).turn()) == 1 and len(waiting(client)) == 2
    timing = {schedule.name: schedule for schedule in desk.queue.schedules.list()}[job].timing
    assert timing is not None and (timing.cron, timing.zone) == ("*/5 * * * *", "America/New_York")


#: The year after the desk's clock starts: nothing has ticked by then.
YEARLY_MS = START_MS + 365 * 86_400_000


def own_keys(client: BridgeClient) -> list[str]:
    return sorted(key for key in client.redis.keys("bridge:ironclaim:*") if ":op:" not in key and not key.endswith(":sweep"))


@pytest.mark.feature("BQ10", model="bridge")
def test_an_entry_of_a_foreign_client_is_there_before_its_first_tick(desk: ModelDesk, client: BridgeClient) -> None:
    schedules, job = desk.queue.schedules, client.cron(YEARLY_MS, "0 0 1 1 *", "main", priority=9)
    before = {key: client.redis.dump(key) for key in client.redis.keys("bridge:jobs:*")}
    (listed,) = schedules.list()
    assert listed == schedules.get(job) and schedules.get("other") is None
    assert (listed.name, listed.job_name, listed.payload, listed.options.priority) == (job, "main", {"to": "x@y"}, 9)
    assert (listed.timing.cron, listed.timing.zone, listed.next_ms) == ("0 0 1 1 *", "America/New_York", YEARLY_MS)
    assert (listed.enabled, listed.count, listed.missed, listed.error) == (True, 0, 0, "")
    # To look at it writes nothing.
    assert own_keys(client) == [] and {key: client.redis.dump(key) for key in before} == before
    made = schedules.run_now(job)
    assert made is not None and client.data(made.job)["payload"] == {"to": "x@y"}

    assert schedules.disable(job) and client.redis.zscore(KEYS.cron, job) is None and client.status(job) == "cron"
    (listed,) = schedules.list()
    assert (listed.enabled, listed.next_ms) == (False, 0) and schedules.enable(job) and client.redis.zcard(KEYS.cron) == 1
    found = schedules.get(job)
    assert found is not None and found.enabled and found.next_ms == client.redis.zscore(KEYS.cron, job)

    other = client.cron(YEARLY_MS, "0 0 1 1 *", "main")
    assert schedules.remove(other) and not schedules.remove(other)
    assert client.redis.exists(KEYS.data(other), KEYS.status(other)) == 0
    assert schedules.remove(job) and schedules.list() == () and client.redis.zcard(KEYS.cron) == 0


def test_a_put_changes_an_entry_of_a_foreign_client(desk: ModelDesk, client: BridgeClient) -> None:
    job, put = client.cron(YEARLY_MS, "0 0 1 1 *", "main"), desk.queue.schedules.put
    assert put(job, "main", {"to": "z"}, cron="0 0 1 1 *", zone="America/New_York") == "changed"
    assert client.data(job)["payload"] == {"to": "z"} and client.redis.zscore(KEYS.cron, job) == YEARLY_MS
    assert put(job, "main", {"to": "z"}, cron="0 0 1 1 *", zone="America/New_York") == "same"


def test_pages_have_entries_of_foreign_clients_between_ours_by_next_tick(desk: ModelDesk, client: BridgeClient) -> None:
    expected: list[str] = []
    for number in range(30):
        if number % 3:
            expected.append(client.cron(FIRST_MS + number * MINUTE_MS, "0 0 1 1 *", "main"))
        else:
            desk.queue.schedules.put(f"ours-{number}", "main", None, every_ms=1000, start_ms=FIRST_MS + number * MINUTE_MS)
            expected.append(f"ours-{number}")
    desk.queue.schedules.put("off", "main", None, every_ms=1000, enabled=False)
    expected.append("off")
    for limit in (1, 4, 7, 31, 40):
        pages = [desk.run(ListSchedules("", rank, limit)) for rank in range(0, 31, limit)]
        assert [stored.schedule for page in pages for stored in page.items] == expected, limit
        assert [page.more for page in pages] == [True] * (len(pages) - 1) + [False], limit
    assert [schedule.name for schedule in desk.queue.schedules.list()] == expected


@pytest.mark.parametrize("act", ["remove", "disable"])
def test_an_entry_that_nobody_can_read_is_listed_with_the_reason(desk: ModelDesk, client: BridgeClient, act: str) -> None:
    for number, data in enumerate(UNREADABLE):
        client.redis.zadd(KEYS.cron, {f"bad-{number}": YEARLY_MS})
        client.redis.set(KEYS.data(f"bad-{number}"), data)
    client.redis.zadd(KEYS.cron, {"gone": YEARLY_MS})
    good = client.cron(YEARLY_MS, "0 0 1 1 *", "main")
    listed = {schedule.name: schedule.error for schedule in desk.queue.schedules.list()}
    bad = [f"bad-{number}" for number in range(len(UNREADABLE))]
    assert listed == {good: "", **dict.fromkeys(bad, "a schedule that cannot be read")}
    for name in bad:
        assert getattr(desk.queue.schedules, act)(name)
        assert client.redis.zscore(KEYS.cron, name) is None and client.redis.exists(KEYS.data(name))
    assert client.redis.zscore(KEYS.cron, good) == YEARLY_MS


def test_rule_01_a_removal_of_a_foreign_entry_cut_off_anywhere_is_done_by_a_copy(desk: ModelDesk, client: BridgeClient) -> None:
    for writes in desk.each_cut():
        job = client.cron(YEARLY_MS, "0 0 1 1 *", "main")
        desk.cut_off(RemoveSchedule(job, op_id=desk._op_id(), not_after_ms=desk.now_ms + 60_000), writes)
        assert desk.run(RemoveSchedule(job, op_id=desk._op_id(), not_after_ms=desk.now_ms + 60_000)).result == "done"
        assert desk.queue.schedules.list() == () and client.redis.zcard(KEYS.cron) == 0, writes
        assert client.redis.exists(KEYS.data(job), KEYS.status(job), f"bridge:ironclaim:cron:{job}") == 0, writes


def test_a_tick_that_a_foreign_pass_has_enqueued_is_not_made_again(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.cron(FIRST_MS, kind="main")
    desk.to(FIRST_MS)
    client.process_cron(FIRST_MS)
    (reply,) = desk.turn()
    assert (reply.jobs, reply.skipped, waiting(client)) == ((), 1, [job])
    assert client.redis.zscore(KEYS.cron, job) == FIRST_MS + 300_000
    (leased,) = desk.claim()
    assert leased.lease.job == job and desk.finish(leased.lease) == [("ok", "finished")]
    assert len(desk.to(FIRST_MS + 300_000).turn()) == 1, "the entry lives on"


def test_finding_a_foreign_pass_whose_run_has_ended_runs_the_tick_twice(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.cron(FIRST_MS, kind="main")
    desk.to(FIRST_MS)
    client.process_cron(FIRST_MS)
    assert client.claim() is not None
    client.complete(job, None, kind="main")
    assert [reply.jobs for reply in desk.turn()] == [(f"cron:{job}:{FIRST_MS}",)]
    assert "bridge-foreign-cron" in {finding.name for finding in BridgeModel.FINDINGS}


UNREADABLE = [
    "{oops", "[]", '{"type":"main"}', '{"type":"main","schedule":null}', '{"type":"main","schedule":{"cron":7}}', "null",
]  # fmt: skip


@pytest.mark.parametrize("data", UNREADABLE)
def test_an_entry_that_nobody_can_read_holds_up_no_other(desk: ModelDesk, client: BridgeClient, data: str) -> None:
    client.redis.zadd(KEYS.cron, {"bad": 1, "gone": 1})
    client.redis.set(KEYS.data("bad"), data)
    client.cron(FIRST_MS, kind="main")
    assert len(desk.to(FIRST_MS).turn()) == 1 and len(waiting(client)) == 1
    assert client.redis.zscore(KEYS.cron, "bad") == FIRST_MS + MINUTE_MS and client.redis.zscore(KEYS.cron, "gone") is None
    assert client.redis.hget("bridge:ironclaim:aside", "bad") is not None


@pytest.mark.parametrize("expression", ["not a cron", "99 * * * *", ""])
def test_an_expression_that_nobody_can_read_stops_its_entry_alone(desk: ModelDesk, client: BridgeClient, expression: str) -> None:
    bad = client.cron(FIRST_MS, expression, "main")
    client.cron(FIRST_MS, kind="main")
    assert sorted(len(reply.jobs) for reply in desk.to(FIRST_MS).turn()) == [0, 1]
    assert desk.turn() == [] and client.redis.zscore(KEYS.cron, bad) == FIRST_MS + MINUTE_MS
