"""What a worker's machine does with what it is told over its control connection (rules 22 and 26)."""

import pytest

from engine.ops.workers import JobCancelled, UpdatesPublished, read_control
from engine.worker.machine.events import LoseLease, Subscribed
from tests.engine.using import Claim, Extend, Lease, Machine, ReadWorkerUpdates, Swept, WorkerUpdates, holding, lost, started


@pytest.mark.parametrize(("message", "told"), [
    (b"cancelled 12 abc:3 j", JobCancelled(Lease("j", 12, "abc:3"))),
    ("cancelled 12 abc:3 a jöb".encode(), JobCancelled(Lease("a jöb", 12, "abc:3"))), (b"news 7", UpdatesPublished(7)),
    (b"cancelled x abc:3 j", None), (b"cancelled 12 abc:3", None), (b"news", None), (b"news -1", None),
    (b"something of a later version", None), (b"\xff\xfe", None), (b"", None),
])  # fmt: skip
def test_a_message_that_is_not_understood_tells_nothing(message: bytes, told: object) -> None:
    assert read_control(message) == told


def test_rule_26_a_running_handler_is_told_once_and_its_lease_is_renewed_no_more() -> None:
    machine = Machine(concurrency=2)
    job = machine.job("a")
    lease = job.lease
    assert machine.given(job, machine.job("b")).on(JobCancelled(lease)) == [LoseLease(lease, cancelled=True)]
    assert lost(machine.on(JobCancelled(lease))) == []
    assert [renewed.job for renewed in machine.after(3001).renewal.leases] == ["b"]


def test_rule_26_a_job_taken_ahead_leaves_before_it_starts() -> None:
    machine, (first, *others) = holding("first", "ahead", "other", concurrency=1, prefetch=4)
    for ahead in others:
        assert machine.on(JobCancelled(ahead.lease))[:1] == [LoseLease(ahead.lease, started=False, cancelled=True)]
    assert started(machine.given().handler_ends(first)) == [] and machine.work.leases == (first.lease,), "nothing waits"


def test_rule_26_a_cancel_that_overtakes_the_answer_to_the_claim_is_not_forgotten() -> None:
    machine = Machine(concurrency=2)
    early, other = machine.job("early"), machine.job("other")
    assert isinstance(machine.work, Claim) and lost(machine.on(JobCancelled(early.lease))) == []
    actions = machine.give(early, other)
    assert lost(actions) == ["early"] and started(actions) == ["other"]


def test_rule_26_a_cancel_of_what_is_not_in_hand_changes_nothing() -> None:
    machine = Machine(concurrency=2)
    old = machine.job("a")
    assert not lost(machine.given().on(JobCancelled(old.lease)))
    # Of a claim before: the next one leases the same job anew, and that lease is another.
    assert started(machine.woken(True).give(machine.job("a"))) == ["a"] and not lost(machine.on(JobCancelled(old.lease)))


def test_rule_26_a_handler_that_runs_past_its_lease_is_still_told_of_the_cancel() -> None:
    """By the worker's own clock the lease is over, and the handler knows; that nobody runs the job again is news to it."""
    machine, (job,) = holding("a", concurrency=1, lease_ms=3000)
    assert lost(machine.after(1001).failed("renew").wait(2500)) == ["a"]
    assert machine.on(JobCancelled(job.lease)) == [LoseLease(job.lease, cancelled=True)]


def test_rule_26_leases_are_renewed_at_once_when_the_connection_reads_again() -> None:
    machine = Machine(concurrency=1)
    assert "renew" not in machine.told(Subscribed()).after(500).out
    assert "renew" not in machine.given(machine.job("a")).after(500).out
    assert isinstance(machine.told(Subscribed()).after(150).renewal, Extend)


def test_rule_22_a_worker_without_room_asks_for_the_news_when_it_is_told_of_them() -> None:
    machine, _ = holding("a", concurrency=1)
    machine.sweep()
    assert "wake" not in machine.out and "sweep" not in machine.out
    assert "sweep" not in machine.told(UpdatesPublished(0)).out
    for _ in range(2):
        assert machine.told(UpdatesPublished(4)).out["sweep"].operation == ReadWorkerUpdates(0, "w")
        machine.fail("sweep")
    machine.on(UpdatesPublished(4))
    # Told twice while the answer is on its way, it asks once: no marker of others was taken.
    machine.told(UpdatesPublished(4)).answered("sweep", WorkerUpdates(machine.srv_us, 4, 0, None, ())).on(UpdatesPublished(4))
    assert "sweep" not in machine.out


def test_rule_22_a_worker_that_blocks_leaves_the_news_to_their_marker() -> None:
    machine = Machine(concurrency=1)
    assert "wake" in machine.given().answered("sweep", Swept(machine.srv_us, 1000)).out
    assert "sweep" not in machine.told(UpdatesPublished(4)).out
