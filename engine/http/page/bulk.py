"""One action on many jobs: how many it would change, counted one look at a time, and the action itself, in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from engine.errors import Malformed
from engine.http.page.views.jobs import OFFSET_MAX, Filter, matching
from engine.ops.admin import AdminAction, Alter
from engine.ops.looks import Counts
from engine.queue import admin
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.asynchronous.sharded import AsyncShardedQueue
from engine.queue.looks import PLACES_MAX

#: Actions on many jobs, by the state that the jobs are in.
ACTIONS: Mapping[str, tuple[AdminAction, ...]] = {
    "dead": ("requeue", "discard"),
    "delayed": ("run_now", "cancel"),
    "waiting": ("cancel",),
    "blocked": ("cancel",),
}
#: Jobs that one request changes, and that it looks at for that.
CHANGED_MAX = 10_000
_LOOKED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Count:
    """How many of the `seen` first jobs of a state are meant; `next` is the cursor of the next look, None at the end. `cut`:
    there are more jobs than are counted."""

    matched: int
    seen: int
    next: int | None
    cut: bool


def action_of(value: str, state: str) -> AdminAction:
    """An action on jobs in this state. Raises Malformed."""
    known = {str(action): action for action in get_args(AdminAction)}
    if value not in ACTIONS.get(state, ()):
        raise Malformed("action", value, f"one of {', '.join(ACTIONS.get(state, ()))}" if state in ACTIONS else "left out here")
    return known[value]


async def count(queue: AsyncQueue, wanted: Filter, before: Count, *, payloads: bool) -> Count:
    """Look at some more jobs. Two calls."""
    found = await queue.jobs.page(wanted.state, offset=before.next or 0, limit=PLACES_MAX)
    matched = before.matched + len(matching(found, wanted, payloads=payloads))
    cut = found.next is not None and found.next > OFFSET_MAX
    return Count(matched, before.seen + found.looked, None if cut else found.next, cut)


async def change(queue: AsyncQueue, action: AdminAction, wanted: Filter, most: int, *, payloads: bool) -> int:
    """Do something to the jobs that are meant, at most so many; how many it was done to. Each job is looked at once."""
    if not isinstance(queue, AsyncShardedQueue):
        return await _change(queue, action, wanted, most, payloads=payloads)
    done = 0
    for shard in await queue.in_use():
        done += await _change(shard, action, wanted, most - done, payloads=payloads)
    return done


async def _change(queue: AsyncQueue, action: AdminAction, wanted: Filter, most: int, *, payloads: bool) -> int:
    # What comes back into the state meanwhile, as a dead job that was requeued and died again, is not changed twice.
    left = min(_LOOKED_MAX, _in_state(await queue.counts(one_call=True), wanted.state))
    done = offset = 0
    while left > 0 and done < most:
        found = await queue.jobs.page(wanted.state, offset=offset, limit=min(admin.PIECE, left))
        if not found.looked:
            break
        meant = matching(found, wanted, payloads=payloads)
        jobs = tuple(job.id for job in meant)[: most - done]
        items = (await queue.do(Alter(action, jobs, wanted.state))).items if jobs else ()
        changed = sum(item.done for item in items)
        done += changed
        left -= found.looked
        offset += found.looked - changed
    return done


def _in_state(counts: Counts, state: str) -> int:
    """How many jobs are in a state; of the waiting ones only some lanes are counted."""
    return {"dead": counts.dead, "delayed": counts.delayed, "blocked": counts.blocked}.get(state, _LOOKED_MAX)
