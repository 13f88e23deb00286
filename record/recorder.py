"""The observer that writes history rows, and the sink that handlers write to (rules 29 to 31).

Rows are formatted by hand: `json.dumps` for each row cost more than the engine itself. Names and ids are
checked at the queue's door to need no escaping; texts of errors are escaped.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import engine
from engine.job import Job
from engine.observer import Intended, Outcome, ServerIdentity
from engine.ops.base import Call, Operation
from engine.ops.claims import (
    Bury,
    Claim,
    Claimed,
    Drop,
    Ended,
    Extend,
    Extended,
    Failure,
    Finish,
    FinishedAndClaimed,
    LeasedJob,
    Mark,
    Marked,
    ReapLost,
    Release,
    Retry,
    Sweep,
    Swept,
)
from engine.ops.jobs import Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease, Options
from engine.ops.schedules import Tick, Ticked
from engine.redis.endpoint import DEADLINE_MS
from record.history import HistoryFile, text

_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=: |:?$)", re.ASCII)


class Ticket:
    """The fields that an invoke row shares with its completion row."""

    __slots__ = ("each_intended_ns", "intended_ns", "rows")

    def __init__(self, rows: list[tuple[str, Operation]], intended_ns: Intended) -> None:
        self.rows = rows
        #: Of each job, where several callers' jobs share the call; of the call, the earliest of them.
        self.each_intended_ns = intended_ns if isinstance(intended_ns, tuple) else ()
        known = [each_ns for each_ns in self.each_intended_ns if each_ns is not None]
        self.intended_ns = min(known) if isinstance(intended_ns, tuple) else intended_ns


class Recorder:
    """Writes the operations of one queue to the history file of its process. `private`: of what handlers
    raise it writes the type alone, because the text may have what the job was about."""

    def __init__(self, file: HistoryFile, *, queue: str, private: bool = False) -> None:
        self.file = file
        self._queue = queue
        self._private = private
        self._offsets = ClockOffsets(file)
        self._numbers = itertools.count()
        #: The url that the calls of the queue go to in place of its own (see `engine.observer`).
        self.leads_to: str | None = None
        self.under = ""

    def of(self, queue: str) -> Recorder:
        """The recorder of another queue, for the same file."""
        made = copy.copy(self)
        made._queue = queue
        return made

    def close(self) -> None:
        """Write the closing row."""
        if not self.file.broken:
            self._offsets.end()
        self.file.close()

    def connected(self, server: ServerIdentity) -> None:
        """Write a connection row: the server and its era."""
        self.file.append(
            [
                f'"kind":"connection","server_run_id":{text(server.run_id)},"replid":{text(server.replid)},'
                f'"server_role":{text(server.role)}'
            ]
        )

    def configured(self, config: Mapping[str, object]) -> None:
        """Write a configuration row."""
        self.file.append(
            [f'"kind":"configuration","config":{text(json.dumps(dict(config), sort_keys=True))}']
        )

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """Write the invoke rows of a call, all in one write before it is sent. A fused call has two rows with
        one call id."""
        parts = _parts(call.operation)
        if not parts:
            return None
        if self._private:
            parts = [(name, _without_texts(part)) for name, part in parts]
        number = next(self._numbers)
        rows = [
            (
                f'"kind":"operation","f":"{name}","op":"{self.file.proc}-{number}.{at}",'
                f'"call":"{self.file.proc}-{number}",'
                f'"queue":"{self._queue}"{_claim_fields(part)}',
                part,
            )
            for at, (name, part) in enumerate(parts)
        ]
        ticket = Ticket(rows, intended_ns)
        times = f'{_intended(ticket.intended_ns)},"first_send_ns":{first_send_ns}'
        self.file.append(
            [f'{row},"type":"invoke"{times},"items":[{_invoke_items(part, ticket)}]' for row, part in rows]
        )
        return ticket

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """Write the completion rows of a call: they repeat the invoke's fields and add what came of it."""
        if not isinstance(ticket, Ticket):
            return
        srv_us = getattr(outcome.reply, "srv_us", None)
        tail = (
            f'{_intended(ticket.intended_ns)},"first_send_ns":{outcome.first_send_ns},'
            f'"last_send_ns":{outcome.last_send_ns},'
            f'"done_ns":{outcome.done_ns},"sends":{outcome.sends},'
            f'"errors":[{",".join(map(text, outcome.errors))}]'
        )
        if srv_us is not None:
            tail += f',"srv_us":{srv_us}'
        bodies: list[str] = []
        for row, part in ticket.rows:
            if outcome.reply is None:
                kind = "fail" if outcome.applied is False else "info"
                bodies.append(
                    f'{row},"type":"{kind}","error":{text(outcome.error)}{tail},'
                    f'"items":[{_invoke_items(part, ticket)}]'
                )
            else:
                kind, result, items = _reply(part, outcome.reply, outcome.definite, ticket)
                bodies.append(f'{row},"type":"{kind}","result":"{result}"{tail},"items":[{items}]')
        self.file.append(bodies)
        self.measured(outcome)

    def measured(self, outcome: Outcome) -> None:
        """An answered call measures the clock. One that was sent again says less: any of its copies may have
        been answered."""
        srv_us = getattr(outcome.reply, "srv_us", None)
        if srv_us and outcome.sends == 1 and not self.file.broken:
            self._offsets.learn(outcome.first_send_ns, outcome.done_ns, srv_us)

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        """Write the invoke row of a run."""
        row = (
            f'"kind":"operation","f":"handle","op":"{self.file.proc}-{next(self._numbers)}.0",'
            f'"queue":"{self._queue}"'
        )
        timeout = f',"timeout_ms":{job.options.timeout_ms}' if job.options.timeout_ms else ""
        item = f'{_token(job.lease)},"name":"{job.name}"{timeout}'
        self.file.append([f'{row},"type":"invoke","first_send_ns":{start_ns},"items":[{{{item}}}]'])
        return f"{row}|{item}"

    def handler_ended(
        self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None
    ) -> None:
        """Write the completion row of a run: ok when the handler returned, fail when it raised."""
        row, item = str(ticket).split("|", 1)
        kind = "ok" if error is None else "fail"
        if error is not None and self._private:
            error = _type_of(error)
        reason = "" if error is None else f',"error":{text(error)}'
        self.file.append(
            [
                f'{row},"type":"{kind}","first_send_ns":{start_ns},"done_ns":{end_ns}{reason},'
                f'"items":[{{{item}{reason}}}]'
            ]
        )


class Sink:
    """The second witness: handlers append one row for each effect, independent of Redis and of the engine's
    own rows."""

    def __init__(self, path: Path, *, proc: str) -> None:
        self._file = HistoryFile(path, proc=proc, role="sink", version=engine.__version__)

    def write(self, job: Job, result: object = None) -> None:
        """Record that the handler of this job took effect under this token, and the result that it will
        return."""
        item = (
            f'"job":"{job.id}","fence":{job.fence},"nonce":"{job.nonce}",'
            f'"crc":{zlib.crc32(job.payload_bytes)}'
        )
        returned = "" if result is None else f',"result_crc":{result_crc(result)}'
        self._file.append([f'"kind":"effect","items":[{{{item}{returned}}}]'])

    def clock(self) -> None:
        """Record what the wall clock of this process shows."""
        self._file.append([f'"kind":"clock","wall_ns":{time.time_ns()}'])

    def close(self) -> None:
        """Write the closing row."""
        self._file.close()


def result_crc(result: object) -> int:
    """The crc32 of a result as compact JSON, which is how workers send it."""
    return zlib.crc32(json.dumps(result, separators=(",", ":"), ensure_ascii=False).encode())


def _parts(operation: Operation) -> list[tuple[str, Operation]]:
    """The recorded operations inside one call."""
    match operation:
        case Finish(claim=None):
            return [("finish", operation)]
        case Finish(leases=leases, claim=Claim() as claim):
            return [("finish", Finish(leases, values=operation.values)), ("claim", claim)]
        case EnqueueMany():
            return [("enqueue", operation)]
        case Sweep() | ReapLost():
            return [("reap", operation)]
        case Enqueue() | Tick() | Claim() | Retry() | Bury() | Release() | Drop() | Extend() | Mark():
            return [(type(operation).__name__.lower(), operation)]
        case _:
            return []


def _without_texts(operation: Operation) -> Operation:
    """The same operation with the types of its errors alone."""
    if not isinstance(operation, Retry | Bury):
        return operation
    failures = tuple(replace(failure, error=_type_of(failure.error)) for failure in operation.failures)
    return replace(operation, failures=failures)


def _type_of(error: str) -> str:
    """The type that the text of an error begins with; where it is a text alone, that it is one."""
    found = _TYPE.match(error)
    return "an error" if found is None else found[0]


def _intended(intended_ns: int | None) -> str:
    return "" if intended_ns is None else f',"intended_ns":{intended_ns}'


def _token(lease: Lease) -> str:
    return f'"job":"{lease.job}","fence":{lease.fence},"nonce":"{lease.nonce}"'


def _claim_fields(operation: Operation) -> str:
    match operation:
        case Claim():
            return (
                f',"incarnation":"{operation.incarnation}","counter":{operation.counter},'
                f'"lease_ms":{operation.lease_ms}'
            )
        case Extend():
            return f',"lease_ms":{operation.lease_ms}'
        case ReapLost():
            # What tells it from the reap of leases that have run out.
            return f',"incarnation":"{",".join(worker.incarnation for worker in operation.lost)}"'
        case _:
            return ""


def _failure(failure: Failure) -> str:
    return f'{_token(failure.lease)},"error":{text(failure.error)}'


def _retried(failure: Failure) -> str:
    charge = "" if failure.charge else ',"charge":0'
    return f'{_failure(failure)},"delay_ms":{failure.delay_ms}{charge}'


def _new_job(job: Enqueue, given: str = "", intended_ns: int | None = None) -> str:
    """`given`: the id that the server has given to a job that had none. `intended_ns`: when its own caller
    meant to send it."""
    unique = f',"unique":"{job.options.unique}"' if job.options.unique else ""
    dedup = f',"dedup":"{job.options.dedup}"' if job.options.dedup else ""
    needs = ""
    if job.options.needs:
        needs = (
            f',"needs":{json.dumps(job.options.needs)},"on_parent_failure":"{job.options.on_parent_failure}"'
        )
    wants = f',"wants":{json.dumps(job.options.target)}' if job.options.target else ""
    expires = f',"expires_ms":{job.options.expires_ms}' if job.options.expires_ms else ""
    delay_ms, run_at_ms = job.options.delay_ms, job.options.run_at_ms
    # A delay is what checks count with that know this machine's time alone; of the server's time only the
    # deadline of the call is known here, and that errs early.
    at = f',"run_at_ms":{run_at_ms}' if run_at_ms else ""
    delay_ms = max(0, run_at_ms - (job.not_after_ms - DEADLINE_MS)) if run_at_ms else delay_ms
    return (
        f'"job":"{job.job or given}","name":"{job.name}","class":"{job.class_name}","lane":"{job.lane}",'
        f'"priority":{job.options.priority},"delay_ms":{delay_ms},'
        f'"crc":{zlib.crc32(job.payload)}{_retry_policy(job.options)}{at}{unique}{dedup}{needs}{wants}{expires}{_intended(intended_ns)}'
    )


def _retry_policy(options: Options) -> str:
    """How often the job may fail, and how long it waits after that."""
    attempts = f',"attempts":{options.attempts}'
    if options.backoff == "custom" or options.backoff_max_ms:
        return attempts
    least_ms = int(options.backoff_ms * (1 - options.jitter_share))
    return f'{attempts},"backoff":"{options.backoff}","backoff_least_ms":{least_ms}'


def _bodies(operation: Operation) -> list[str]:
    """The inside of one item per job that the operation names."""
    match operation:
        case Tick():
            return [
                (
                    f'"job":"cron:{operation.schedule}:{tick_ms}","schedule":"{operation.schedule}",'
                    f'"tick_ms":{tick_ms}'
                )
                for tick_ms in operation.ticks_ms
            ]
        case Finish():
            crcs = {value.item: f',"result_crc":{zlib.crc32(value.data)}' for value in operation.values}
            return [f"{_token(lease)}{crcs.get(item, '')}" for item, lease in enumerate(operation.leases)]
        case Release() | Drop() | Extend():
            return [_token(lease) for lease in operation.leases]
        case Mark():
            return [_token(operation.lease)]
        case Retry():
            return [_retried(failure) for failure in operation.failures]
        case Bury():
            return [_failure(failure) for failure in operation.failures]
        case _:
            return []


def _invoke_items(operation: Operation, ticket: Ticket) -> str:
    """A job that the server will give an id has none yet: without one nobody could tell whose row it is."""
    if isinstance(operation, Enqueue | EnqueueMany):
        jobs = zip_longest(_new_jobs(operation), ticket.each_intended_ns)
        return ",".join(f"{{{_new_job(job, intended_ns=each_ns)}}}" for job, each_ns in jobs if job.job)
    return ",".join(f"{{{body}}}" for body in _bodies(operation))


def _new_jobs(operation: Operation) -> tuple[Enqueue, ...]:
    match operation:
        case Enqueue():
            return (operation,)
        case EnqueueMany():
            return operation.jobs
        case _:
            return ()


def _reply(operation: Operation, reply: object, definite: bool, ticket: Ticket) -> tuple[str, str, str]:
    """(type, result, items) of an answered operation. What a refusal means is decided by all sends (rule
    31)."""
    refused = "fail" if definite else "info"
    match reply:
        case Enqueued():
            kind = (
                refused
                if reply.result in ("refused", "moved")
                else "fail"
                if reply.result == "orphan"
                else "ok"
            )
            return kind, reply.result, _enqueued_item(_new_jobs(operation)[0], reply, definite)
        case EnqueuedMany():
            # One answer for all: the row fails when nothing of it happened; else the items say what did.
            results = {item.result for item in reply.items}
            kind = refused if results <= {"refused", "moved"} else "ok"
            jobs = zip_longest(_new_jobs(operation), reply.items, ticket.each_intended_ns)
            items = [_enqueued_item(job, item, definite, each_ns) for job, item, each_ns in jobs]
            return kind, results.pop() if len(results) == 1 else "", ",".join(items)
        case Ticked():
            return "ok", reply.result, ",".join(_ticked_items(operation, reply, definite))
        case FinishedAndClaimed():
            return _reply(
                operation, reply.claimed if isinstance(operation, Claim) else reply.finished, definite, ticket
            )
        case Claimed():
            kind = refused if reply.result in ("void", "stale") else "ok"
            result = "leased" if reply.jobs else reply.result
            items = [_claimed_item(job, result) for job in reply.jobs]
            return kind, reply.result, ",".join(items + _buried_items(reply.corrupt, "corrupt"))
        case Ended():
            items = [
                f'{{{body},"result":"{_definite(result, definite)}","outcome":"{outcome}"}}'
                for body, (result, outcome) in zip(_bodies(operation), reply.items, strict=True)
            ]
            return "ok", "", ",".join(items)
        case Extended():
            items = [
                f'{{{body},"result":"{_definite(result, definite)}","deadline_ms":{deadline_ms}}}'
                for body, (result, deadline_ms) in zip(_bodies(operation), reply.items, strict=True)
            ]
            return "ok", "", ",".join(items)
        case Marked():
            return "ok", reply.result, f'{{{_bodies(operation)[0]},"result":"{reply.result}"}}'
        case Swept():
            return "ok", str(reply.promoted), ",".join(_swept_items(reply))
        case _:
            return "ok", "", ""


def _enqueued_item(job: Enqueue, item: Enqueued, definite: bool, intended_ns: int | None = None) -> str:
    holder = f',"holder":"{item.holder}"' if item.holder not in ("", item.job) else ""
    return f'{{{_new_job(job, item.job, intended_ns)},"result":"{_definite(item.result, definite)}"{holder}}}'


def _ticked_items(operation: Operation, reply: Ticked, definite: bool) -> list[str]:
    """One item for each tick: whether this call, by whichever of its copies, made its job."""
    made = {"ticked": "created", "repeated": "repeated"}
    items: list[str] = []
    given = [job for job in reply.jobs if not job.startswith("cron:")]
    for body in _bodies(operation):
        job = body.split('"', 4)[3]
        if given:
            # The server has given this one its id. Of several ticks the first ones make jobs where not all
            # do.
            body, job = body.replace(job, given[0], 1), given.pop(0)
        result = (
            made[reply.result] if job in reply.jobs else "skipped" if reply.result != "moved" else "moved"
        )
        items.append(f'{{{body},"result":"{result if definite or result != "moved" else "unknown"}"}}')
    return items


def _definite(result: str, definite: bool) -> str:
    """A refusal after an unanswered send may follow from that send's own success (rule 5)."""
    return "unknown" if result in ("stale", "void", "refused") and not definite else result


def _swept_items(reply: Swept) -> list[str]:
    """One item for each lease that was reaped, and one without a token for each burial that no lease
    explains."""
    items: list[str] = []
    for lease, crashes in reply.leases:
        how = '"result":"buried","outcome":"buried"' if lease.job in reply.buried else '"result":"reaped"'
        items.append(f'{{{_token(lease)},"crashes":{crashes},{how}}}')
    leased = {lease.job for lease, _ in reply.leases}
    items += _buried_items([job for job in reply.buried if job not in leased], "buried")
    return items + _buried_items(reply.corrupt, "corrupt")


def _buried_items(jobs: Iterable[str], result: str) -> list[str]:
    """Items of jobs that a script buried by itself: without a token, since nobody held them."""
    return [f'{{"job":"{job}","result":"{result}"}}' for job in jobs]


def _claimed_item(job: LeasedJob, result: str) -> str:
    lifo = ',"lifo":1' if job.options.lifo else ""
    return (
        f'{{{_token(job.lease)},"result":"{result}","name":"{job.name}","class":"{job.class_name}",'
        f'"lane":"{job.lane}",'
        f'"priority":{job.options.priority},"due_ms":{job.due_ms},"enqueued_ms":{job.enqueued_ms},'
        f'"deadline_ms":{job.deadline_ms},'
        f'"claims":{job.claims},"failures":{job.failures},"crashes":{job.crashes},'
        f'"crc":{zlib.crc32(job.payload)}{_retry_policy(job.options)}{lifo}}}'
    )


# -- Rows that say how the monotonic clock of a process stands to the server's, so that a judge can
# compare times of several hosts.

#: How often a process writes the best measure of the time since the last one.
PERIOD_NS = 10_000_000_000


class _Measure(NamedTuple):
    round_trip_ns: int
    sent_ns: int
    done_ns: int
    srv_us: int


class ClockOffsets:
    """Writes the `offset` rows of one process: of its first call, of the shortest round trip of every period,
    and of its last call: a clock that jumps after the last measure is not seen to have jumped."""

    def __init__(self, file: HistoryFile, *, period_ns: int = PERIOD_NS) -> None:
        self._file = file
        self._period_ns = period_ns
        self._lock = threading.Lock()
        self._due_ns = 0
        #: Of the calls since the last row.
        self._best: _Measure | None = None
        self._latest: _Measure | None = None

    def learn(self, sent_ns: int, done_ns: int, srv_us: int) -> None:
        """A call was sent once, between these instants of the monotonic clock, and its reply has this server
        time."""
        measure = _Measure(done_ns - sent_ns, sent_ns, done_ns, srv_us)
        with self._lock:
            best = measure if self._best is None else min(self._best, measure)
            if done_ns < self._due_ns:
                self._best, self._latest = best, measure
                return
            self._due_ns = done_ns + self._period_ns
            self._best = self._latest = None
        self._write(best)

    def end(self) -> None:
        """Write what was measured since the last row, before the file is closed."""
        with self._lock:
            left, self._best, self._latest = {self._best, self._latest}, None, None
        for measure in sorted(filter(None, left), key=lambda one: one.done_ns):
            self._write(measure)

    def _write(self, measure: _Measure) -> None:
        _, sent_ns, done_ns, srv_us = measure
        self._file.append(
            [f'"kind":"offset","first_send_ns":{sent_ns},"done_ns":{done_ns},"srv_us":{srv_us}']
        )
