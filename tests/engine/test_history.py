"""`queue.history`: how jobs have ended, once each, whoever ends them; trimmed by count and age; nothing when it is off."""

import json
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest

from engine import AsyncQueue, Queue, UnreadablePayload, Worker
from engine.queue.history import KEPT_MAX, PastJob
from tests.engine.helpers import worker_handlers
from tests.engine.helpers.by_hand import alter, set_events, set_history
from tests.engine.using import LEASE_MS, Bury, Desk, Drop, Failure, Finish, HistoryRule, ListHistory, Operation, Retry

pytestmark = pytest.mark.feature("BL31")


def on(desk: Desk, keep: int = 1000, **more: Any) -> None:
    desk.run(set_history(desk, keep, **more))


@pytest.fixture
def desk(desk: Desk) -> Desk:
    """One that keeps how jobs end."""
    on(desk)
    return desk


def ends(desk: Desk, **wanted: Any) -> list[tuple[str, str]]:
    """Id and outcome of each entry, the latest first."""
    return [(past.id, past.outcome) for past in desk.queue.history.list(**wanted)]


def finished(desk: Desk, *jobs: str) -> None:
    """These have run."""
    desk.finish(*(job.lease for job in desk.leased(*jobs)))


def raw(desk: Desk) -> list[tuple[list[bytes], float]]:
    """The fields of each entry as they are stored, with its time."""
    return [(entry.split(b"\0"), at_ms) for entry, at_ms in desk.redis.zrange(desk.keys.history, 0, -1, withscores=True)]


def test_an_end_has_name_keys_size_times_and_worker(desk: Desk) -> None:
    begun_ms = desk.now_ms
    job = desk.enqueue("order-7", key="acme", unique="o7", delay_ms=30).swept(130).one("w")
    desk.tick(250).finish(job.lease)
    fence, size = str(job.lease.fence).encode(), len(job.payload)
    numbers = f"{begun_ms} {begun_ms + 30} {fence.decode()} 1 0 0 {size}".encode()
    assert raw(desk) == [([b"order-7", fence, b"finished", b"main", b"acme", b"o7", b"w", numbers, b"", b"", b""], desk.now_ms)]
    (past,) = desk.queue.history.list(key="order-7")
    assert past == PastJob(
        *("", "order-7", "finished", "main", "acme", "o7", "w"),
        *(begun_ms, begun_ms + 30, begun_ms + 130, begun_ms + 380, 1, 0, 0, size),
    )
    assert (past.waited_ms, past.ran_ms) == (100, 250)
    assert isinstance(past.payload, UnreadablePayload) and str(size) in past.payload.reason
    assert [found.id for key in ("acme", "o7") for found in desk.queue.history.list(key=key)] == ["order-7"] * 2
    assert desk.queue.history.list(key="order") == []


def test_every_kind_of_end_is_kept_with_its_error(desk: Desk) -> None:
    desk.enqueue("good", "bad", "tired", "skip", "drop", "moved", "crash", "stopped", attempts=2, crashes_max=2)
    desk.enqueue("waits", "old").enqueue("late", expires_ms=50)
    held = {job.lease.job: job.lease for job in desk.claim("w", limit=8)}
    desk.finished(held["good"]).retried(held["tired"], 10, "boom").bury(held["bad"], error="no\0more")
    leases = tuple(held[job] for job in ("skip", "drop", "moved"))
    desk.run(Drop(leases, ("skipped", "discarded", "rerouted"), ("not now", "", "to another")))
    desk.did(alter(desk, "cancel", "active", "stopped"), alter(desk, "cancel", "waiting", "waits"))
    desk.did(alter(desk, "remove", "waiting", "old")).later(51)
    desk.retry(next(job.lease for job in desk.claim("w") if job.lease.job == "tired"), 10, "boom again")
    desk.past(LEASE_MS + 1).crash("crash", worker="x")
    found = {past.id: past for past in desk.queue.history.list()}
    wanted = {"good": ("finished", ""), "bad": ("dead", "no more"), "tired": ("dead", "boom again")}
    wanted |= {"skip": ("skipped", "not now"), "drop": ("discarded", ""), "moved": ("rerouted", "to another")}
    wanted |= {"stopped": ("cancelled", ""), "waits": ("cancelled", ""), "old": ("discarded", "")}
    wanted |= {"late": ("expired", ""), "crash": ("dead", "crashed 2 times, 1 are allowed")}
    assert {id: (past.outcome, past.error) for id, past in found.items()} == wanted
    assert (found["tired"].claims, found["tired"].failures) == (2, 2)
    assert (found["crash"].crashes, found["crash"].worker) == (2, "x")
    assert [found[job].started_ms > 0 for job in ("stopped", "waits", "late")] == [True, False, False]
    assert found["late"].waited_ms == 51 and found["late"].ran_ms is None and found["waits"].worker == ""
    assert ends(desk, outcome="skipped") == [("skip", "skipped")]


def test_a_dead_job_that_is_requeued_has_both_ends(desk: Desk) -> None:
    desk.bury(desk.enqueue("j").one().lease)
    desk.bury(desk.tick(5).did(alter(desk, "requeue", "dead", "j")).one("b").lease)
    desk.tick(5).run(alter(desk, "discard", "dead", "j"))
    assert ends(desk) == [("j", "discarded"), ("j", "dead"), ("j", "dead")]
    latest, *_ = desk.queue.history.list()
    assert (latest.worker, latest.waited_ms, latest.ran_ms) == ("b", None, None)


def test_children_of_lost_parents_are_among_the_ends(desk: Desk) -> None:
    desk.bury(desk.family().one().lease)
    desk.sweep()
    assert ("child", "dead") in ends(desk)
    assert {past.error for past in desk.queue.history.list(key="child")} == {"its parent p is dead"}


# -- once each


def ending(desk: Desk, how: str) -> Operation:
    """A call that ends the jobs j1 and j2."""
    one, two = desk.leased("j1", "j2", attempts=1 if how == "last retry" else 3)
    leases = (one.lease, two.lease)
    failures = tuple(Failure(lease, "boom", 10) for lease in leases)
    return {
        "finish": Finish(leases), "finish and claim": Finish(leases, desk.claim_operation("a")), "retry": Retry(failures),
        "last retry": Retry(failures), "bury": Bury(failures), "drop": Drop(leases, ("skipped", "discarded")),
        "cancel": alter(desk, "cancel", "active", "j1", "j2"),
    }[how]  # fmt: skip


ENDS = ("finish", "finish and claim", "retry", "bury", "drop", "cancel")


# Jobs that are tried again have not ended.
@pytest.mark.parametrize("how", [how for how in (*ENDS, "last retry") if how != "retry"])
def test_a_call_that_was_cut_off_anywhere_and_is_sent_again_has_kept_each_end_once(desk: Desk, how: str) -> None:
    for writes in desk.each_cut():
        on(desk)
        operation = ending(desk, how)
        desk.cut_off(operation, writes)
        desk.tick(7).run(operation)
        assert sorted(fields[0] for fields, _ in raw(desk)) == [b"j1", b"j2"], writes


#: A call that is cut off, and how the job is ended for good that it has not ended.
CUT = ("finish", "bury", "retry", "drop", "cancel", "cancel unclaimed", "discard")
PAIRS = [*product(CUT, ["finish"]), *product(["bury", "discard"], ["bury", "cancel", "requeued"])]


def not_ended(desk: Desk, how: str) -> Operation:
    """A call that would end the job j."""
    desk.enqueue("j", attempts=1)
    if how == "cancel unclaimed":
        return alter(desk, "cancel", "waiting", "j")
    lease = desk.claim("a")[0].lease
    failures = (Failure(lease, "boom", 10),)
    if how == "discard":
        desk.run(Bury(failures))
        return alter(desk, "discard", "dead", "j")
    return {
        "finish": Finish((lease,)), "bury": Bury(failures), "retry": Retry(failures),
        "drop": Drop((lease,), ("skipped",)), "cancel": alter(desk, "cancel", "active", "j"),
    }[how]  # fmt: skip


@pytest.mark.parametrize(("how", "later"), PAIRS)
def test_rule_01_an_end_that_was_cut_off_and_never_came_leaves_no_entry(desk: Desk, how: str, later: str) -> None:
    """The next worker has the job, and how that ends is all there is to tell, but for a death that came true."""
    for writes in desk.each_cut():
        on(desk)
        died, operation = int(how == "discard"), not_ended(desk, how)
        desk.cut_off(operation, writes)
        desk.sweep_past(LEASE_MS + 1)
        if desk.places("j") == {"dead"}:
            died = 1
            desk.run(alter(desk, "requeue", "dead", "j"))
        if desk.places("j") != {"lane"}:
            # It was ended after all.
            assert [past.id for past in desk.queue.history.list()] == ["j"] * (died + 1), writes
            continue
        if later == "cancel":
            desk.run(alter(desk, "cancel", "waiting", "j"))
        else:
            lease = desk.one("b").lease
            desk.tick(5).run(Finish((lease,)) if later == "finish" else Bury((Failure(lease, "no"),)))
        if later == "requeued":
            desk.finish(desk.did(alter(desk, "requeue", "dead", "j")).claim("c")[0].lease)
        outcomes = {"finish": ["finished"], "bury": ["dead"], "cancel": ["cancelled"]}.get(later, ["finished", "dead"])
        assert [past.outcome for past in desk.queue.history.list()] == outcomes + ["dead"] * died, writes


def test_a_finish_that_is_refused_writes_nothing(desk: Desk) -> None:
    (zombie,) = desk.leased("j")
    desk.sweep_past(LEASE_MS + 1)
    (job,) = desk.claim("b")
    with desk.unchanged():
        assert desk.finish(zombie.lease) == [("stale", "")]
    desk.finish(job.lease)
    assert [(past.worker, past.claims, past.crashes) for past in desk.queue.history.list()] == [("b", 2, 1)]
    assert desk.finish(zombie.lease) == [("stale", "")] and len(raw(desk)) == 1


def test_a_batch_with_one_that_is_stale_keeps_the_others(desk: Desk) -> None:
    jobs = desk.leased("j1", "j2", "j3")
    desk.did(alter(desk, "cancel", "active", "j2")).tick(1).finish(*(job.lease for job in jobs))
    assert sorted(ends(desk)) == [("j1", "finished"), ("j2", "cancelled"), ("j3", "finished")]


# -- bounds


def test_it_is_trimmed_to_its_count_by_the_sweeps(desk: Desk) -> None:
    on(desk, 3)
    for number in range(5):
        finished(desk, f"j{number}")
        desk.tick(1)
    assert len(raw(desk)) == 5
    desk.sweep()
    assert ends(desk) == [("j4", "finished"), ("j3", "finished"), ("j2", "finished")]
    assert desk.redis.zcard(desk.keys.done) == 5, "the list of finished jobs has bounds of its own"


def test_it_is_trimmed_to_its_age_and_hides_at_once_what_is_older(desk: Desk) -> None:
    on(desk, age_ms=1000)
    for job in ("old", "young"):
        finished(desk, job)
        desk.tick(600)
    assert ends(desk) == [("young", "finished")] and len(raw(desk)) == 2
    assert [fields[0] for fields, _ in raw(desk.swept())] == [b"young"]
    desk.later(1000)
    assert raw(desk) == []


def test_a_sweep_removes_a_bounded_number_and_asks_for_the_next_one(desk: Desk) -> None:
    on(desk, 1)
    desk.redis.zadd(desk.keys.history, {f"{number}": number for number in range(5_004)})
    assert desk.sweep().sleep_ms == 0 and desk.redis.zcard(desk.keys.history) == 4
    assert desk.sweep().sleep_ms > 0 and desk.redis.zcard(desk.keys.history) == 1


def test_only_the_names_that_are_meant(desk: Desk) -> None:
    on(desk, names=("sms", "mail"))
    desk.enqueue("m", name="main").enqueue("s", name="sms")
    desk.finish(*(job.lease for job in desk.claim("a", classes=("main", "sms"))))
    assert ends(desk) == [("s", "finished")]
    assert desk.queue.history.list().rule == desk.queue.history.rule() == HistoryRule(1000, 0, 0, ("sms", "mail"))


def test_payloads_are_kept_where_that_is_asked_for_and_they_are_short(desk: Desk) -> None:
    on(desk, payload_bytes=20)
    desk.queue.enqueue("main", {"a": "é\0"}, id="short")
    desk.queue.enqueue("main", {"long": "x" * 20}, id="long")
    desk.queue.enqueue("main", b"\0\xff\0", id="bytes", key="k", attempts=9)
    desk.finish(*(job.lease for job in desk.claim("a")))
    found = {past.id: past for past in desk.queue.history.list()}
    assert found["short"].payload == {"a": "é\0"} and found["bytes"].payload == b"\0\xff\0"
    assert found["bytes"].payload_bytes == 3 and found["bytes"].key == "k"
    assert found["long"].stored is None and found["long"].payload_bytes == len(json.dumps({"long": "x" * 20}).replace(" ", ""))
    assert b"x" * 20 not in b"".join(field for fields, _ in raw(desk) for field in fields)
    on(desk.tick(1), payload_bytes=524_288)
    desk.finish(*(desk.enqueue(f"large{number}", payload="x" * 500_000).one().lease for number in range(4)))
    assert desk.run(ListHistory(0, 0, desk.now_ms, 0, 10)).read == 3, "a part has about a mebibyte"
    assert "é" not in repr(found["short"]), "a payload is not in what is logged of an entry"


# -- reading


def test_pages_go_on_behind_a_place_also_within_one_millisecond(desk: Desk) -> None:
    for part in range(3):
        finished(desk, *(f"j{part}{number}" for number in range(7)))
        desk.tick(part)
    whole = desk.queue.history.list()
    assert len(whole) == 21
    pages: list[PastJob] = []
    while page := desk.queue.history.list(limit=4, before=pages[-1].place if pages else None):
        pages += page
    assert [past.id for past in pages] == [past.id for past in whole]


def test_it_reads_on_until_it_has_found_what_is_meant(desk: Desk) -> None:
    on(desk, KEPT_MAX)
    entry = "\0".join(("{}", "1", "finished", "main", "", "", "w", "1 0 1 1 0 0 2", "", "", ""))
    same, apart = desk.now_ms, {entry.format(f"e{number}"): desk.now_ms - number for number in range(1_200)}
    desk.redis.zadd(desk.keys.history, {**apart, **{entry.format(f"s{number}"): same for number in range(1_200)}})
    assert ends(desk, key="e1199") == [("e1199", "finished")] and ends(desk, key="s0") == [("s0", "finished")]
    assert len(ends(desk, limit=1_000)) == 1_000
    assert ends(desk, newer_than_ms=1, key="e1") == [] and ends(desk, newer_than_ms=2, key="e1") != []
    assert ends(desk, older_than_ms=1_199) == [("e1199", "finished")]
    found = ends(desk, older_than_ms=timedelta(seconds=1), newer_than_ms=timedelta(milliseconds=1_002))
    assert found == [("e1000", "finished"), ("e1001", "finished")]


def test_off_deletes_what_was_kept(desk: Desk) -> None:
    finished(desk, "j")
    desk.queue.history.off()
    assert desk.redis.exists(desk.keys.history) == 0 and not desk.redis.hexists(desk.keys.stats, "history")
    assert desk.queue.history.list() == [] and desk.queue.history.list().rule is desk.queue.history.rule() is None


def test_obliterate_takes_it_away_and_the_events(desk: Desk) -> None:
    keys = desk.did(set_events(desk, 1000)).enqueue("j1").keys
    assert desk.queue.obliterate() and desk.redis.exists(keys.history, keys.events, keys.stats) == 0


def test_a_key_that_belongs_to_somebody_else_stops_no_job(desk: Desk) -> None:
    desk.redis.set(desk.keys.history, "theirs")
    assert desk.finish(desk.enqueue("j").one().lease) == [("ok", "finished")]
    assert desk.swept().redis.get(desk.keys.history) == b"theirs"


# -- what it costs when it is off


#: Commands of the server, the script itself among them, that a sweep and ending two jobs took before there was a history.
OFF = {"finish": 15, "finish and claim": 25, "retry": 36, "bury": 38, "drop": 35, "cancel": 62, "sweep": 15}


def commands(client: Any, what: Any) -> dict[str, int]:
    """Server command -> how often it was called, also by scripts."""
    client.config_resetstat()
    what()
    return {name: stats["calls"] for name, stats in client.info("commandstats").items() if not name.startswith("cmdstat_config")}


@pytest.mark.parametrize("how", [*ENDS, "sweep"])
def test_off_it_costs_no_command_and_leaves_no_byte(desk: Desk, how: str) -> None:
    """On it costs a few for each job, so the count would show one."""
    counted: list[dict[str, int]] = []
    for history in (False, True):
        desk.begin()
        if history:
            on(desk)
        call = desk.call(desk.sweep_operation() if how == "sweep" else ending(desk, how))
        counted.append(commands(desk.redis, partial(desk.send, call)))
        assert desk.redis.exists(desk.keys.history) == (history and how not in ("sweep", "retry"))
    off, when_on = (sum(calls.values()) for calls in counted)
    assert off == OFF[how] and (when_on > off or how == "retry")


# -- with workers


@pytest.mark.parametrize("processes", [0, 1])
def test_workers_leave_their_ends_of_batches_and_from_child_processes(queue: Queue, processes: int) -> None:
    queue.history.on(age_ms=timedelta(days=7))
    for number in range(10):
        queue.enqueue("one", number, id=f"o{number}", attempts=1)
        queue.enqueue("many", number, id=f"m{number}")
    assert Worker(queue, worker_handlers.history, name="w1", processes=processes).run(burst=True) == "empty"
    found = queue.history.list()
    wanted = [("many", "finished", "w1")] * 10 + [("one", "dead", "w1")] + [("one", "finished", "w1")] * 9
    assert sorted((past.name, past.outcome, past.worker) for past in found) == wanted
    assert all(past.ran_ms is not None and past.waited_ms is not None for past in found)
    assert [past.error for past in queue.history.list(outcome="dead")] == ["ValueError: seven"]


async def test_asyncio_reads_and_sets_it(ironclaim_url: str) -> None:
    async with AsyncQueue("aio", url=ironclaim_url) as queue:
        await queue.history.on(age_ms=1)
        assert await queue.history.rule() == HistoryRule(10_000, 1, 0, ())
        await queue.history.on(50, names=["a"], age_ms=timedelta(hours=1), payload_bytes=100)
        assert await queue.history.rule() == HistoryRule(50, 3_600_000, 100, ("a",))
        await queue.enqueue("a", {"n": 1}, id="j")
        await queue.jobs.cancel("j")
        (past,) = await queue.history.list(key="j", newer_than_ms=timedelta(minutes=1))
        assert (past.outcome, past.payload) == ("cancelled", {"n": 1})
        await queue.history.off()
        assert await queue.history.rule() is None


def test_events_and_history_are_kept_apart(desk: Desk) -> None:
    desk.begin().run(set_events(desk, 100))
    finished(desk, "j1")
    assert desk.redis.exists(desk.keys.history) == 0 and desk.redis.xlen(desk.keys.events) == 3
    desk.run(set_events(desk, 0))
    on(desk)
    finished(desk, "j2")
    assert desk.redis.exists(desk.keys.events) == 0 and ends(desk) == [("j2", "finished")]
