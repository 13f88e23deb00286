"""Replies in a few words, for the trace and for the counts that show what a run has met."""

from __future__ import annotations

from chaos.simulate.server import Delivery
from engine.ops.admin import (
    Administered,
    Alter,
    AlteredJobs,
    Clean,
    Cleaned,
    Forget,
    Forgotten,
    Pause,
    Resume,
    Revive,
    SetHistory,
    SetLimit,
    SetRetention,
)
from engine.ops.base import Operation
from engine.ops.claims import (
    Bury,
    Claimed,
    Drop,
    Ended,
    Extend,
    Extended,
    Finish,
    FinishedAndClaimed,
    Mark,
    Marked,
    ReapLost,
    Release,
    Retry,
    Sweep,
    Swept,
)
from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease
from engine.ops.looks import Look, Seen
from engine.ops.schedules import ScheduleChanged, Tick, Ticked
from engine.ops.workers import AcquireLock, Beat, Beaten, ExtendLock, LockReply, ReleaseLock, RunTimesReported


def leases_of(operation: Operation) -> tuple[Lease, ...]:
    """The leases that an operation names."""
    match operation:
        case Finish() | Release() | Extend() | Drop():
            return operation.leases
        case Retry() | Bury():
            return tuple(failure.lease for failure in operation.failures)
        case Mark():
            return (operation.lease,)
        case _:
            return ()


def jobs_of(delivery: Delivery) -> tuple[str, ...]:
    """Ids that a delivery is about."""
    operation, reply = delivery.operation, delivery.reply
    ids = [lease.job for lease in leases_of(operation)]
    if isinstance(operation, Enqueue):
        ids.append(operation.job)
    elif isinstance(operation, EnqueueMany):
        ids += [job.job for job in operation.jobs]
    elif isinstance(operation, Alter | Revive):
        ids += operation.jobs
    elif isinstance(operation, AcquireLock | ExtendLock | ReleaseLock):
        ids.append(operation.name)
    elif isinstance(operation, Look):
        ids.append(operation.job)
    ids.append(getattr(operation, "schedule", ""))
    claimed = reply.claimed if isinstance(reply, FinishedAndClaimed) else reply
    if isinstance(claimed, Claimed):
        ids += [job.lease.job for job in claimed.jobs] + list(claimed.corrupt)
    elif isinstance(reply, Swept):
        ids += [lease.job for lease, _ in reply.leases] + list(reply.buried) + list(reply.corrupt)
        ids += [member[10:] for member in delivery.before.zset("due") if member not in delivery.after.zset("due")]
    elif isinstance(reply, Ticked):
        ids += reply.jobs
    elif isinstance(operation, Clean):
        ids += [name[4:] for name in delivery.after.changed if name.startswith("job:")]
    return tuple(dict.fromkeys(job for job in ids if job))


def results_of(delivery: Delivery) -> list[str]:
    """What the counts call each result of a reply."""
    operation, reply = delivery.operation, delivery.reply
    name = type(operation).__name__.lower()
    match reply:
        case Enqueued():
            return [f"enqueue {reply.result}"]
        case EnqueuedMany():
            return [f"enqueue {item.result}" for item in reply.items]
        case FinishedAndClaimed():
            return [f"finish {result}" for result, _ in reply.finished.items] + _claim_results(reply.claimed)
        case Claimed():
            return _claim_results(reply)
        case Ended() if isinstance(operation, Drop):
            return [f"drop {result if result != 'ok' else outcome}" for result, outcome in reply.items]
        case Ended():
            return [f"{name} {result}" + (" buried" if outcome == "buried" else "") for result, outcome in reply.items]
        case Extended():
            return [f"extend {result}" for result, _ in reply.items]
        case Marked():
            return [f"mark {reply.result}"]
        case AlteredJobs(result="done") if isinstance(operation, Alter):
            return [f"{operation.action} {item.result}" for item in reply.items]
        case AlteredJobs(result="done"):
            return [f"revive {item.result}" for item in reply.items]
        case Ticked():
            return [f"tick {reply.result}"] + ["tick passed by"] * (reply.skipped > 0)
        case LockReply():
            return [f"{name.replace('lock', ' lock')} {reply.result}"]
        case Seen():
            return [f"look {reply.state}{' with a record' if reply.record else ''}"]
        case Beaten() | RunTimesReported():
            return [f"{name} {reply.result}"]
        case Cleaned(removed=0):
            return ["clean found none"]
        case Cleaned():
            return [f"clean {reply.result}"]
        case Forgotten() if isinstance(operation, Forget):
            return [f"obliterate {'busy' if reply.busy else operation.phase + ' ' + reply.result}"]
        case Administered():
            return [f"administration {reply.result}"]
        case Swept():
            taken = "orphan taken" if isinstance(operation, Sweep) and operation.orphans else "reaped"
            taken = "lost taken" if isinstance(operation, ReapLost) else taken
            results = [taken] * len(reply.leases) + ["crash buried"] * len(reply.buried)
            return results + ["promoted"] * reply.promoted + ["corrupt buried"] * len(reply.corrupt)
        case _:
            return []


def tell(delivery: Delivery) -> str:
    """A reply in a few words."""
    operation, reply = delivery.operation, delivery.reply
    match reply:
        case Enqueued():
            return f"{reply.job} {reply.result}"
        case EnqueuedMany():
            return ", ".join(f"{item.job} {item.result}" for item in reply.items)
        case FinishedAndClaimed():
            return f"{_ended(operation, reply.finished)}; {_claimed(reply.claimed)}"
        case Claimed():
            return _claimed(reply)
        case Ended():
            return _ended(operation, reply)
        case Extended():
            pairs = zip(leases_of(operation), reply.items, strict=True)
            return ", ".join(f"{lease.job} {result}" for lease, (result, _) in pairs)
        case Marked():
            return f"{leases_of(operation)[0].job} {reply.result}"
        case AlteredJobs() if isinstance(operation, Alter | Revive):
            said = ", ".join(f"{item.job} {item.result}, was {item.state}" for item in reply.items)
            action = operation.action if isinstance(operation, Alter) else "revive"
            return f"{action} {reply.result}: {said or ' '.join(operation.jobs)}"
        case ScheduleChanged():
            return f"{reply.result}: {getattr(operation, 'schedule', '')} {reply.found}"
        case Ticked() if isinstance(operation, Tick):
            return f"{reply.result} {operation.expected_ms} {' '.join(reply.jobs)}, {reply.skipped} skipped"
        case LockReply() if isinstance(operation, AcquireLock | ExtendLock | ReleaseLock):
            return f"{operation.name} {reply.result} until {reply.until_ms}, fence {reply.fence}, {operation.token}"
        case Seen() if isinstance(operation, Look):
            return f"{operation.job} {reply.state} {reply.record.decode()}".rstrip()
        case Beaten() if isinstance(operation, Beat):
            role = ", leads" * reply.leads + ", orphans" * reply.orphaned
            return f"{reply.result}{role}" if operation.until_ms else f"{reply.result}: leaves{role}"
        case Cleaned() if isinstance(operation, Clean):
            return f"{reply.result}: {reply.removed} {operation.state} removed, {reply.kept} kept"
        case Forgotten() if isinstance(operation, Forget):
            return f"{reply.result}: obliterate {operation.phase}{', busy' * reply.busy}"
        case Administered():
            return f"{reply.result}: {_asked(operation)}"
        case Swept():
            taken = [f"{lease.job} taken, {crashes} crashes" for lease, crashes in reply.leases]
            promoted = [f"{reply.promoted} promoted"] if reply.promoted else []
            return ", ".join(taken + [f"{job} buried" for job in reply.buried] + promoted)
        case _:
            return ""


def _ended(operation: Operation, reply: Ended) -> str:
    pairs = zip(leases_of(operation), reply.items, strict=True)
    return ", ".join(f"{lease.job} {result} {outcome}".rstrip() for lease, (result, outcome) in pairs)


def _asked(operation: Operation) -> str:
    match operation:
        case Pause():
            return f"pause {operation.class_name} for {operation.length_ms or 'ever'}"
        case Resume():
            return f"resume {operation.class_name}"
        case SetLimit(limit=limit, target=target) if limit is not None:
            return f"{target}: {limit.concurrency} at once, {limit.rate} in {limit.per_ms} ms {limit.window}"
        case SetLimit():
            return f"{operation.target}: no limit"
        case SetHistory():
            return f"history {operation.rule.words or 'off'}"
        case SetRetention():
            return "retention " + " ".join(f"{name} {value}" for name, value in operation.bounds)
        case _:
            return ""


def _claim_results(reply: Claimed) -> list[str]:
    return [f"claim {reply.result}"] + ["corrupt buried"] * len(reply.corrupt)


def _claimed(reply: Claimed) -> str:
    jobs = " ".join(f"{job.lease.job}@{job.lease.fence % 10_000_000}" for job in reply.jobs)
    return f"{reply.result} {jobs}".rstrip()
