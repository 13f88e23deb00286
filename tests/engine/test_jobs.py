"""`queue.jobs` and `queue.dead` by both faces: what they tell of jobs, and what they do to them."""

import threading
from itertools import product
from typing import Any

import pytest

from engine import Queue, Worker
from tests.engine.using import LEASE_MS, Bury, Desk, Failure, bury, claim, some_handlers


def run_all(url: str, *, fails: bool = False) -> None:
    """Run what waits, on a queue of its own."""

    def work(job: Any) -> None:
        if fails:
            raise ValueError(f"{job.id} is bad")

    with Queue("q", url=url) as queue:
        Worker(queue, some_handlers(work), sweep_ms=50).run(burst=True)


@pytest.mark.feature("BQ26", "BN08", "BL28", "BL30", "MQ16", "MQ37", "BL29", "BQ30", "MQ14", "BQ33", "BL13", "BL02")
def test_what_is_told_of_jobs_in_every_state(desk: Desk) -> None:
    jobs, dead = desk.queue.jobs, desk.queue.dead
    desk.enqueue("dead", "finished", "cancelled", "removed", attempts=1, headers=(("trace", "t1"),))
    found = {job.lease.job: job.lease for job in desk.claim("w")}
    desk.retried(found["dead"], error="ValueError: no").finish(found["finished"])
    desk.redis.zrem(desk.keys.active, "cancelled", "removed")
    desk.redis.delete(desk.keys.run("cancelled"), desk.keys.run("removed"), desk.keys.job("cancelled"), desk.keys.job("removed"))
    lease = desk.enqueue("active", payload={"n": [1, 2]}, key="k", unique="u", priority=9).one("w").lease
    desk.enqueue("delayed", name="other", delay_ms=5000).enqueue("w1", "w2", "w3")
    states = {job: jobs.state(job) for job in ("w1", "delayed", "active", "dead", "finished", "nobody")}
    assert states == {**{job: job for job in states}, "w1": "waiting", "nobody": "gone"}
    assert jobs.get("nobody") is None and (active := jobs.get("active")) is not None
    assert (active.state, active.name, active.key, active.priority, active.payload) == ("active", "main", "k", 9, {"n": [1, 2]})
    assert (active.fence, active.owner, active.lease_end_ms, active.claims) == (lease.fence, "w", desk.now_ms + LEASE_MS, 1)
    assert (active.enqueued_ms, active.options.unique, active.failures, active.errors) == (desk.now_ms, "u", 0, ())
    delayed, finished, now_ms = jobs.get("delayed"), jobs.get("finished"), desk.now_ms
    assert delayed is not None
    assert (delayed.name, delayed.due_ms, delayed.lease_end_ms, delayed.ended_ms) == ("other", now_ms + 5000, 0, 0)
    (died,) = dead.list()
    assert (died.id, died.last_error, died.headers, died.ended_ms) == ("dead", "ValueError: no", {"trace": "t1"}, now_ms)
    (error,) = died.errors
    assert (error.at_ms, error.fence, error.kind, error.error) == (now_ms, found["dead"].fence, "failed", "ValueError: no")
    assert finished is not None
    assert (finished.state, finished.ended_ms, finished.fence) == ("finished", now_ms, found["finished"].fence)
    counted = {name: tuple(counts) for name, counts in jobs.counts_by_name().items()}
    assert counted == {"main": (3, 0, 1, 1, 0), "other": (0, 1, 0, 0, 0)}
    # The lease has ended and no sweep has come.
    assert desk.tick(LEASE_MS).queue.jobs.page("stuck").looked == 0, "it ends with its last ms"
    assert desk.tick(1).queue.jobs.state("active") == "stuck"
    assert [job.id for job in jobs.list("stuck")] == [job.id for job in jobs.list("active")] == ["active"]
    desk.tick(60_000)
    # Its tombstone is gone, and the list of the finished ones still knows it.
    assert jobs.state("finished") == "finished" and [job.id for job in jobs.list("finished")] == ["finished"]


@pytest.mark.feature("BL29", "MQ37")
def test_pages_of_a_state_from_either_end(desk: Desk) -> None:
    for number in range(7):
        desk.enqueue(f"w{number}", key=f"k{number % 2}").enqueue(f"d{number}", delay_ms=1000 + number)
    for state in ("waiting", "delayed"):
        whole = [job.id for job in desk.queue.jobs.list(state)]
        back = [job.id for job in desk.queue.jobs.list(state, newest_first=True)]
        # Jobs that wait come lane by lane, from whichever end of each.
        lanes = [whole[:4], whole[4:]] if state == "waiting" else [whole]
        assert back == [job for lane in lanes for job in reversed(lane)] and len(whole) == 7
        for first, most, newest_first in product(range(8), (1, 3, 7), (False, True)):
            page = desk.queue.jobs.list(state, offset=first, limit=most, newest_first=newest_first)
            assert [job.id for job in page] == (back if newest_first else whole)[first : first + most]
    assert [job.id for job in desk.queue.jobs.list("delayed")] == [f"d{number}" for number in range(7)]


def test_a_page_is_two_calls_says_where_it_has_looked_and_is_gone_on_with(desk: Desk) -> None:
    desk.enqueue("j0", "j1", "j2", "j3", "j4", payload="x" * 400_000)
    assert [len(job.payload) for job in desk.queue.jobs.list("waiting")] == [400_000] * 5, "read a megabyte at a time"
    pages: list[list[str]] = []
    offset: int | None = 0
    while offset is not None:
        desk.redis.config_resetstat()
        page = desk.queue.jobs.page("waiting", offset=offset, limit=4)
        assert desk.redis.info("commandstats")["cmdstat_evalsha"]["calls"] <= 2
        assert page.looked == len(page.jobs) and page.next in (None, offset + page.looked)
        pages.append([job.id for job in page.jobs])
        offset = page.next
    # A megabyte is two of them.
    assert pages == [["j0", "j1"], ["j2", "j3"], ["j4"]]
    page, beyond = desk.queue.jobs.page("waiting", limit=2, key="nobody"), desk.queue.jobs.page("waiting", offset=5)
    assert (page.jobs, page.looked, page.next, beyond.jobs, beyond.looked, beyond.next) == ((), 2, 2, (), 0, None)
    assert beyond.srv_us // 1000 >= desk.now_ms


@pytest.mark.feature("BN12")
def test_a_corrupt_job_is_listed_with_what_could_be_read(desk: Desk) -> None:
    desk.enqueue("whole", "cut")
    raw: Any = desk.redis.get(desk.keys.job("cut"))
    desk.redis.set(desk.keys.job("cut"), raw[:18])
    assert [job.lease.job for job in desk.claim()] == ["whole"]
    (found,) = desk.queue.dead.list()
    assert (found.id, found.last_error, found.envelope, found.name) == ("cut", "corrupt envelope", raw[:18], "")
    assert "envelope of job cut" in found.unreadable and desk.queue.jobs.counts_by_name()[""].dead == 1
    assert desk.queue.dead.requeue("cut").result == "corrupt"
    assert desk.queue.dead.discard("cut").done and desk.queue.dead.list() == []


@pytest.mark.feature("BL24", "BL25", "MQ32")
def test_jobs_are_changed_by_hand(face: Any, ironclaim_url: str) -> None:
    face.enqueue("work", {}, id="waits", unique="u")
    face.enqueue("work", {}, id="later", delay_ms=3_600_000)
    assert face.jobs.cancel("waits", expected_state="active").state == "waiting"
    for done, state, words in ((True, "waiting", "done, it was"), (False, "cancelled", "nothing was done, it is")):
        told = face.jobs.cancel("waits")
        assert (told.done, told.state, face.jobs.state("waits")) == (done, state, "cancelled")
        assert str(told) == f"waits: {words} {state}"
    assert face.enqueue("work", {}, id="waits").state == "cancelled" and face.enqueue("work", {}, unique="u", id="again").created
    assert face.jobs.run_now("later").done and face.jobs.state("later") == "waiting"
    assert face.jobs.remove("again").done and face.jobs.run_now("nobody").state == "gone"
    run_all(ironclaim_url)
    assert face.counts().finished == 1 and face.jobs.remove("later").done and face.counts().done == 0


@pytest.mark.feature("BL23", "BQ30", "MQ14")
def test_dead_jobs_are_listed_requeued_and_discarded(face: Any, ironclaim_url: str) -> None:
    for job in ("a", "b", "c", "d"):
        face.enqueue("work", {}, id=job, attempts=1)
    run_all(ironclaim_url, fails=True)
    found = face.dead.list()
    assert [job.last_error for job in found] == [f"ValueError: {job.id} is bad" for job in found]
    assert all("Traceback" in job.errors[0].trace for job in found)
    assert len(face.dead.list(offset=1, limit=2, newest_first=True)) == 2
    assert face.dead.requeue("a").done and face.jobs.state("a") == "waiting"
    assert face.dead.discard("b").done and face.jobs.state("b") == "discarded"
    assert (face.dead.requeue_all("other"), face.dead.requeue_all("work", limit=1)) == (0, 1)
    assert face.counts().dead == 1 and (face.dead.clear(older_than_ms=3_600_000), face.dead.clear()) == (0, 1)
    run_all(ironclaim_url)
    counts = face.counts()
    assert (counts.finished, counts.dead, counts.waiting) == (2, 0, 0)


@pytest.mark.feature("BL23")
def test_requeue_all_passes_by_what_is_held_and_ends(desk: Desk) -> None:
    bury(desk.enqueue("first", unique="u"), "first")
    desk.tick(1).enqueue("holder", unique="u", delay_ms=60_000)
    jobs = [f"j{number:03}" for number in range(230)]
    desk.run(desk.enqueue_many_operation(*jobs))
    for _ in range(3):
        desk.run(Bury(tuple(Failure(job.lease, "no") for job in desk.claim(limit=100))))
    assert desk.queue.dead.requeue_all("main", limit=150) == 150 and desk.queue.dead.requeue_all() == 80
    assert [job.id for job in desk.queue.dead.list()] == ["first"] and [job.lease.job for job in desk.claim(limit=300)] == jobs


@pytest.mark.feature("BL26", "BL27")
def test_many_are_removed_in_pieces(face: Any) -> None:
    face.enqueue_many([{"name": "work", "payload": {}, "key": f"k{number % 3}"} for number in range(1200)])
    face.enqueue_many([{"name": "work", "payload": {}, "delay_ms": 3_600_000} for _ in range(3)])
    assert face.jobs.page("waiting", older_than_ms=3_600_000).jobs == ()
    assert face.clean("waiting", older_than_ms=3_600_000) == 0 and face.clean("waiting", limit=10) == 10
    assert (face.drain(), face.counts().waiting, face.counts().delayed) == (1190, 0, 3)
    face.enqueue("work", {})
    assert (face.drain(delayed=True), face.counts().delayed) == (4, 0)


def test_an_obliterated_queue_leaves_nothing_that_does_not_expire(face: Any, direct: Queue, client: Any) -> None:
    face.set_limit("work", concurrency=1)
    face.pause("other")
    face.set_retention(dead_max=10)
    for number in range(6):
        face.enqueue("work", {}, key=f"k{number}", unique=f"u{number}", attempts=1, id=f"j{number}")
    run_all(direct.url, fails=True)
    face.enqueue("work", {}, id="new", priority=10)
    face.enqueue("work", {}, delay_ms=3_600_000)
    face.enqueue("work", {}, key="k1")
    assert [job.lease.job for job in claim(direct).jobs] == ["new"]
    assert face.obliterate() is False and face.counts().dead == 6 and face.obliterate(force=True) is True
    keys = client.scan_iter(f"{direct.model.keys.prefix}*")
    assert {key.split("}:")[1] for key in keys if client.pttl(key) == -1} == {"era", "seq", "sweep"}
    counts = face.counts()
    assert sum((counts.waiting, counts.delayed, counts.active, counts.dead, counts.done, counts.buried)) == 0
    assert face.enqueue("work", {}, unique="u0").created
    run_all(direct.url)
    assert face.counts().finished == 1


@pytest.mark.feature("BL15", "MQ15", "BN11")
def test_retention_is_set_bound_by_bound(face: Any, ironclaim_url: str) -> None:
    for number in range(3):
        face.enqueue("work", {}, id=f"j{number}", attempts=1)
    run_all(ironclaim_url, fails=True)
    face.set_retention(dead_max=2)
    face.set_retention(done_age_ms=30_000, dead_age_ms=7 * 86_400_000)
    run_all(ironclaim_url)
    assert face.counts().dead == 2


def test_who_waits_for_a_job_hears_that_it_was_cancelled(queue: Queue) -> None:
    queue.enqueue("work", {}, id="j")
    (timer := threading.Timer(0.2, lambda: queue.jobs.cancel("j"))).start()
    assert queue.results.wait("j", wait_ms=20_000).outcome == "cancelled"
    timer.join()
