"""What the templates show, from hand-made findings: no server."""

import asyncio
from dataclasses import astuple, replace

import pytest

from engine import AsyncQueue
from engine.http.page import job_views, queue_views
from engine.http.page.live import RunTimes, Sample, Sampler, Samplers, rate
from engine.http.page.looks import LanesRound, Looks, ObstaclesRound, OneJob, ShardedLooks
from engine.ops import jobs, looks, workers
from engine.queue.looks import JobError, JobInfo
from engine.queue.why import LaneInfo
from tests.engine.helpers.refusing import malformed


def test_reasons_are_told_once_and_what_holds_most_comes_first() -> None:
    paused = "the name a is paused until it is resumed"
    lanes = [LaneInfo("a", str(number), 2, 0, paused) for number in range(3)] + [LaneInfo("b", "", 50, 0, "limit of name b")]
    found = queue_views.reasons([looks.PauseInfo("a", 0)], [], lanes)
    assert found == [queue_views.Reason("limit of name b", 1, 50), queue_views.Reason(paused, 3, 6)]


def test_names_are_the_sum_of_their_lanes() -> None:
    lanes = [LaneInfo("a", "x", 2, 500, ""), LaneInfo("a", "y", 3, 400, ""), LaneInfo("b", "", 9, 0, "")]
    assert queue_views.names(lanes) == (queue_views.NameRow("b", 9, 1, 0), queue_views.NameRow("a", 5, 2, 400))


def test_a_clock_that_stepped_back_does_not_break_the_drawing() -> None:
    error = JobError(100, 50_000, "failed", "ValueError", "")
    found = JobInfo("1", "dead", name="send", enqueued_ms=1_000, ended_ms=2_000, failures=1, claims=1, errors=(error,))
    assert all(0 <= bar.x <= bar.x + bar.width <= 1_000 for bar in job_views.bars(found, 3_000))
    assert job_views.bars(JobInfo("1", "dead", name="send", enqueued_ms=9_000, ended_ms=2_000), 3_000) == ()


def test_a_corrupt_job_can_only_be_discarded() -> None:
    found = JobInfo("1", "dead", unreadable="version 9", envelope=b"\xff<b>")
    assert [action for action, _ in job_views.JOB_ACTIONS if job_views.offered(action, found)] == ["discard"]
    assert job_views.job_view(OneJob(found, None, 1), payloads=True).payload == "b'\\xff<b>'"
    assert job_views.job_view(OneJob(found, None, 1), payloads=False).payload is None


def test_a_filter_says_in_its_address_what_it_means() -> None:
    query = {"state": "dead", "name": "send", "error": " ValueError ", "text": "a&b", "cursor": "250", "newest": "1"}
    wanted = job_views.filter_of(query)
    assert wanted == job_views.Filter("dead", "send", "", "ValueError", "", "a&b", newest=True, cursor=250)
    kind = job_views.filter_of({"state": "dead", "error_like": "no user …"})
    assert kind.narrow and kind.address() == "state=dead&error_like=no+user+%E2%80%A6"
    assert wanted.address(cursor="") == "state=dead&name=send&error=ValueError&text=a%26b&newest=1"
    assert job_views.filter_of({"name": "", "text": " "}) == job_views.Filter() and not job_views.Filter().narrow
    assert job_views.filter_of({"text": "x" * 200}).text == "x" * 200


BAD_FILTERS = [
    *(("state", "gone"), ("cursor", "1e3"), ("cursor", "\u0661"), ("cursor", "10001"), ("name", "x" * 65_537)),
    *(("key", "x" * 65_537), ("text", "x" * 201), ("error", "x" * 201), ("error_like", "x" * 1_001)),
]


@pytest.mark.parametrize(("field", "value"), BAD_FILTERS)
def test_a_bad_filter_is_refused_before_any_call(field: str, value: str) -> None:
    assert malformed(job_views.filter_of, {field: value}).field == field


def test_a_hidden_payload_is_not_searched() -> None:
    found = JobInfo("1", "waiting", name="send", payload_bytes=b'"secret"', options=jobs.Options(key="acme"))
    assert not job_views.has_text(found, "secret", payloads=False) and job_views.has_text(found, "SECRET", payloads=True)
    assert job_views.has_text(found, "ACME", payloads=False)


def counts(waiting: int, cursor: str) -> looks.Counts:
    return looks.Counts(1, waiting, 0, 0, 0, 0, 0, 0, cursor=cursor)


def test_waiting_jobs_of_many_lanes_are_the_sum_of_a_round() -> None:
    found = LanesRound()
    first = ((500, "more", (500, True, "more")), (20, "", (520, False, "")))
    # The next round counts again, and is shown when it is whole.
    for count, cursor, shown in (*first, (400, "more", (520, False, "more")), (10, "", (410, False, ""))):
        found.add(counts(count, cursor))
        assert (found.waiting, found.least, found.cursor) == shown


def test_what_holds_jobs_back_is_that_of_the_last_whole_round() -> None:
    found = ObstaclesRound()
    # What has come so far is better than nothing, and worse than a round before.
    for srv_us, cursor, shown in ((1, "more", (1, True)), (2, "", (1, False)), (3, "more", (1, False)), (4, "", (3, False))):
        found.add(looks.ObstaclesPart(srv_us, (), (), (), cursor))
        assert found.whole is not None and (found.whole.srv_us, found.whole.cut) == shown and found.cursor == cursor


async def test_samples_are_taken_while_anybody_looks(ironclaim_url: str) -> None:
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        sampler = Sampler(queue)
        with sampler.watching():
            with sampler.watching():
                await sampler.next()
            assert not any(task.cancelling() for task in asyncio.all_tasks())
        assert any(task.cancelling() for task in asyncio.all_tasks())


def test_the_samplers_that_nobody_looked_at_for_longest_are_forgotten() -> None:
    made = Samplers()
    for at in range(66):
        made.of(AsyncQueue(f"q{at}"))
    assert [at for at in range(66) if made.known(f"q{at}") is None] == [0, 1]


def test_headers_are_shown_where_payloads_may_be_seen_and_nowhere_else() -> None:
    info = JobInfo("j1", "waiting", name="send", options=jobs.Options(headers=(("trace", "secret"),)))
    assert ("Header trace", "secret") in job_views.facts(info, payloads=True)
    assert "secret" not in str(job_views.facts(info, payloads=False))


@pytest.mark.parametrize("shards", [None, 2])
def test_run_times_are_of_each_name_that_was_told_of(ironclaim_url: str, shards: int | None) -> None:
    async def told() -> set[str]:
        async with AsyncQueue("q", url=ironclaim_url, shards=shards) as queue:
            items = tuple(workers.RunTimes(name, "ok", 1_000, 1_000, ((1, 1),)) for name in ("first", "second"))
            whole = queue if shards is None else (await queue.in_use())[0]
            await whole.do(workers.ReportRunTimes("a" * 16, 1, 2**52, items))
            return {times.name for times in await (Looks(queue) if shards is None else ShardedLooks(queue)).run_times()}

    assert asyncio.run(told()) == {"first", "second"}


def test_run_times_are_those_of_the_last_minute() -> None:
    def told(*buckets: tuple[int, int]) -> tuple[workers.HandlerTimes, ...]:
        runs = sum(count for _, count in buckets)
        return (workers.HandlerTimes("send", 0, workers.Durations(runs, 0, 0, buckets), workers.Durations(0, 0, 0, ())),)

    found = RunTimes()
    for now_ms in (0, 30_000):
        found.add(now_ms, told((60, 1_000)))
        assert found.percentiles_ms() == (None, None), "nothing ran since"
    found.add(90_000, told((40, 100), (60, 1_000)))
    p50_ms, p99_ms = found.percentiles_ms()
    assert p50_ms is not None and p99_ms is not None and 0.7 < p50_ms < p99_ms < 1.1


def test_a_rate_needs_two_samples() -> None:
    assert rate(10, None, 1.0) is None and rate(10, 5, 0.0) is None and rate(10, 5, 2.0) == 2.5


@pytest.mark.parametrize("state", ["delayed", "blocked", "active", "dead", "finished", "expired"])
def test_a_job_arrives_once_whatever_becomes_of_it(state: str) -> None:
    sampler = Sampler(AsyncQueue("q"))
    sampler.waiting.add(counts(0, ""))
    assert sampler._arrivals(counts(0, "")) is None
    assert sampler._arrivals(replace(counts(0, ""), srv_us=2_000_001, **{state: 3})) == 1.5
    assert sampler._arrivals(counts(0, "more")) is None


def test_a_sample_of_a_server_that_is_away_counts_nothing() -> None:
    assert not any(astuple(Sample(0)))
