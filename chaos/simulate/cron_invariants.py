"""Invariants of schedules (rule 24): each tick makes its job once, the next one only ever comes later, and jobs of a schedule
live beside each other only where it says that they may."""

from __future__ import annotations

import math

from chaos.simulate.book import Book
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import Found
from engine.ops.admin import Forget
from engine.ops.schedules import RemoveSchedule, Tick, Ticked


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
    if isinstance(operation, RemoveSchedule) and getattr(delivery.reply, "result", "") == "done":
        book.last_ticked.pop(operation.schedule, None)
        # A schedule that is put anew under this name knows nothing of the jobs of the one that was removed.
        book.overlapping.update(_living(after, operation.schedule))
    elif isinstance(operation, Forget) and "cron" not in after.views:
        book.last_ticked.clear()
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
    _overlap(delivery, operation, born, book)


def _overlap(delivery: Delivery, tick: Tick, born: list[str], book: Book) -> None:
    """Which of its ticks make a job: all of them where jobs may overlap; else the first, and only when none before it lives."""
    schedule, reply, before = tick.schedule, delivery.reply, delivery.before
    put = book.schedules.get(schedule)
    if put is None or tick.error or not isinstance(reply, Ticked):
        # After a failover, say, it is not known which policy has made the jobs that live.
        book.last_ticked.pop(schedule, None)
        book.overlapping.update((*born, *_living(before, schedule)))
        return
    overlap, last = put.policy.overlap, book.last_ticked.get(schedule, "")
    # A tick that has made its job makes none again, whatever became of the job.
    made_ms = int(before.table("cron:" + schedule).get("last_ms") or 0)
    names = [f"cron:{schedule}:{tick_ms}" for tick_ms in tick.ticks_ms if not tick_ms <= made_ms <= delivery.now_ms]
    new = [name for name in names if before.job(name) is None]
    if overlap == "allow":
        # From now on the schedule knows the last of them alone.
        book.overlapping.update((*born, *_living(before, schedule)))
        if [name for name in new if name not in born]:
            raise Found("overlap", f"jobs of {schedule} may overlap, and its tick has not made {new[0]}", (schedule, *new))
    else:
        living = [job for job in _living(before, schedule) if job == last or job not in book.overlapping]
        if born and living:
            raise Found(
                "overlap", f"{schedule} makes {born[0]} while {living[0]} lives, and they may not overlap", (*living, *born)
            )
        if len(born) > 1:
            raise Found("overlap", f"{schedule} makes {len(born)} jobs at once, and they may not overlap", tuple(born))
        if new and names[0] == new[0] and not born and last and last not in living:
            raise Found("overlap", f"{last} has ended, and {schedule} makes no job", (schedule, last))
    if reply.jobs:
        book.last_ticked[schedule] = reply.jobs[-1]


def _living(state: State, schedule: str) -> list[str]:
    """Jobs of a schedule that have not ended."""
    dead = state.zset("dead")
    jobs = [(name[4:], state.views[name]) for name in state.names("job:") if name.startswith(f"job:cron:{schedule}:")]
    return [job for job, envelope in jobs if envelope.kind == "J" and job not in dead]
