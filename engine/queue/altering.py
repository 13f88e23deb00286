"""The steps of admin actions on single jobs, without I/O: cancel, remove, requeue and the like (rules 7 and 26).

What is done to a job names the state that it was seen in: it is looked at first, and when its state has changed meanwhile, once
more. A late copy of a call finds another state, or its own record, and changes nothing.
"""

from __future__ import annotations

from engine.errors import Malformed, ScriptFault
from engine.models.model import Model
from engine.ops.admin import AdminAction, Alter, Altered, AlteredJobs
from engine.ops.looks import Inspect, Inspected
from engine.queue import administering
from engine.queue.steps import DeadlineBound, Steps

#: States in which a job may be for each action.
ALLOWED: dict[AdminAction, tuple[str, ...]] = {
    "cancel": ("waiting", "blocked", "delayed", "active"),
    "remove": ("waiting", "blocked", "delayed", "dead", "finished"),
    "discard": ("dead",),
    "requeue": ("dead",),
    "run_now": ("delayed",),
}
LISTED = ("waiting", "blocked", "delayed", "active", "stuck", "dead", "finished")
#: Jobs of one call at most.
PIECE = 100
#: Looks at a job whose state changes all the time.
_TRIES = 5


def altering(model: Model, action: AdminAction, job: object, expected_state: object) -> Steps[Altered]:
    """Do something to one job, if it is in a state that allows it. Raises Malformed."""
    checked = model.names.known_id(job)
    expected = None if expected_state is None else check_state(expected_state, ALLOWED[action])
    altered: Altered | None = None
    for _ in range(_TRIES):
        state = expected
        if state is None:
            reply: Inspected = yield model.call(Inspect((checked,), whole=False))
            state = reply.items[0].state
        if state not in ALLOWED[action]:
            return Altered(checked, "changed", state)
        (altered,) = yield from alter(action, (checked,), state)
        if expected is not None or altered.result != "changed":
            break
    if altered is None:
        raise ScriptFault(f"{action}: a reply without the job")
    return altered


def alter(action: AdminAction, jobs: tuple[str, ...], state: str) -> Steps[tuple[Altered, ...]]:
    """Do something to at most `PIECE` jobs, as far as they are in this state; what came of each, in their order."""
    op_id = administering.new_op_id()

    def operation(not_after_ms: int) -> Alter:
        return Alter(op_id, not_after_ms, action, jobs, state)

    sent = yield DeadlineBound(operation)
    administering.conclude(sent)
    if not isinstance(sent.reply, AlteredJobs) or len(sent.reply.items) != len(jobs):
        raise ScriptFault(f"{action}: a reply of type {type(sent.reply).__name__}")
    return sent.reply.items


def check_state(value: object, allowed: tuple[str, ...]) -> str:
    """A state of these. Raises Malformed."""
    if not isinstance(value, str) or value not in allowed:
        raise Malformed("state", value, f"one of {', '.join(allowed)}")
    return value
