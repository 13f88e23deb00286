"""The steps that remove many jobs, in bounded pieces: clean, drain and obliterate, without I/O (rule 7).

Each work has an era: the last sequence and the time when it began. What was enqueued or ended later stays, so neither a busy
producer nor a late copy of a call makes it delete a newer job. One that was interrupted is simply begun again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from engine import validate
from engine.errors import Malformed, ScriptFault
from engine.ops.admin import Clean, Cleaned, Era, Forget, Forgotten
from engine.queue import administering
from engine.queue.steps import DeadlineBound, Steps

CLEANED = ("waiting", "blocked", "delayed", "dead", "finished")
#: Jobs that one call looks at: to remove one takes the server some 25 us.
PIECE = 100
#: In the order of time where the model keeps them so: behind the first young one there are only younger ones.
_TIMED = ("dead", "finished")
_ROUNDS = 100
#: In the order in which jobs go from state to state while nothing starts, so that none slips through between two of them.
_MOVING = ("active", "blocked", "delayed", "waiting", "dead", "finished")


def cleaning(state: object, older_than_ms: object, limit: object) -> Steps[int]:
    """Remove the jobs of one state that are old enough. Returns how many. Raises Malformed."""
    if not isinstance(state, str) or state not in CLEANED:
        raise Malformed("state", state, f"one of {', '.join(CLEANED)}")
    age_ms = validate.duration_ms("older_than_ms", older_than_ms, 0, validate.DURATION_MS_MAX)
    most = validate.integer("limit", limit, 1, 2**48)
    removed, _ = yield from _clean(state, age_ms, most, None)
    return removed


def draining(delayed: object) -> Steps[int]:
    """Remove the jobs that wait. Returns how many. Raises Malformed."""
    also = ("blocked", "delayed") if validate.truth("delayed", delayed) else ()
    removed, era = yield from _clean("waiting", 0, 2**48, None)
    for state in also:
        more, _ = yield from _clean(state, 0, 2**48, era)
        removed += more
    return removed


def obliterating(force: object) -> Steps[bool]:
    """Remove everything. Returns False, with nothing removed, when jobs are leased. Raises Malformed."""
    force = validate.truth("force", force)
    begun = yield from _forget("begin", force)
    if begun.busy:
        return False
    # Jobs move from state to state meanwhile: it ends with a round that finds none.
    for _ in range(_ROUNDS):
        removed = 0
        for state in _MOVING if force else _MOVING[1:]:
            # Nothing starts meanwhile; and what has finished since it began, of jobs that were in hand, goes too.
            held = yield from _forget("begin", force)
            if held.busy:
                return False
            if begun.era and held.era:
                begun = replace(begun, era=Era(begun.era.sequence, held.era.at_ms))
            some, _ = yield from _clean(state, 0, 2**48, begun.era)
            removed += some
        if not removed:
            break
    yield from _forget("end", force)
    return True


def _clean(state: str, age_ms: int, most: int, era: Era | None) -> Steps[tuple[int, Era | None]]:
    removed = offset = 0
    while removed < most:
        sent = yield DeadlineBound(_piece(state, age_ms, era, offset, most - removed))
        administering.conclude(sent)
        reply = sent.reply
        if not isinstance(reply, Cleaned):
            raise ScriptFault(f"clean: a reply of type {type(reply).__name__}")
        era = reply.era
        removed += reply.removed
        offset += reply.kept
        if not reply.removed + reply.kept or (reply.kept and state in _TIMED and reply.ordered):
            break
    return removed, era


def _piece(state: str, age_ms: int, era: Era | None, offset: int, most: int) -> Callable[[int], Clean]:
    """The operation of one piece. It keeps its identity when it is sent again after it came late."""
    op_id = administering.new_op_id()
    return lambda not_after_ms: Clean(op_id, not_after_ms, state, age_ms, era, offset, PIECE, most)


def _forget(phase: Literal["begin", "end"], force: bool) -> Steps[Forgotten]:
    """Begin or end, with as many calls as it takes. Returns the reply of the first one, or the one that says busy."""
    first: Forgotten | None = None
    while True:
        reply = yield from _forget_piece(phase, force)
        first = first or reply
        if reply.busy or not reply.more:
            return reply if reply.busy else first


def _forget_piece(phase: Literal["begin", "end"], force: bool) -> Steps[Forgotten]:
    op_id = administering.new_op_id()

    def operation(not_after_ms: int) -> Forget:
        return Forget(op_id, not_after_ms, phase, force)

    sent = yield DeadlineBound(operation)
    administering.conclude(sent)
    if not isinstance(sent.reply, Forgotten):
        raise ScriptFault(f"obliterate: a reply of type {type(sent.reply).__name__}")
    return sent.reply
