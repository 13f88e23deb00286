"""What the templates show, from hand-made findings: no server."""

import asyncio
from dataclasses import astuple, replace
from typing import Any

import pytest

from engine import AsyncQueue
from engine.http.page import job_views
from engine.http.page.live import RunTimes, Sample, Sampler, Samplers, rate
from engine.http.page.looks import LanesRound, Looks, ObstaclesRound, ShardedLooks
from engine.ops import looks, workers
from tests.engine.helpers.refusing import malformed

BAD_FILTERS = [
    *(("state", "gone"), ("cursor", "1e3"), ("cursor", "\u0661"), ("cursor", "10001"), ("name", "x" * 65_537)),
    *(("key", "x" * 65_537), ("text", "x" * 201), ("error", "x" * 201), ("error_like", "x" * 1_001)),
]


@pytest.mark.parametrize(("field", "value"), BAD_FILTERS)
def test_a_bad_filter_is_refused_before_any_call(field: str, value: str) -> None:
    assert malformed(job_views.filter_of, {field: value}).field == field


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


async def test_each_sample_looks_at_one_thing_more_in_turn(ironclaim_url: str) -> None:
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        sampler, found = Sampler(queue), list[tuple[Any, ...]]()
        for _ in range(6):
            workers, held = (await sampler._sample()).workers, sampler.obstacles.whole
            found.append((workers, held and held.srv_us, len(sampler._times._kept)))
    first, second, third = dict.fromkeys(held for _, held, _ in found)
    assert found == [(None, first, 0), (0, first, 0), (0, second, 0), (0, second, 1), (0, third, 1), (0, third, 1)]


def test_the_samplers_that_nobody_looked_at_for_longest_are_forgotten() -> None:
    made = Samplers()
    for at in range(66):
        made.of(AsyncQueue(f"q{at}")).samples.extend(map(Sample, range(301)))
    known = [made.known(f"q{at}") for at in range(66)]
    assert [at for at in range(66) if known[at] is None] == [0, 1]
    assert {one.samples[0].at_ms for one in known if one} == {1}, "the oldest of its samples, too"
    assert made.of(AsyncQueue("q65", shards=2)) is not known[65], "one that was opened anew"


@pytest.mark.parametrize("shards", [None, 2])
async def test_run_times_are_of_each_name_that_was_told_of(ironclaim_url: str, shards: int | None) -> None:
    async with AsyncQueue("q", url=ironclaim_url, shards=shards) as queue:
        items = tuple(workers.RunTimes(name, "ok", 1_000, 1_000, ((1, 1),)) for name in ("first", "second"))
        whole = queue if shards is None else (await queue.in_use())[0]
        await whole.do(workers.ReportRunTimes("a" * 16, 1, 2**52, items))
        looks = Looks(queue) if shards is None else ShardedLooks(queue)
        assert {times.name for times in await looks.run_times()} == {"first", "second"}
        before_ms = await queue.driver.server_now_ms()
        listed = await looks.workers()
        assert listed.workers == () and before_ms <= listed.now_ms <= await queue.driver.server_now_ms()


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
