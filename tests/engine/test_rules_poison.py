"""Rule 12: a job that takes its worker with it is buried, and its neighbours are not."""

import itertools

import pytest

from tests.engine.helpers.fleet import Fleet, Segfault
from tests.engine.using import LEASE_MS, TOMBSTONE, Bury, Desk, Failure, LeasedJob, Mark, altered, write_run


def test_rule_12_the_first_crash_is_counted_and_free(desk: Desk) -> None:
    _, crashes = desk.enqueue("j1", crashes_max=2).crash("j1", mark=False)
    assert crashes == 1 and desk.places("j1") == {"lane"}
    job = desk.one()
    assert (job.crashes, job.options.crashes_max) == (1, 2)


def test_rule_12_after_it_only_a_marked_lease_is_charged(desk: Desk) -> None:
    desk.enqueue("j1", crashes_max=2).crash("j1", mark=False)
    for _ in range(3):
        # In hand of a worker that died of another job.
        assert desk.crash("j1", mark=False)[1] == 1 and desk.places("j1") == {"lane"}
    assert desk.crash("j1")[1] == 2 and desk.places("j1") == {"dead"}


@pytest.mark.parametrize("crashes_max", [2, 3, 5, 255])
def test_rule_12_at_its_bound_the_sweep_buries_it_with_a_reason(desk: Desk, crashes_max: int) -> None:
    desk.enqueue("j1", crashes_max=crashes_max).crash("j1", mark=False)
    write_run(desk.redis, desk.keys.run("j1"), crashes=crashes_max - 1)
    job = desk.one()
    assert desk.mark(job.lease) == "ok"
    reaped = desk.past(LEASE_MS).later(1)
    assert (reaped.leases, reaped.buried) == (((job.lease, crashes_max),), ("j1",))
    assert desk.places("j1") == {"dead"}
    run = desk.run_hash("j1")
    assert (run.get("nonce"), run["crashes"]) == (None, str(crashes_max))
    assert run["error"] == f"crashed {crashes_max} times, {crashes_max - 1} are allowed"
    assert desk.redis.get(desk.keys.job("j1"))[:1] != TOMBSTONE, "it can be looked at and requeued"
    assert desk.redis.hget(desk.keys.stats, "buried") == b"1" and desk.finish(job.lease) == [("stale", "")]
    assert desk.claim("b") == []


def test_rule_12_a_job_that_crashes_have_buried_has_all_its_chances_again_when_it_is_requeued(desk: Desk) -> None:
    desk.enqueue("j1", crashes_max=2)
    for _ in range(2):
        assert [desk.crash("j1")[1] for _ in range(2)] == [1, 2] and desk.places("j1") == {"dead"}
        assert altered(desk, "requeue", "dead", "j1")[0].done
        assert desk.places("j1") == {"lane"} and desk.run_hash("j1")["crashes"] == "0"


def test_rule_12_the_bound_is_three_unless_told_also_for_envelopes_that_do_not_say(desk: Desk) -> None:
    desk.enqueue("told", crashes_max=3, attempts=4).enqueue("old")
    assert [job.options.crashes_max for job in desk.claim("a")] == [3, 3]
    desk.sweep_past(LEASE_MS + 1)
    for _ in range(2):
        for worker in "bc":
            desk.mark(desk.one(worker, limit=1).lease)
        desk.sweep_past(LEASE_MS + 1)
    assert desk.places("told") == desk.places("old") == {"dead"}


def test_rule_12_a_mark_belongs_to_its_lease(desk: Desk) -> None:
    job = desk.enqueue("j1").crashed("j1", mark=False).one()
    assert [desk.mark(job.lease) for _ in range(2)] == ["ok", "repeated"]
    with desk.released(job.lease).unchanged():
        assert desk.mark(job.lease) == "stale"
    # The next lease is another one: it crashes unmarked and is not charged.
    assert desk.crash("j1", mark=False)[1] == 1


def test_rule_12_a_mark_that_comes_after_the_reap_arms_nothing(desk: Desk) -> None:
    job = desk.enqueue("j1").crashed("j1", mark=False).one()
    with desk.past(LEASE_MS + 1).unchanged():
        assert desk.mark(job.lease) == "stale"
    again = desk.one("b")
    assert desk.mark(job.lease) == "stale"
    assert desk.finished(again.lease).mark(again.lease) == "stale", "also after the end"


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
def test_rules_01_and_12_a_burying_sweep_cut_off_after_any_write_buries_once_and_for_all(desk: Desk, resend: bool) -> None:
    for writes in itertools.count(0):
        job = desk.begin().enqueue("j1", crashes_max=2).crashed("j1", mark=False).one()
        sweep = desk.marked(job.lease).past(LEASE_MS).tick(1).sweep_operation()
        was_cut = desk.cut_off(sweep, writes)
        if resend:
            desk.run(sweep)
        else:
            # The worker that was thought dead comes back in between: its finish is accepted, or the job is buried. Never both.
            accepted = desk.finish(job.lease) == [("ok", "finished")]
            assert desk.past(LEASE_MS).places("j1") == ({"ended"} if accepted else {"dead"}), writes
            if accepted:
                continue
        assert desk.past(LEASE_MS).places("j1") == {"dead"}, writes
        assert desk.run_hash("j1")["crashes"] == "2", "charged once"
        assert desk.run_hash("j1")["error"].startswith("crashed 2 times") and desk.claim("b") == []
        assert desk.finish(job.lease) == [("stale", "")]
        if not was_cut:
            assert writes > 3
            return


def test_rules_01_and_12_a_mark_cut_off_is_set_by_the_next_copy(desk: Desk) -> None:
    job = desk.enqueue("j1", crashes_max=2).crashed("j1", mark=False).one()
    assert desk.cut_off(Mark(job.lease), 0) and "marked" not in desk.run_hash("j1")
    assert desk.mark(job.lease) == "ok" and desk.past(LEASE_MS + 1).places("j1") == {"dead"}


def test_rule_12_a_job_that_somebody_buried_before_the_sweep_is_buried_once(desk: Desk) -> None:
    job = desk.enqueue("j1", crashes_max=2).crashed("j1", mark=False).one()
    assert desk.marked(job.lease).cut_off(Bury((Failure(job.lease, "no"),)), 2)
    assert desk.past(LEASE_MS + 1).places("j1") == {"dead"} and desk.redis.hget(desk.keys.stats, "buried") == b"1"


@pytest.mark.parametrize("concurrency", [1, 8, 50])
def test_rule_12_of_fifty_jobs_only_the_poison_is_buried(desk: Desk, concurrency: int) -> None:
    """Without the rule its 49 neighbours are buried with it: they are in the same hands each time."""

    def handle(job: LeasedJob) -> int:
        if job.lease.job == "poison":
            raise Segfault
        return 5

    fleet = Fleet(desk, handle)
    desk.enqueue(*[f"j{number}" for number in range(25)], "poison", *[f"j{number}" for number in range(25, 49)])
    workers = 0
    for _ in range(40):
        worker = fleet.start(concurrency=concurrency, prefetch=64, lease_ms=1500)
        workers += 1
        fleet.run(60_000, lambda worker=worker: not worker.alive or bool(fleet.buried))
        if worker.alive:
            break
    fleet.run(10_000)
    assert fleet.buried == ["poison"] and desk.places("poison") == {"dead"}
    assert [job for job in (f"j{number}" for number in range(49)) if desk.places(job) != {"ended"}] == []
    assert workers - 1 == 3, "the first crash was free, the third is the last"
    assert max(crashes for _, _, crashes in fleet.reaped) == 3


@pytest.mark.slow
def test_rule_12_one_worker_runs_one_job_with_a_crash_behind_it_at_a_time(desk: Desk) -> None:
    """And goes on with the others meanwhile."""
    desk.enqueue("c1", "c2", "c3").held("x").past(LEASE_MS + 1).enqueue("j1", "j2", "j3")
    running: set[str] = set()
    fleet = Fleet(desk, lambda job: running.add(job.lease.job) or None)
    worker = fleet.start(concurrency=6)
    fleet.run(5000)
    assert running == {"c1", "j1", "j2", "j3"} and {job for _, job in worker.starts} == running
    # The others are left to other workers.
    assert desk.places("c2") == desk.places("c3") == {"lane"}
    before = fleet.sent.total()
    fleet.run(3 * LEASE_MS)
    assert fleet.reaped == [] and running == {"c1", "j1", "j2", "j3"}
    assert fleet.sent.total() - before < 6 * 27, "a few calls a second: it does not claim in vain again and again"
    assert "marked" in desk.run_hash("c1") and "marked" not in desk.run_hash("c2") and "marked" not in desk.run_hash("j1")


@pytest.mark.parametrize(("workers", "bound_ms"), [(1, 9 * 110 + 1000), (3, 3 * 110 + 2000)])
def test_rule_12_jobs_with_a_crash_behind_them_spread_over_the_workers(desk: Desk, workers: int, bound_ms: int) -> None:
    """Nine jobs were in the hand of a worker that was killed. One worker runs them one by one, three share them."""
    fleet = Fleet(desk.enqueue(*[f"c{number}" for number in range(9)]).held("x"), lambda job: 100)
    crew = [fleet.start(concurrency=8, prefetch=64) for _ in range(workers)]
    assert fleet.run(LEASE_MS + 2000, lambda: bool(fleet.reaped))
    reaped_ms = fleet.now_ms
    assert fleet.run(10_000, lambda: sum(len(worker.starts) for worker in crew) == 9)
    assert fleet.now_ms - reaped_ms <= bound_ms and all(worker.starts for worker in crew)


def test_rule_12_a_claim_takes_no_more_jobs_with_a_crash_behind_them_than_it_may(desk: Desk) -> None:
    found = desk.enqueue("c1", "c2", "c3").held("x").past(LEASE_MS + 1).enqueue("j1", "j2").claim(crashed_max=1)
    assert [job.lease.job for job in found] == ["c1", "j1", "j2"]
    assert desk.redis.llen(desk.keys.wake("main")) == 1, "it took one: another worker may take the next"
    desk.redis.delete(desk.keys.wake("main"))
    assert desk.claim(crashed_max=0) == [] and desk.places("c2") == {"lane"}
    assert desk.redis.llen(desk.keys.wake("main")) == 0, "it took none: a marker would come back to it"
    assert desk.swept().redis.llen(desk.keys.wake("main")) == 1, "the sweep re-arms for the others"


def test_rule_12_what_a_claim_passes_by_hides_nothing_behind_it(desk: Desk) -> None:
    """One SIGKILL of a worker with many jobs in hand flags them all; a page of them must not stop the innocent ones behind."""
    desk.enqueue(*[f"c{number}" for number in range(250)]).held("x", limit=250).past(LEASE_MS + 1).enqueue("j1", "j2", "j3")
    assert [job.lease.job for job in desk.claim(limit=3, crashed_max=0)] == ["j1", "j2", "j3"]
    assert [job.lease.job for job in desk.claim("b", 3, crashed_max=1)] == ["c0"]
