"""Rule 7: an obliterated queue is empty, whatever jobs and workers did while that went on; what was enqueued later stays."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.queue.admin import obliterating
from tests.engine.using import Bury, Clean, Desk, Failure, Finish, Forget, Lease, Operation, Retry, Value, names_of

Meanwhile = Callable[[Desk, Operation], None]
#: `seq` tells late copies from later jobs, `sweep` is what the sweeps know of the clock.
STAYS = {"seq", "sweep"}


def obliterate(desk: Desk, meanwhile: Meanwhile, *, force: bool = True) -> bool:
    """`queue.obliterate`, with something that happens before each of its calls."""
    steps: Any = obliterating(force)
    asked: Any = next(steps)
    try:
        while True:
            operation: Any = asked.stamped(desk.now_ms + 10_000)
            meanwhile(desk, operation)
            asked = steps.send(desk.run(operation))
    except StopIteration as end:
        return end.value


def lasting(desk: Desk) -> set[str]:
    """Keys that do not expire."""
    keys = names_of(desk, f"{desk.keys.prefix}*")
    return {key for key in keys if desk.redis.pexpiretime(desk.keys.prefix + key) < 0}


def full_queue(desk: Desk) -> dict[str, Lease]:
    """Jobs in all states, families, limits, pauses, a worker that is gone; the leases in hand."""
    desk.beaten("g", ttl_ms=1_000).set_limit("k:*", concurrency=1).set_limit("n:main", concurrency=50).pause("other")
    done, buried = desk.did(desk.set_worker_operation("p:w", 0)).leased("done", "buried")
    desk.did(Finish((done.lease,), values=(Value(0, b"1", 3_600_000, 3),))).bury(buried.lease)
    desk.enqueue("heir", needs=("done",), delay_ms=3_600_000)
    desk.enqueue("r0", "r1", "r2", "r3", unique="", priority=9).enqueue("k0", "k1", key="acme", priority=8)
    desk.enqueue("child", needs=("r0", "r1"), unique="c").enqueue("grandchild", needs=("child",))
    desk.enqueue("waits", unique="w").enqueue("later", delay_ms=500).enqueue("far", route="gpu")
    held = {job.lease.job: job.lease for job in desk.claim(limit=5)}
    assert set(held) == {"r0", "r1", "r2", "r3", "k0"}
    desk.tick(2_000)
    return held


@pytest.mark.parametrize("state", ["begin", "active", "blocked", "delayed", "waiting", "dead", "finished", "end"])
def test_jobs_that_end_and_workers_that_claim_while_it_goes_on_leave_nothing_behind(desk: Desk, state: str) -> None:
    held, claimed = full_queue(desk), []

    def busy(desk: Desk, operation: Operation) -> None:
        at = operation.state if isinstance(operation, Clean) else operation.phase if isinstance(operation, Forget) else ""
        begun = isinstance(operation, Clean) or at == "end"
        desk.tick(1)
        if begun:
            claimed.extend(desk.claim("z"))
        desk.swept()
        if at != state or not held:
            return
        desk.did(Finish((held["r0"], held["r1"]))).run(Bury((Failure(held["r2"], "no"),)))
        desk.did(Retry((Failure(held["r3"], "no", 10),))).run(Finish((held["k0"],), desk.claim_operation("z")))
        held.clear()

    assert obliterate(desk, busy) and not held and claimed == []
    assert lasting(desk) <= STAYS | {"settings", "handing"}
    assert lasting(desk.swept()) == STAYS | {"settings"}, "the version that workers know"
    assert set(desk.redis.hkeys(desk.keys.settings)) == {b"version"}
    # It is a queue like any new one.
    assert [job.lease.job for job in desk.enqueue("new", key="acme", unique="w").claim("y")] == ["new"]


def test_it_takes_no_longer_than_it_has_to_and_no_job_that_came_later(desk: Desk) -> None:
    full_queue(desk)
    later: list[str] = []

    def busy(desk: Desk, operation: Operation) -> None:
        if isinstance(operation, Clean) and len(later) < 30:
            later.append(f"new{len(later)}")
            desk.enqueue(later[-1])

    assert obliterate(desk, busy)
    assert sorted(job.lease.job for job in desk.claim("y", limit=50)) == sorted(later)


def test_an_endless_pause_stays_endless_until_the_end(desk: Desk) -> None:
    desk.pause().enqueue("a").run(Forget("begin", False, op_id="0" * 16, not_after_ms=desk.now_ms + 10_000))
    assert desk.redis.hget(desk.keys.paused, "*") == b"0 0"


def test_many_families_are_forgotten_in_pieces(desk: Desk) -> None:
    leases = [job.lease for job in desk.enqueue(*(f"p{number}" for number in range(210))).claim(limit=300)]
    desk.run(Finish(tuple(leases), values=tuple(Value(at, b"1", 60_000, 3) for at in range(210))))
    for number in range(210):
        desk.enqueue(f"c{number}", needs=(f"p{number}",))
    ends = 0

    def count(desk: Desk, operation: Operation) -> None:
        nonlocal ends
        ends += isinstance(operation, Forget) and operation.phase == "end"

    assert obliterate(desk, count, force=False) and ends == 2 and lasting(desk) == STAYS
