"""Rules 1 and 2 on foreign keyspaces: a script cut off anywhere loses and doubles nothing, a full memory expires no lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.errors import ScriptFault, ServerUnavailable
from engine.wire.operations import (
    Bury,
    Count,
    Drop,
    Enqueue,
    EnqueueMany,
    Extend,
    Failure,
    Finish,
    Lease,
    Operation,
    Release,
    Retry,
)
from tests.engine.desk import LEASE_MS
from tests.engine.models.foreign_desk import SUBJECTS, ForeignDesk, open_desk

JOBS = ("j1", "j2", "j3")

#: A script is cut off in the same places whatever the names of the keys are: second layouts of a format are of the second tier.
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow) if name.endswith("-live") else name for name in SUBJECTS]


@pytest.fixture(params=PARAMETERS)
def desk(request: pytest.FixtureRequest, ironclaim_url: str) -> Iterator[ForeignDesk]:
    """An empty desk of each model."""
    yield from open_desk(ironclaim_url, request.param)


def leased(desk: ForeignDesk) -> tuple[Lease, ...]:
    desk.enqueue(*JOBS)
    return tuple(job.lease for job in desk.claim())


def before_enqueue(desk: ForeignDesk) -> Operation:
    return desk.enqueue_operation("j1")


def before_delayed_enqueue(desk: ForeignDesk) -> Operation:
    return desk.enqueue_operation("j1", delay_ms=500)


def before_enqueue_many(desk: ForeignDesk) -> Operation:
    return desk.enqueue_many_operation(*JOBS, delays_ms=(500, 700))


def before_claim(desk: ForeignDesk) -> Operation:
    desk.enqueue("j1")
    desk.enqueue("j2", "j3", delay_ms=50)
    desk.tick(2_000)
    return desk.claim_operation()


def before_claim_under_a_limit(desk: ForeignDesk) -> Operation:
    desk.set_limit("n:main", concurrency=2, rate=100, per_ms=1000)
    desk.enqueue(*JOBS)
    return desk.claim_operation()


def before_finish(desk: ForeignDesk) -> Operation:
    return Finish(leased(desk))


def before_finish_and_claim(desk: ForeignDesk) -> Operation:
    leases = leased(desk)
    desk.enqueue("j4", "j5")
    return Finish(leases, desk.claim_operation())


def before_release(desk: ForeignDesk) -> Operation:
    return Release(leased(desk))


def before_retry(desk: ForeignDesk) -> Operation:
    return Retry(tuple(Failure(lease, "boom", 200) for lease in leased(desk)))


def before_retry_at_once(desk: ForeignDesk) -> Operation:
    return Retry(tuple(Failure(lease, "boom", 0) for lease in leased(desk)))


def before_extend(desk: ForeignDesk) -> Operation:
    return desk.extend_operation(*leased(desk))


def before_promote(desk: ForeignDesk) -> Operation:
    desk.enqueue(*JOBS, delay_ms=50)
    desk.tick(2_000)
    return desk.sweep_operation()


def before_reap(desk: ForeignDesk) -> Operation:
    leased(desk)
    desk.tick(LEASE_MS + 1)
    return desk.sweep_operation()


def before_reap_after_a_step_back(desk: ForeignDesk) -> Operation:
    leased(desk)
    desk.sweep()
    desk.tick(-900_000)
    return desk.sweep_operation()


def before_orphans(desk: ForeignDesk) -> Operation:
    """Leases whose worker is gone before they run out."""
    desk.beat("a", ttl_ms=3_000)
    leased(desk)
    for _ in range(4):
        desk.tick(1_000)
        desk.beat("b", ttl_ms=3_000)
    return desk.orphans_operation()


SCENES = [
    before_enqueue,
    before_delayed_enqueue,
    before_enqueue_many,
    before_claim,
    before_claim_under_a_limit,
    before_finish,
    before_finish_and_claim,
    before_release,
    before_retry,
    before_retry_at_once,
    before_extend,
    before_promote,
    before_reap,
    before_reap_after_a_step_back,
    before_orphans,
]


def drain(desk: ForeignDesk) -> dict[str, int]:
    """What a healthy worker does afterwards: sweep past every lease and back-off, run what is there. Accepted finishes by job."""
    accepted: dict[str, int] = {}
    for _ in range(3):
        desk.sweep_past(LEASE_MS + 1000)
        desk.sweep()
        jobs = desk.claim("z")
        for job, (result, _) in zip(jobs, desk.finish(*[job.lease for job in jobs]) if jobs else [], strict=True):
            accepted[job.lease.job] = accepted.get(job.lease.job, 0) + (result == "ok")
        counts = desk.run(Count())
        if not (counts.waiting or counts.delayed or counts.active):
            break
    return accepted


def accepted_by(operation: Operation, reply: object) -> dict[str, int]:
    """Finishes that the re-sent operation itself reports as accepted, now (ok) or by the copy that was cut off (repeated)."""
    if not isinstance(operation, Finish):
        return {}
    ended = getattr(reply, "finished", reply)
    items = ended.items  # type: ignore[attr-defined]
    return {lease.job: int(result in ("ok", "repeated")) for lease, (result, _) in zip(operation.leases, items, strict=True)}


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__[7:])
def test_rule_01_a_script_cut_off_after_any_write_loses_and_doubles_nothing(
    desk: ForeignDesk, scene: Callable[[ForeignDesk], Operation], resend: bool
) -> None:
    writes = 0
    while True:
        writes += 1
        desk.begin()
        operation = scene(desk)
        known = set(desk.made)
        was_cut = desk.cut_off(operation, writes)
        accepted = accepted_by(operation, desk.run(operation)) if resend else {}
        for job, count in drain(desk).items():
            accepted[job] = accepted.get(job, 0) + count
        counts = desk.run(Count())
        assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 0, 0, 0), (writes, counts)
        assert desk.redis.zcard(desk.keys.active) == 0 and not list(desk.redis.scan_iter(desk.keys.held("*")))
        new = operation.jobs if isinstance(operation, EnqueueMany) else [operation] if isinstance(operation, Enqueue) else []
        jobs = known | ({job.job for job in new} if resend else set())
        if resend:
            assert {job: accepted.get(job, 0) for job in jobs} == dict.fromkeys(jobs, 1), writes
        assert all(count <= 1 for count in accepted.values()), (writes, accepted)
        if not resend:
            finished_before = known if isinstance(operation, Finish) else set[str]()
            assert jobs <= set(accepted) | finished_before, (writes, jobs, accepted)
        if not was_cut:
            break
    assert writes > 1, "the scene made the script write less than twice: it proves nothing"


def test_rule_01_what_is_left_of_an_enqueue_that_was_cut_off_keeps_its_id_and_says_that_it_is_gone(desk: ForeignDesk) -> None:
    """Without an entry nobody runs it until its own call is repeated: another call that names its id makes no second one."""
    states: set[str] = set()
    for writes in range(1, 20):
        desk.begin()
        operation = desk.enqueue_operation("j1")
        was_cut = desk.cut_off(operation, writes)
        other = desk.run(desk.enqueue_operation("j1", nonce=b"another-"))
        assert other.result in ("created", "duplicate"), writes
        if other.result == "duplicate":
            states.add(other.state)
            assert (desk.run(Count()).waiting == 1) == (other.state == "waiting") and other.state in ("waiting", "gone"), writes
        assert desk.run(operation).result in ("repeated", "duplicate"), writes
        assert drain(desk) == {"j1": 1}, writes
        if not was_cut:
            break
    assert "waiting" in states


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
@pytest.mark.parametrize("end", ["bury", "retry", "drop"])
def test_rule_01_an_end_for_good_that_was_cut_off_is_completed(desk: ForeignDesk, end: str, resend: bool) -> None:
    for writes in range(1, 40):
        desk.begin()
        desk.enqueue("j1", attempts=1)
        (job,) = desk.claim()
        failure = Failure(job.lease, "no", 0)
        ends = {"bury": Bury((failure,)), "retry": Retry((failure,)), "drop": Drop((job.lease,), ("discarded",))}
        outcome = "discarded" if end == "drop" else "buried"
        was_cut = desk.cut_off(ends[end], writes)
        if resend:
            assert desk.run(ends[end]).items[0] in (("ok", outcome), ("repeated", outcome)), writes
        desk.sweep_past(LEASE_MS + 1)
        assert desk.claim("b") == [], writes
        counts = desk.run(Count())
        assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 0, 0, int(end != "drop")), (writes, counts)
        if not was_cut:
            return
    raise AssertionError("the script never ran to its end")


def test_rule_01_a_retry_cut_off_anywhere_charges_one_failure(desk: ForeignDesk) -> None:
    for writes in range(1, 40):
        desk.begin()
        desk.enqueue("j1", attempts=2)
        operation = Retry((Failure(desk.claim()[0].lease, "boom", 200),))
        was_cut = desk.cut_off(operation, writes)
        assert desk.run(operation).items[0][1] == "retried", writes
        desk.tick(1_500)
        (job,) = desk.claim("b")
        assert job.failures == 1, writes
        if not was_cut:
            return
    raise AssertionError("the script never ran to its end")


def test_rule_01_a_job_whose_retry_was_cut_off_runs_before_a_sweep_and_is_nowhere_afterwards(desk: ForeignDesk) -> None:
    """The half of a retry that put the job among the delayed ones is all there is, and its time comes before the lease ends."""
    for writes in range(1, 40):
        desk.begin()
        desk.enqueue("j1", attempts=2)
        operation = Retry((Failure(desk.claim()[0].lease, "boom", 200),))
        was_cut = desk.cut_off(operation, writes)
        desk.tick(1_500)
        if jobs := desk.claim("b"):
            assert desk.finish(jobs[0].lease)[0][0] == "ok", writes
            desk.sweep_past(LEASE_MS + 1)
            counts = desk.run(Count())
            assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 0, 0, 0), (writes, counts)
        if not was_cut:
            assert jobs
            return
    raise AssertionError("the script never ran to its end")


def test_rule_01_a_key_of_ours_with_another_type_stops_every_script_before_its_first_write(desk: ForeignDesk) -> None:
    lease = leased(desk)[0]
    desk.redis.delete(desk.keys.active)
    desk.redis.set(desk.keys.active, "not what the script expects")
    before = desk.dump()
    operations: list[Operation] = [desk.claim_operation(), Finish((lease,)), desk.extend_operation(lease), desk.sweep_operation()]
    for operation in operations:
        with pytest.raises(ScriptFault, match="WRONGTYPE the key .*active is a string"):
            desk.run(operation)
        assert desk.dump() == before


def test_rule_02_under_memory_pressure_leases_go_on_and_enqueue_is_refused_whole(desk: ForeignDesk) -> None:
    first, second, third = leased(desk)
    desk.redis.config_set("maxmemory", 1)
    try:
        before = desk.dump()
        with pytest.raises(ServerUnavailable, match="OOM"):
            desk.run(desk.enqueue_operation("late"))
        assert desk.dump() == before
        assert desk.run(Extend((first,), 1, LEASE_MS, desk.now_ms + 3000)).items[0][0] == "ok"
        assert desk.finish(first) == [("ok", "finished")]
        assert desk.retry(second) == ("ok", "retried")
        assert desk.run(Release((third,))).items == (("ok", "released"),)
        assert [job.lease.job for job in desk.claim("b")] == ["j3"]
        desk.tick(LEASE_MS + 1)
        assert [lease.job for lease, _ in desk.sweep().leases] == ["j3"]
    finally:
        desk.redis.config_set("maxmemory", 0)
