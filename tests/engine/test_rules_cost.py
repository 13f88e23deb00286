"""Rule 20 with costs: a job that takes several places in the window of a rate, by name and by key."""

from typing import Any

import pytest

from tests.engine.using import Desk, Release, check, members

pytestmark = pytest.mark.feature("MQ17")
CLASSES = ("main", "main@gpu", "sms")


def claimed(desk: Desk, limit: int = 20) -> list[str]:
    found = [job.lease.job for job in desk.claim(limit=limit, classes=CLASSES)]
    check(desk)
    return found


@pytest.mark.parametrize("target", ["n:main", "k:k"])
@pytest.mark.parametrize("window", ["sliding", "fixed"])
def test_a_job_takes_as_many_places_as_it_costs(desk: Desk, target: str, window: str) -> None:
    desk.now_ms += -desk.now_ms % 1000
    desk.tick(0).set_limit(target, rate=10, per_ms=1000, window=window)
    for job, cost in (("a", 4), ("b", 1), ("c", 4), ("d", 2), ("e", 1)):
        desk.enqueue(job, key="k", cost=cost)
    assert claimed(desk) == ["a", "b", "c"], "d costs two and one is left; e waits behind it"
    assert len(members(desk, desk.keys.rate(target))) == 9 and claimed(desk.tick(999)) == []
    assert claimed(desk.swept(1)) == ["d", "e"]


def test_a_job_that_costs_more_than_the_rate_takes_a_whole_window(desk: Desk) -> None:
    desk.set_limit("n:main", rate=3, per_ms=1000).enqueue("small").enqueue("huge", cost=1000).enqueue("after")
    assert claimed(desk) == ["small"] and claimed(desk.tick(999)) == [] and claimed(desk.tick(1)) == ["huge"]
    assert len(members(desk, desk.keys.rate("n:main"))) == 3 and claimed(desk.tick(1000)) == ["after"]


def test_the_end_of_the_wait_is_when_there_is_enough(desk: Desk) -> None:
    desk.set_limit("k:k", rate=4, per_ms=1000)
    for job in ("a", "b", "c"):
        assert claimed(desk.enqueue(job, key="k")) == [job]
        desk.tick(100)
    assert claimed(desk.enqueue("big", key="k", cost=3)) == []
    rest: Any = desk.redis.zrange(desk.keys.rest, 0, -1, withscores=True)
    assert dict(rest) == {b"l:main/k": desk.now_ms - 200 + 1000}, "when the second place comes back"
    assert claimed(desk.tick(800)) == ["big"]


def test_slots_count_jobs_and_not_costs(desk: Desk) -> None:
    desk.set_limit("n:main", concurrency=3, rate=100, per_ms=1000).enqueue(*(f"j{number}" for number in range(5)), cost=20)
    assert claimed(desk) == ["j0", "j1", "j2"] and desk.redis.zcard(desk.keys.held("n:main")) == 3
    assert desk.redis.zcard(desk.keys.rate("n:main")) == 60


def test_a_lease_that_goes_back_unstarted_gives_all_its_places_back(desk: Desk) -> None:
    for writes in desk.each_cut():
        desk.set_limit("n:main", rate=5, per_ms=1000).set_limit("k:k", rate=5, per_ms=1000)
        release = Release((desk.enqueue("a", key="k", cost=5).enqueue("b", key="k").one().lease,))
        assert desk.cut(release, writes).did(release).redis.exists(desk.keys.rate("n:main"), desk.keys.rate("k:k")) == 0
        assert claimed(desk.swept()) == ["a"]
