"""Nothing that a foreign client may have written stops a queue: it runs, or it is set aside, and what comes behind it runs."""

from engine.ops.claims import Bury
from tests.conformance.desk import ModelDesk, about
from tests.conformance.garbage import Write, garbage
from tests.conformance.models import FOREIGN, only


@only(FOREIGN)
def test_what_comes_behind_garbage_runs(desk: ModelDesk) -> None:
    for what, write in garbage(desk.spec, "desk").items():
        desk.begin()
        with about(what):
            what_comes_behind_runs(desk, write)


def what_comes_behind_runs(desk: ModelDesk, write: Write) -> None:
    write(desk.redis)
    desk.put("good", "better")
    ran: list[str] = []
    for _ in range(6):
        claimed = desk.run(desk.claim_operation(limit=10, classes=("main", "__default__")))
        # As a worker does with jobs that it cannot read.
        for failure in claimed.unreadable:
            desk.run(Bury((failure,)))
        for job in claimed.jobs:
            desk.finish(job.lease)
            ran.append(job.lease.job)
        desk.tick(1_100).sweep()
    assert [desk.ids["good"], desk.ids["better"]] == [job for job in ran if job in desk.ids.values()]
    # Nothing is left that would be met again and again, and looking at all of it works.
    counts = desk.queue.counts()
    assert (counts.waiting, counts.active) == (0, 0)
    desk.queue.snapshot()
    for state in ("waiting", "delayed", "active", "dead"):
        desk.queue.jobs.list(state)
    desk.queue.jobs.counts_by_name()
    desk.queue.dead.clear()
