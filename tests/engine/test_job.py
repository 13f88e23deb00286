"""What a handler is given: what it says of its run, and what the handler may ask for meanwhile. Pure: no queue, no worker."""

from typing import Any

import pytest

from engine import Job, LeaseLost, Malformed, SoftTimeout
from engine.job import ParentResults
from engine.worker.machine.events import MoreTime, Progressed
from tests.engine.using import Machine, refused


def job_of(said: list[Any], **options: Any) -> tuple[Job, Any]:
    """A job that has failed once and crashed twice, and its lease."""
    leased = Machine().job("j", failures=1, crashes=2, attempts=5, **options)
    return Job(leased, said.append, queue="mails"), leased.lease


def test_what_it_says_of_its_run_and_of_its_parents() -> None:
    job, lease = job_of([], timeout_ms=900, soft_timeout_ms=300)
    assert (job.id, job.name, job.queue, job.token) == ("j", "work", "mails", (lease.fence, lease.nonce))
    assert (job.attempt, job.attempts, job.claims, job.failures, job.crashes) == (2, 5, 1, 1, 2)
    assert (job.timeout_ms, job.soft_timeout_ms, job.failure, job.parents) == (900, 300, "", ())
    found = ParentResults(("a", "b"), (b'{"ok":true,"value":1}', b""))
    assert (len(found), {**found}, repr(found)) == (2, {"a": 1, "b": None}, "<results of a, b>")


def test_progress_is_from_0_to_100_and_is_told_at_once() -> None:
    said = list[Any]()
    job, lease = job_of(said)
    for percent in (-1, 101, True, "5", None, float("nan")):
        refused(Malformed, r"^percent: .* a number from 0 to 100$", job.progress, percent)
    refused(Malformed, "^message: ", job.progress, 1, 7)
    refused(Malformed, "^progress: ", job.progress, 1, "m" * 20_000)
    for percent in (0, 99.5, 100):
        job.progress(percent, "m")
        assert said.pop() == Progressed(lease, f'"percent":{percent},"message":"m","data":null}}'.encode()) and not said


def test_more_time_is_asked_for_by_a_job_with_a_timeout_alone() -> None:
    for options, asks in (({}, False), ({"timeout_ms": 900}, True), ({"soft_timeout_ms": 900}, True)):
        said = list[Any]()
        job, lease = job_of(said, **options)
        job.extend(5_000)
        refused(Malformed, "^for_ms: 0", job.extend, 0)
        assert said == [MoreTime(lease, 5_000)] * asks


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_lease_or_a_time_that_is_over_is_known_to_the_job(by_hand: bool) -> None:
    (job, lease), (late, _), (soft, _) = (job_of([], soft_timeout_ms=300) for _ in range(3))
    job.check_lease()
    lost = job.lease_lost
    assert (job.cancelled, lost.is_set()) == (False, False)
    for one in (job, late):
        one.lose(cancelled=by_hand)
        assert (one.cancelled, one.cancelled_by_hand, one.lease_lost.is_set()) == (True, by_hand, True)
    why = "^job j: was cancelled$" if by_hand else f"^job j: the lease with fence {lease.fence} has ended$"
    assert lost.is_set() and refused(LeaseLost, why, job.check_lease) and refused(LeaseLost, why, job.progress, 1)
    soft.end_soon()
    assert (soft.cancelled, soft.lease_lost.is_set()) == (True, False) and refused(SoftTimeout, " 300 ms$", soft.check_lease)
