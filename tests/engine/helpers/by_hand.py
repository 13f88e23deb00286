"""Administration of jobs on a desk: operations with an identity each, as `queue.jobs` and `queue.dead` make them."""

from engine.ops import admin
from tests.engine.desk import Desk
from tests.engine.ops import Bury, Failure


def alter(desk: Desk, action: admin.AdminAction, state: str, *jobs: str) -> admin.Alter:
    return admin.Alter(action, jobs, state, op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def altered(desk: Desk, action: admin.AdminAction, state: str, *jobs: str) -> tuple[admin.Altered, ...]:
    """What came of it, sent once."""
    reply = desk.run(alter(desk, action, state, *jobs))
    assert reply.result == "done"
    return reply.items


def revive(desk: Desk, *jobs: str) -> admin.Revive:
    return admin.Revive(jobs, op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def clean(
    desk: Desk, state: str, older_than_ms: int = 0, *, era: admin.Era | None = None, offset: int = 0, most: int = 1000
) -> admin.Clean:
    return admin.Clean(state, older_than_ms, era, offset, 500, most, op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def forget(desk: Desk, *, force: bool = False, end: bool = False) -> admin.Forget:
    return admin.Forget("end" if end else "begin", force, op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def set_retention(desk: Desk, **bounds: int) -> admin.SetRetention:
    return admin.SetRetention(tuple(bounds.items()), op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def set_events(desk: Desk, keep: int) -> admin.SetEvents:
    return admin.SetEvents(keep, op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def set_history(desk: Desk, keep: int, age_ms: int = 0, payload_bytes: int = 0, names: tuple[str, ...] = ()) -> admin.SetHistory:
    rule = admin.HistoryRule(keep, age_ms, payload_bytes, names)
    return admin.SetHistory(rule, op_id=new_op_id(desk), not_after_ms=desk.now_ms + 10_000)


def bury(desk: Desk, *jobs: str) -> Desk:
    """Let these jobs die, which wait now."""
    found = {job.lease.job: job.lease for job in desk.claim("g", limit=100)}
    assert set(found) == set(jobs)
    return desk.did(Bury(tuple(Failure(found[job], f"{job} is bad") for job in jobs)))


def new_op_id(desk: Desk) -> str:
    return f"by-hand-{desk._count('by hand'):08x}"
