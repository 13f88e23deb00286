"""The steps that look at jobs and change them by hand, without I/O: what `queue.jobs` and `queue.dead` carry out (rules 7 and
26).

What is done to a job names the state that it was seen in: it is looked at first, and when its state has changed meanwhile, once
more. A late copy of a call finds another state, or its own record, and changes nothing.
"""

from __future__ import annotations

from engine import validate
from engine.errors import Malformed, ScriptFault
from engine.models.model import Model
from engine.operations import Alter, Altered, AlteredJobs, Count, Deed, Inspect, Inspected, NameCounts, Page, Paged
from engine.queue import administering
from engine.queue.job_info import JobInfo, JobState, job_info, state_of
from engine.queue.steps import InTime, Steps

#: States from which a job may be taken by each deed.
ALLOWED: dict[Deed, tuple[str, ...]] = {
    "cancel": ("waiting", "blocked", "delayed", "active"),
    "remove": ("waiting", "blocked", "delayed", "dead", "finished"),
    "discard": ("dead",),
    "requeue": ("dead",),
    "run_now": ("delayed",),
}
LISTED = ("waiting", "blocked", "delayed", "active", "stuck", "dead", "finished")
#: Jobs of one call.
PIECE = 100
#: Looks at a job whose state changes all the time.
_TRIES = 5


def getting(model: Model, job: object) -> Steps[JobInfo | None]:
    """All that is known of one job. Raises Malformed."""
    checked = validate.known_id(job)
    reply: Inspected = yield model.call(Inspect((checked,)))
    looked = reply.items[0]
    return None if looked.state == "gone" else job_info(model, checked, looked, reply.srv_us)


def telling_state(model: Model, job: object) -> Steps[JobState]:
    """The state of one job. Raises Malformed."""
    checked = validate.known_id(job)
    reply: Inspected = yield model.call(Inspect((checked,), whole=False))
    return state_of(reply.items[0], reply.srv_us)


def listing(model: Model, state: object, offset: object, limit: object, newest_first: object) -> Steps[list[JobInfo]]:
    """One page of the jobs in a state. Raises Malformed."""
    checked = _state(state, LISTED)
    if not isinstance(newest_first, bool):
        raise Malformed("newest_first", newest_first, "True or False")
    first = validate.integer("offset", offset, 0, 2**48)
    most = validate.integer("limit", limit, 1, validate.PAGE_MAX)
    page: Paged = yield model.call(Page(checked, first, most, newest_first))
    return (yield from _looking(model, page.jobs, checked))


def _looking(model: Model, jobs: tuple[str, ...], state: str) -> Steps[list[JobInfo]]:
    """Those of the jobs that are still in the state."""
    found: list[JobInfo] = []
    while jobs:
        reply: Inspected = yield model.call(Inspect(jobs[:PIECE]))
        for job, looked in zip(jobs, reply.items, strict=False):
            now = state_of(looked, reply.srv_us)
            if now == state or (now, state) == ("stuck", "active"):
                found.append(job_info(model, job, looked, reply.srv_us))
        jobs = jobs[len(reply.items) :]
    return found


def counting_names(model: Model) -> Steps[dict[str, NameCounts]]:
    """Jobs of each name in each state."""
    counts: dict[str, dict[str, int]] = {}
    for state in NameCounts._fields:
        offset = 0
        while True:
            page: Paged = yield model.call(Page(state, offset, validate.PAGE_MAX, names=True))
            for name, count in page.names.items():
                of_name = counts.setdefault(name, {})
                of_name[state] = of_name.get(state, 0) + count
            offset += page.seen
            if page.seen < validate.PAGE_MAX:
                break
    return {name: NameCounts(**of_name) for name, of_name in sorted(counts.items())}


def altering(model: Model, deed: Deed, job: object, expected_state: object) -> Steps[Altered]:
    """Do something to one job, if it is in a state that allows it. Raises Malformed."""
    checked = validate.known_id(job)
    expected = None if expected_state is None else _state(expected_state, ALLOWED[deed])
    altered: Altered | None = None
    for _ in range(_TRIES):
        state = expected
        if state is None:
            reply: Inspected = yield model.call(Inspect((checked,), whole=False))
            state = reply.items[0].state
        if state not in ALLOWED[deed]:
            return Altered(checked, "changed", state)
        (altered,) = yield from _alter(deed, (checked,), state)
        if expected is not None or altered.result != "changed":
            break
    if altered is None:
        raise ScriptFault(f"{deed}: a reply without the job")
    return altered


def _alter(deed: Deed, jobs: tuple[str, ...], state: str) -> Steps[tuple[Altered, ...]]:
    op_id = administering.new_op_id()

    def operation(not_after_ms: int) -> Alter:
        return Alter(op_id, not_after_ms, deed, jobs, state)

    sent = yield InTime(operation)
    administering.conclude(sent)
    if not isinstance(sent.reply, AlteredJobs) or len(sent.reply.items) != len(jobs):
        raise ScriptFault(f"{deed}: a reply of type {type(sent.reply).__name__}")
    return sent.reply.items


def requeueing_all(model: Model, name: object, limit: object) -> Steps[int]:
    """Requeue the dead jobs of a name, or all, the oldest first; how many. Raises Malformed."""
    wanted = None if name is None else validate.job_name(name)
    most = validate.integer("limit", limit, 1, validate.DEAD_MAX)
    counts = yield model.call(Count())
    # Who dies again meanwhile is not looked at twice.
    left, offset, done = counts.dead, 0, 0
    while left > 0 and done < most:
        page: Paged = yield model.call(Page("dead", offset, min(PIECE, left, most - done)))
        if not page.jobs:
            break
        jobs = page.jobs
        if wanted is not None:
            infos = yield from _looking(model, jobs, "dead")
            jobs = tuple(info.id for info in infos if info.name == wanted)
        items = (yield from _alter("requeue", jobs, "dead")) if jobs else ()
        back = sum(item.done for item in items)
        done += back
        left -= len(page.jobs)
        offset += len(page.jobs) - back
    return done


def _state(value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise Malformed("state", value, f"one of {', '.join(allowed)}")
    return value
