"""`queue.events`: what each script tells, once, and last; nothing when it is off; reading and waiting by both faces."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from engine import AsyncQueue, Event, Malformed, Queue
from engine.queue.admin import EVENTS_KEPT_MAX
from tests.engine.helpers.by_hand import alter, set_events
from tests.engine.ops import Bury, Drop, EventPage, Failure, Finish, NoteProgress, Operation, ReadEvents, Release, Retry
from tests.engine.using import DEADLINE_S, LEASE_MS, Desk

pytestmark = pytest.mark.feature("BL31", "BL32")


def told(desk: Desk) -> list[tuple[str, str, str]]:
    """Everything that was told: kind, job and detail."""
    return [(event.kind, event.job, event.detail) for event in desk.queue.events.read("0", wait_ms=0)]


def forget_what_was(desk: Desk) -> None:
    desk.redis.delete(desk.keys.events)


def on(desk: Desk, keep: int = 1000) -> None:
    desk.run(set_events(desk, keep))


@pytest.mark.feature("BL05", "MQ36")
def test_a_job_s_life_is_told_step_by_step(desk: Desk) -> None:
    desk.queue.events.on()
    desk.enqueue("j1", delay_ms=50, attempts=2).run(desk.enqueue_many_operation("j2", "j3", delays_ms=(0, 70)))
    assert told(desk) == [("created", "j1", "delayed"), ("created", "j2", "waiting"), ("created", "j3", "delayed")]
    raw, fields = desk.redis.xrange(desk.keys.events)[0]
    assert fields == {b"kind": b"created", b"job": b"j1", b"name": b"main", b"detail": b"delayed"}
    (first, *_) = desk.queue.events.read("0", wait_ms=0)
    assert first == Event(raw.decode(), int(raw.split(b"-")[0]), "created", "j1", "main", "delayed")
    forget_what_was(desk)
    j1, j2 = desk.swept(50).claim("a")
    desk.run(NoteProgress(j2.lease, 1, b'"percent":42.5,"message":null,"data":null}'))
    assert desk.finish(j2.lease) == [("ok", "finished")]
    desk.retry(desk.retried(j1.lease, 10, "boom").tick(10).one().lease, 10, "boom again")
    assert told(desk) == [
        ("promoted", "j1", ""), *(("claimed", job, "a") for job in ("j1", "j2")), ("progress", "j2", "42.5"),
        ("finished", "j2", ""), ("failed", "j1", "boom"), ("promoted", "j1", ""), ("claimed", "j1", "a"),
        ("failed", "j1", "boom again"), ("buried", "j1", "boom again"),
    ]  # fmt: skip


def test_what_is_done_by_hand_and_by_the_sweeps_is_told(desk: Desk) -> None:
    on(desk.enqueue("j1", "j2", "j3", "j4").enqueue("late", delay_ms=60_000))
    j1, j2 = desk.claim("a", limit=2)
    desk.did(Bury((Failure(j1.lease, "bad"),)), alter(desk, "requeue", "dead", "j1")).release(j2.lease)
    desk.did(alter(desk, "cancel", "waiting", "j3"), alter(desk, "discard", "waiting", "j4"))
    desk.did(alter(desk, "run_now", "delayed", "late")).pause("main", 500).pause().resume()
    expected = [("claimed", "j1", "a"), ("claimed", "j2", "a"), ("buried", "j1", "bad"), ("requeued", "j1", "")]
    expected += [("released", "j2", ""), ("cancelled", "j3", ""), ("discarded", "j4", ""), ("promoted", "late", "")]
    expected += [("paused", "", "500"), ("paused", "", ""), ("resumed", "", "")]
    assert told(desk) == expected and [event.name for event in desk.queue.events.read("0", wait_ms=0)][-3:] == ["main", "*", "*"]
    forget_what_was(desk)
    assert len(desk.tick(500).claim("b", limit=3)) == 3
    desk.sweep_past(LEASE_MS + 1)
    assert sorted(told(desk)[3:]) == [("reaped", job, "b") for job in ("j1", "j2", "late")]


def test_children_are_told_when_their_parents_end(desk: Desk) -> None:
    on(desk)
    desk.finish(desk.family().one().lease)
    assert [(kind, job, detail) for kind, job, detail in told(desk) if kind != "claimed"] == [
        ("created", "p", "waiting"), ("created", "child", "blocked"), ("finished", "p", ""), ("unblocked", "child", ""),
    ]  # fmt: skip


def operations(desk: Desk, what: str) -> Operation:
    unclaimed: dict[str, Any] = {
        "enqueue": lambda: desk.enqueue_operation("new", unique="u", dedup="d", dedup_ms=1000),
        "enqueue many": lambda: desk.enqueue_many_operation("new1", "new2", delays_ms=(0, 50)),
        "claim": lambda: desk.claim_operation("a"), "promote": lambda: desk.tick(50).sweep_operation(),
        "pause": lambda: desk.pause_operation("main"), "resume": lambda: desk.resume_operation("main"),
        "cancel": lambda: alter(desk, "cancel", "waiting", "j1"), "run now": lambda: alter(desk, "run_now", "delayed", "late"),
    }  # fmt: skip
    if what in unclaimed:
        return unclaimed[what]()
    job = desk.one(limit=1)
    forget_what_was(desk)
    if what == "reap":
        desk.sweep()
        for _ in range(4):
            desk.later(LEASE_MS // 4)
        return desk.tick(1).sweep_operation()
    if what == "requeue":
        desk.run(Bury((Failure(job.lease, "bad"),)))
        return alter(desk, "requeue", "dead", "j1")
    return {
        "finish": Finish((job.lease,)), "finish and claim": Finish((job.lease,), desk.claim_operation("a")),
        "retry": Retry((Failure(job.lease, "boom", 10),)), "bury": Bury((Failure(job.lease, "boom"),)),
        "drop": Drop((job.lease,), ("skipped",)), "release": Release((job.lease,)),
        "progress": NoteProgress(job.lease, 1, b'"percent":1}'),
    }[what]  # fmt: skip


TOLD = {
    "enqueue": ["created"], "enqueue many": ["created", "created"], "claim": ["claimed"], "pause": ["paused"],
    "resume": ["resumed"], "promote": ["promoted"], "cancel": ["cancelled"], "run now": ["promoted"], "reap": ["reaped"],
    "requeue": ["requeued"], "finish": ["finished"], "finish and claim": ["finished"], "retry": ["failed"], "bury": ["buried"],
    "drop": ["skipped"], "release": ["released"], "progress": ["progress"],
}  # fmt: skip


def begin(desk: Desk, what: str) -> Operation:
    on(desk)
    desk.enqueue("j1").enqueue("late", delay_ms=50 if what == "promote" else 10 * LEASE_MS)
    operation = operations(desk, what)
    forget_what_was(desk)
    return operation


@pytest.mark.parametrize("what", TOLD)
def test_rule_01_a_script_that_is_cut_off_has_told_nothing_and_its_next_copy_tells_at_most_once(desk: Desk, what: str) -> None:
    for writes in desk.each_cut():
        operation = begin(desk, what)
        assert (was_cut := desk.cut_off(operation, writes)) == (told(desk) == []), writes
        desk.run(operation)
        kinds = [kind for kind, _, _ in told(desk)]
        assert kinds == TOLD[what] or (was_cut and writes > 0 and kinds == TOLD[what][: len(kinds)]), (writes, kinds)


def calls_of(desk: Desk, operation: Operation) -> dict[str, int]:
    """Commands that the server carries out for it."""
    desk.redis.config_resetstat()
    desk.run(operation)
    found = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in desk.redis.info("commandstats").items()}
    return {name: calls for name, calls in found.items() if name not in ("config|resetstat", "info")}


def test_what_is_off_costs_no_call(desk: Desk) -> None:
    def measure() -> list[dict[str, int]]:
        enqueue, claim = calls_of(desk, desk.enqueue_operation("j1")), desk.claim_operation("a")
        return [enqueue, calls_of(desk, claim), calls_of(desk, Finish((desk.run(claim).jobs[0].lease,)))]

    off = measure()
    assert all("xadd" not in calls for calls in off) and desk.redis.exists(desk.keys.events) == 0
    assert desk.queue.events.last() == "0-0"
    assert off[2]["hmget"] == 1, "of a finish: what `stats` says"
    desk.begin()
    on(desk)
    # Without events it is looked first whether the enqueue is an ordinary one.
    for calls, costs, more in zip(off, measure(), ({"hexists": 3, "exists": 1}, {}, {"getrange": 1}), strict=True):
        assert costs == {**calls, "xadd": 1, **more}


def test_about_so_many_are_kept(desk: Desk) -> None:
    on(desk, 150)
    for page in range(5):
        desk.run(desk.enqueue_many_operation(*(f"j{page}-{number}" for number in range(100))))
    assert 150 <= desk.redis.xlen(desk.keys.events) <= 250 and told(desk)[-1] == ("created", "j4-99", "waiting")


@pytest.mark.parametrize(("field", "value"), [
    *(("keep", value) for value in (0, EVENTS_KEPT_MAX + 1, True)), ("wait_ms", -1), ("wait_ms", 0.5),
    *(("after", value) for value in ("now", 5, "1-2-3")),
])  # fmt: skip
async def test_bad_input_is_named_before_any_call(field: str, value: Any) -> None:
    given: dict[str, Any] = {field: value}
    queue, other = Queue("q", url="redis://127.0.0.1:1"), AsyncQueue("q", url="redis://127.0.0.1:1")
    with pytest.raises(Malformed, match=field):
        queue.events.on(**given) if field == "keep" else next(iter(queue.events.read(**given)))
    with pytest.raises(Malformed, match=field):
        if field == "keep":
            await other.events.on(**given)
        async for _ in other.events.read(**given):
            pass


def test_a_reader_waits_for_what_comes_and_ends_when_nothing_does(queue: Queue) -> None:
    queue.events.on()
    queue.enqueue("work", {}, id="before")
    after = queue.events.last()
    timer = threading.Timer(0.1, lambda: queue.enqueue("work", {}, id="meanwhile"))
    timer.start()
    first = next(iter(queue.events.read(after)))
    assert (first.kind, first.job) == ("created", "meanwhile")
    timer.join()
    assert [event.job for event in queue.events.read("0", wait_ms=50)] == ["before", "meanwhile"]
    assert list(queue.events.read(wait_ms=30)) == [] and list(queue.events.read(first.id, wait_ms=0)) == []
    for number in range(250):
        queue.enqueue("work", {}, id=f"j{number}")
    assert [event.job for event in queue.events.read(first.id, wait_ms=0)] == [f"j{number}" for number in range(250)]


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_each_event_begins_the_wait_anew(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    event, now_s, blocks = Event("2-0", 1, "created", "j", "work", ""), 100.0, list[int]()
    pages = iter([EventPage((), "1-0"), EventPage((event,), "2-0"), *(EventPage((), "2-0") for _ in range(3))])
    monkeypatch.setattr("engine.queue.results.time", SimpleNamespace(monotonic=lambda: now_s))

    def run(operation: ReadEvents) -> EventPage:
        nonlocal now_s
        blocks.append(operation.block_ms)
        now_s += 3 / 16
        return next(pages)

    async def later(operation: ReadEvents) -> EventPage:
        return run(operation)

    async def read() -> list[Event]:
        return [each async for each in events.read("0", wait_ms=250)]

    events = kind("q", url="redis://127.0.0.1:1").events
    monkeypatch.setattr(events, "_blocking", SimpleNamespace(run=run if kind is Queue else later))
    assert (list(events.read("0", wait_ms=250)) if kind is Queue else asyncio.run(read())) == [event]
    assert blocks == [250, 63, 250, 63, 0]


async def test_tasks_read_as_well(ironclaim_url: str) -> None:
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        await queue.events.on(5000)
        await queue.enqueue("work", {}, id="before")
        after = await queue.events.last()
        seen: list[Event] = []

        async def read() -> None:
            async for event in queue.events.read(after):
                seen.append(event)
                return

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        await queue.enqueue("work", {}, id="meanwhile")
        await asyncio.wait_for(reader, DEADLINE_S)
        assert [(event.kind, event.job, event.name) for event in seen] == [("created", "meanwhile", "work")]
        assert [event.job async for event in queue.events.read("0", wait_ms=20)] == ["before", "meanwhile"]
        await queue.events.off()
        assert [event async for event in queue.events.read("0", wait_ms=0)] == []
