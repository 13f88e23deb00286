"""Invariants of schedules (rule 24): each tick makes its job once, and the next one only ever comes later."""

from __future__ import annotations

import math

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import Found
from engine.operations import Tick


def check_cron_keys(state: State) -> None:
    """The index of the schedules says when each of them ticks."""
    index = state.zset("cron")
    for name in state.names("cron:"):
        fields, schedule = state.table(name), name[5:]
        ticks = fields["enabled"] == "1" and fields["next_ms"] != "0"
        wanted = float(fields["next_ms"]) if ticks else math.inf
        if index.get(schedule) != wanted:
            raise Found("schedule", f"{schedule} ticks at {wanted:.0f}, its index says {index.get(schedule)}", (schedule,))


def check_cron(delivery: Delivery, book: Book, *, clock_runs: bool) -> None:
    """What a tick does to its schedule and to the jobs."""
    operation, before, after = delivery.operation, delivery.before, delivery.after
    if not isinstance(operation, Tick):
        return
    schedule, name = operation.schedule, "cron:" + operation.schedule
    born = [job[4:] for job in after.changed if job.startswith("job:" + name + ":") and before.job(job[4:]) is None]
    # After a failover the same fields may come in another order.
    if name not in after.changed or before.table(name) == after.table(name):
        if born:
            raise Found("tick", f"a late tick of {schedule} has made {born[0]}", (schedule, *born))
        return
    old, new = before.table(name), after.table(name)
    if not old or old["version"] != operation.version or old["enabled"] != "1" or int(old["next_ms"]) != operation.expected_ms:
        raise Found("tick", f"{schedule} is moved on by a tick that it does not wait for", (schedule, *born))
    if int(new["next_ms"]) <= int(old["next_ms"]) and not new["error"]:
        raise Found("tick", f"the next tick of {schedule} is no later than the one before", (schedule, *born))
    if int(new.get("count", 0)) - int(old.get("count", 0)) != len(born) and clock_runs:
        raise Found(
            "tick", f"{schedule} counts other jobs than {', '.join(born) or 'none'}, which its tick has made", (schedule,)
        )
    for job in born:
        tick_ms = int(job.rpartition(":")[2])
        if tick_ms not in operation.ticks_ms or tick_ms > delivery.now_ms:
            raise Found("tick", f"{job} is made and is not of a tick that has come", (schedule, job))
        if job in book.ticked and clock_runs:
            raise Found("tick twice", f"{job} is made for the second time", (schedule, job))
        book.ticked.add(job)
