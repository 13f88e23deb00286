"""Jobs looked at: states, pages, counts, results, progress and events, whoever has written them."""

import asyncio
import threading
from typing import Any

import pytest
import redis

from engine import AsyncQueue, Queue, TimedOut, UnknownJob
from engine.models import Spec
from engine.ops.looks import Count, Listing, Look, NoteProgress, Page, ReadEvents, Seen
from tests.conformance.declared import attempts
from tests.conformance.desk import STATES, ModelDesk
from tests.conformance.models import FOREIGN, only
from tests.engine.using import DEADLINE_S, LEASE_MS, wait_until

#: In which a job stands in a list on each model.
LISTED = STATES[:4]


def look(desk: ModelDesk, label: str, token: str = "") -> Seen:
    return desk.run(Look(desk.ids.get(label, label), token))


def test_who_looks_waits_for_jobs_that_have_not_ended(desk: ModelDesk) -> None:
    desk.one_of_each()
    for number, state in enumerate(STATES):
        look(desk, state, f"{number:016x}")
        waits = desk.redis.get(desk.keys.waits(desk.ids[state])) or b""
        assert (f"{number:016x}".encode() in waits) == (state in ("waiting", "delayed", "active")), state  # type: ignore[operator]


def test_each_state_is_counted_listed_and_told(desk: ModelDesk) -> None:
    queue = desk.one_of_each().queue
    for state in LISTED:
        assert desk.state(state) == state == queue.jobs.state(desk.ids[state])
        assert desk.labels(info.id for info in queue.jobs.list(state)) == [state]
        assert desk.run(Page(state, 0, 10, names=True)).names == {"main": 1}
    assert queue.jobs.state(desk.ids["finished"]) == "finished" and desk.state("nobody") == "gone"
    assert desk.labels(desk.run(Page("finished", 0, 10)).jobs) == ["finished"]
    counts = queue.counts()
    assert (counts.waiting, counts.delayed, counts.active, counts.dead, counts.done) == (1, 1, 1, 1, 1)
    assert (counts.finished, counts.buried, counts.blocked) == (1, 1, 0)
    assert desk.run(Count(("other",))).waiting == 0 and desk.run(Count(("main",))).waiting == 1
    assert desk.listed() == {**{state: [state] for state in LISTED}, "done": ["finished"], "blocked": []}
    states = queue.snapshot().states
    assert states["delayed"][0][1] == desk.now_ms + 5_000 and states["active"][0][1] == desk.now_ms + LEASE_MS
    assert desk.run(Listing(1, 10)).states["waiting"] == []
    names = queue.jobs.counts_by_name()["main"]
    assert (names.waiting, names.delayed, names.active, names.dead) == (1, 1, 1, 1)


def test_what_is_known_of_a_job_is_told(desk: ModelDesk) -> None:
    job = desk.put_and_claim("j", worker="b", **attempts(desk.queue, 4))
    found = desk.retried(job.lease, delay_ms=2_000, error="first").info("j")
    assert (found.state, found.due_ms, found.failures) == ("delayed", desk.now_ms + 2_000, 1)
    assert (found.last_error, [one.error for one in found.errors]) == ("first", ["first"])
    (job,) = desk.tick(2_000).swept().claim("b")
    found = desk.info("j")
    assert (found.name, found.payload, found.options.attempts) == ("main", {"label": "j"}, 4)
    assert (found.state, found.fence, found.owner, found.claims) == ("active", job.lease.fence, "b", 2)
    assert found.lease_end_ms == desk.now_ms + LEASE_MS and abs(found.enqueued_ms - desk.now_ms) <= 60_000
    assert desk.run(Page("stuck", 0, 10)).jobs == () and desk.tick(LEASE_MS + 1).state("j") == "stuck"
    assert desk.labels(desk.run(Page("stuck", 0, 10)).jobs) == ["j"]
    assert desk.queue.jobs.get(desk.queue.model.new_id() or "987654321") is None


def test_pages_follow_the_order_in_which_jobs_will_run(desk: ModelDesk) -> None:
    assert desk.put(*"abcde").labels(desk.run(Page("waiting", 0, 3)).jobs) == ["a", "b", "c"]
    assert desk.labels(desk.run(Page("waiting", 3, 3)).jobs) == ["d", "e"]
    assert desk.labels(desk.run(Page("waiting", 0, 2, newest_first=True)).jobs) == ["e", "d"]
    assert list(desk.take()) == [*"abcde"]


def test_each_state_has_pages_from_either_end(desk: ModelDesk) -> None:
    for state in ("finished", "dead", "delayed"):
        desk.begin()
        for label in "abc":
            desk.tick(1_000).put(label, delay_ms=60_000 if state == "delayed" else 0)
            if state == "finished":
                desk.finish(desk.one().lease)
            elif state == "dead":
                desk.bury(label)
        pages = [desk.run(Page(state, at, 2, newest_first=newest)).jobs for at, newest in ((0, False), (1, False), (0, True))]
        assert [desk.labels(page) for page in pages] == [["a", "b"], ["b", "c"], ["c", "b"]], state


def test_what_has_become_of_a_job_is_told(desk: ModelDesk) -> None:
    assert look(desk.put("finished"), "finished").state == "pending"
    desk.finish_with(desk.claim()[0].lease, b'{"n":[1]}')
    found = look(desk, "finished")
    assert (found.state, found.error) == ("finished", "") and b'"value":{"n":[1]}' in found.record
    desk.put("dead").bury("dead")
    found = look(desk, "dead")
    assert found.state == "dead" and (found.error or b"dead is bad" in found.record)
    desk.put("cancelled").alter("cancel", "waiting", "cancelled")
    assert look(desk, "cancelled").state == "cancelled" and look(desk, "nobody").state == "gone"


def test_the_end_of_a_job_is_told_to_those_who_wait(desk: ModelDesk) -> None:
    for number, end in enumerate(("finish", "bury", "cancel")):
        job, token = f"j{number}", f"{number:016x}"
        assert look(desk.put(job), job, token).state == "pending"
        before = desk.dump()
        assert look(desk, job, token).state == "pending" and desk.dump() == before
        if end == "finish":
            desk.finish(desk.claim()[0].lease)
        elif end == "bury":
            desk.bury(job)
        else:
            desk.alter("cancel", "waiting", job)
        stream: Any = desk.redis.xrange(desk.keys.wait(token))
        assert [entry[b"id"] for _, entry in stream] == [b"", desk.ids[job].encode()]
        assert desk.redis.exists(desk.keys.waits(desk.ids[job])) == 0


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_an_end_that_nobody_tells_is_found(spec: Spec, ironclaim_url: str, face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a foreign client ends a job: without a word to us."""
    # Who waits looks again after this, and not after five seconds.
    monkeypatch.setattr("engine.queue.results.BLOCK_MS", 300)

    async def wait(job: str) -> Any:
        waiting = AsyncQueue("desk", spec, url=ironclaim_url)
        try:
            return await waiting.results.wait(job, wait_ms=60_000)
        finally:
            await waiting.close()

    came: list[Any] = []
    with Queue("desk", spec, url=ironclaim_url) as queue, redis.Redis.from_url(ironclaim_url) as raw:
        job = queue.enqueue("main", {"label": "j"}).job
        with pytest.raises(TimedOut):
            queue.results.wait(job, wait_ms=1)
        with pytest.raises(UnknownJob):
            queue.results.wait("987654321", wait_ms=1)
        raw.delete(queue.model.keys.waits(job))

        def run() -> None:
            came.append(asyncio.run(wait(job)) if face == "asyncio" else queue.results.wait(job, wait_ms=60_000))

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: raw.exists(queue.model.keys.waits(job)), "the wait is registered")
        # A race with the next look, which registers again, is as good.
        raw.delete(queue.model.keys.waits(job))
        assert queue.jobs.cancel(job).done
        thread.join(DEADLINE_S)
    assert came and came[0].outcome == "cancelled"


@only(FOREIGN)
def test_progress_is_noted_once_and_only_under_the_token(desk: ModelDesk) -> None:
    job, body = desk.put_and_claim("j"), b'"percent":42,"message":null,"data":null}'
    assert desk.run(NoteProgress(job.lease, 2, body)).result == "ok"
    assert desk.redis.hget(desk.keys.run(desk.ids["j"]), "progress") == b'{"at_ms":%d,' % desk.now_ms + body
    before = desk.dump()
    assert desk.run(NoteProgress(job.lease, 1, b'"percent":7,"message":null,"data":null}')).result == "repeated"
    assert desk.run(NoteProgress(job.lease._replace(fence=job.lease.fence - 1), 3, body)).result == "stale"
    assert desk.dump() == before
    assert desk.finished(job.lease).run(NoteProgress(job.lease, 4, body)).result == "stale"


def test_events_tell_what_our_side_does(desk: ModelDesk) -> None:
    job = desk.keep_events().put_and_claim("j", attempts=2)
    desk.run(NoteProgress(job.lease, 1, b'"percent":42,"message":null,"data":null}'))
    desk.retried(job.lease, delay_ms=0).tick(1).swept().bury("j")
    desk.alter("requeue", "dead", "j")
    desk.finished(desk.claim()[0].lease).put("k", "l", delay_ms=5_000).alter("run_now", "delayed", "k")
    desk.alter("cancel", "waiting", "k")
    page = desk.did(desk.clean_operation("delayed")).pause().resume().run(ReadEvents("0-0", 100, 0))
    told = [(event.kind, *desk.labels([event.job])) for event in page.events]
    assert told == [
        *(("created", "j"), ("claimed", "j"), ("progress", "j"), ("failed", "j")),
        *(entry for entry in told if entry[0] == "promoted" and entry[1] == "j"),
        *(("claimed", "j"), ("buried", "j"), ("requeued", "j"), ("claimed", "j"), ("finished", "j")),
        *(("created", "k"), ("created", "l"), ("promoted", "k"), ("cancelled", "k"), ("discarded", "l")),
        *(("paused", ""), ("resumed", "")),
    ]
