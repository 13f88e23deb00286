"""Set the plain jobs apart: those that were enqueued once, claimed once, handled, and finished by that lease, without a fault.

Nearly all jobs of a run are plain, and of no plain job has any flag of a check cause to be raised: that is what the conditions
below ensure, one by one. So the aggregates and flags are computed for the other jobs alone, the **eventful** ones, which cost a
hundred times as much each. Of a plain job one row is left, with what the checks that compare jobs with each other need.

A job is eventful as soon as anything about it is not known here: another operation, another answer, a value in a column that no
condition is about. Jobs whose only row is a refusal by a unique key are left out: no flag is about them either.

This is one pass over Arrow batches that hold all rows of a job. It needs only numpy and pyarrow, also on executors of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from reports.arrow import compute as pc
from reports.facts import MS, ROUNDING_MS

#: The rows that a plain job has one of each; it may also have one extend, one caller who was given its result, and be listed as
#: done.
ONE_OF_EACH = ("enqueue", "claim", "handle", "effect", "finish")
AT_MOST_ONE = ("extend", "read")
ANY = ("listed",)

#: Columns of the claim, and columns of the enqueue, that are left of a plain job.
OF_CLAIM = (
    *("job", "proc", "fence", "nonce", "class", "lane", "priority", "claims", "due_ms", "enqueued_ms", "srv_us"),
    *("first_send_ns", "done_ns", "era"),
)
OF_ENQUEUE = ("intended_ns", "delay_ms", "expires_ms", "unique", "needs", "wants", "schedule", "tick_ms", "on_parent_failure")

#: Columns that the conditions below are about, or that mean nothing for a job that is plain otherwise.
KNOWN = {
    *OF_CLAIM,
    *OF_ENQUEUE,
    *("kind", "f", "type", "op", "call", "sends", "srv_from_us", "lease_ms", "result", "outcome", "run_at_ms", "deadline_ms"),
    *("holder", "crc", "crashes", "failures", "attempts", "backoff", "backoff_least_ms", "dedup", "position", "state", "answer"),
    *("snapshot", "result_crc", "timeout_ms"),
}

#: Columns of a plain job beside those of its claim and its enqueue: instants, except for `plain`.
MORE = {
    "plain": pa.bool_(),
    "enqueue_sent_ns": pa.int64(),
    "created_done_ns": pa.int64(),
    "created_srv_us": pa.int64(),
    "started_ns": pa.int64(),
    "handled_ns": pa.int64(),
    "lease_end_ns": pa.int64(),
    "finish_sent_ns": pa.int64(),
    "accepted_done_ns": pa.int64(),
}


def set_apart(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The events of the eventful jobs, `plain` false, and one row per plain job, with the columns `MORE`.

    The batches hold all events of the jobs that are in them.
    """
    received = list(batches)
    if not received:
        return
    events = pa.Table.from_batches(received).combine_chunks()
    jobs = Jobs(events)
    plain = jobs.plain()
    rest = jobs.eventful(plain)
    left = {**{name: rest[name] for name in events.column_names}, **{name: pa.nulls(len(rest), of) for name, of in MORE.items()}}
    left["plain"] = pa.repeat(False, len(rest))
    yield from pa.table(left).to_batches()
    yield from jobs.rows(plain).to_batches()


class Jobs:
    """The events of some jobs, sorted out by what they are. A place is the number of a row, a code the number of a job."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events
        encoded = pc.dictionary_encode(events["job"]).combine_chunks()
        # Rows without a job get the code after the last: they are eventful.
        self.count = len(encoded.dictionary)
        self.codes = np.asarray(pc.fill_null(encoded.indices, self.count))
        self.totals = np.bincount(self.codes, minlength=self.count)[: self.count]
        kinds = self.kinds()
        self.counts = {name: np.bincount(self.codes[mask], minlength=self.count)[: self.count] for name, mask in kinds.items()}
        self.places = {name: self._places(mask) for name, mask in kinds.items()}

    def _places(self, mask: Any) -> Any:
        """For each job the place of its row of a kind; the last one if there are several, and 0 if there is none."""
        places = np.zeros(self.count + 1, np.int64)
        places[self.codes[mask]] = np.flatnonzero(mask)
        return places[: self.count]

    def kinds(self) -> dict[str, Any]:
        """Which rows are what a plain job may have: their own columns are as they should be."""
        ok = self.equal("kind", "operation") & self.equal("type", "ok") & self.valid("first_send_ns", "done_ns")
        ok &= self.at_most("sends", 1)
        token, timed = self.valid("fence", "nonce"), self.valid("srv_us")
        known = ~reduce(np.logical_or, (self.valid(name) for name in set(self.events.column_names) - KNOWN), np.array(False))
        srv_ms = self.numbers("srv_us") // 1_000
        over_ms = self.numbers("deadline_ms") - srv_ms - self.numbers("lease_ms")
        in_time = ~self.valid("deadline_ms", "lease_ms") | (over_ms <= ROUNDING_MS)
        leased = self.equal("result", "leased") & ~self.equal("answer", "repeated") & self.valid("crc") & timed & in_time
        # Claimed for the first time, and not before it was due.
        leased &= self.at_most("claims", 1) & self.at_most("failures", 0) & self.at_most("crashes", 0)
        leased &= srv_ms >= self.numbers("due_ms")
        done = self.equal("result", "ok")
        found = {
            "enqueue": ok & self.equal("f", "enqueue") & self.equal("result", "created") & timed,
            "claim": ok & self.equal("f", "claim") & token & leased,
            "handle": ok & self.equal("f", "handle") & token,
            "effect": self.equal("kind", "effect") & token & self.valid("crc"),
            "finish": ok
            & self.equal("f", "finish")
            & token
            & done
            & (self.equal("outcome", "finished") | ~self.valid("outcome")),
            "extend": ok & self.equal("f", "extend") & token & done & timed & in_time & self.valid("deadline_ms", "lease_ms"),
            "read": ok & self.equal("f", "result") & self.valid("result_crc"),
            "listed": self.equal("kind", "final") & self.equal("state", "done"),
            "refused": ok & self.equal("f", "enqueue") & self.equal("result", "duplicate") & self.valid("holder"),
        }
        return {name: mask & known for name, mask in found.items()}

    def plain(self) -> Any:
        """Codes of the plain jobs."""
        counts = self.counts
        single = reduce(np.logical_and, (counts[name] == 1 for name in ONE_OF_EACH))
        single &= reduce(np.logical_and, (counts[name] <= 1 for name in AT_MOST_ONE))
        nothing_else = self.totals == sum(counts[name] for name in (*ONE_OF_EACH, *AT_MOST_ONE, *ANY))
        codes = np.flatnonzero(single & nothing_else)
        return codes[self._agree(codes)]

    def _agree(self, codes: Any) -> Any:
        """Which of these jobs have rows that agree with each other."""
        enqueue, claim, handle, effect, finish, extend = (self.places[name][codes] for name in (*ONE_OF_EACH, "extend"))
        extended = self.counts["extend"][codes] > 0
        of_lease = ((handle, True), (effect, True), (finish, True), (extend, extended))
        sent_ns, done_ns = self.numbers("first_send_ns"), self.numbers("done_ns")
        agree = np.ones(len(codes), bool)
        for name in ("fence", "nonce"):
            values = self.values(name)
            for places, there in of_lease:
                agree &= (values[places] == values[claim]) | ~np.asarray(there)
        proc, era, crc, result_crc = (self.values(name) for name in ("proc", "era", "crc", "result_crc"))
        agree &= (proc[handle] == proc[claim]) & (proc[effect] == proc[claim]) & (proc[finish] == proc[claim])
        agree &= (era[enqueue] == era[claim]) & (era[finish] == era[claim]) & ((era[extend] == era[claim]) | ~extended)
        # J23: the result of the handler was sent, and given to the caller who asked for it.
        given = self.places["read"][codes]
        agree &= result_crc[effect] == result_crc[finish]
        agree &= (result_crc[given] == result_crc[finish]) | (self.counts["read"][codes] == 0)
        # J16. Whoever ticks a schedule does not see the payload.
        scheduled = self.valid("schedule")[enqueue]
        agree &= (crc[effect] == crc[claim]) & (scheduled | (self.valid("crc")[enqueue] & (crc[enqueue] == crc[claim])))
        # J5, J6, J20, J3: sent before it was claimed, not claimed after its end, finished after its handler, not extended later.
        agree &= (sent_ns[enqueue] < done_ns[claim]) & (sent_ns[claim] <= done_ns[finish]) & (done_ns[handle] <= sent_ns[finish])
        agree &= ~extended | (sent_ns[extend] <= done_ns[finish])
        return agree & self._not_early(enqueue, claim) & self._same_policy(enqueue, claim)

    def _not_early(self, enqueue: Any, claim: Any) -> Any:
        """J8: no claim came before the delay of the enqueue was over, by the server's clock."""
        delay_ms, run_at_ms = self.numbers("delay_ms")[enqueue], self.numbers("run_at_ms")[enqueue]
        from_us = np.where(self.valid("srv_from_us"), self.numbers("srv_from_us"), self.numbers("srv_us"))[enqueue]
        due_ms = np.where(self.valid("run_at_ms")[enqueue], run_at_ms, from_us // 1_000 + delay_ms)
        return (delay_ms <= 0) | (self.numbers("srv_us")[claim] // 1_000 >= due_ms)

    def _same_policy(self, enqueue: Any, claim: Any) -> Any:
        """J7: the claim has the attempts and the back-off of the enqueue, as far as both say them, and attempts are left."""
        attempts, known = self.numbers("attempts"), self.valid("attempts")
        both = known[enqueue] & known[claim]
        same = attempts[enqueue] == attempts[claim]
        for name in ("backoff", "backoff_least_ms"):
            values = self.values(name)
            same &= values[enqueue] == values[claim]
        return (~both | same) & (~known[enqueue] | (attempts[enqueue] > 0))

    def rows(self, plain: Any) -> pa.Table:
        """One row per plain job."""
        enqueue, claim, handle, _, finish, extend = (self.places[name][plain] for name in (*ONE_OF_EACH, "extend"))
        sent_ns, done_ns = self.numbers("first_send_ns"), self.numbers("done_ns")
        last = np.where(self.counts["extend"][plain] > 0, extend, claim)
        left_ms = self.numbers("deadline_ms")[last] - self.numbers("srv_us")[last] // 1_000
        left_ms = np.where(self.valid("deadline_ms")[last], left_ms, np.iinfo(np.int64).max // (2 * MS))
        left_ms = np.minimum(left_ms, np.where(self.valid("lease_ms")[last], self.numbers("lease_ms")[last], left_ms))
        columns: dict[str, Any] = {name: pa.nulls(len(plain), self.events[name].type) for name in self.events.column_names}
        columns |= {name: self.events[name].take(pa.array(claim)) for name in OF_CLAIM}
        columns |= {name: self.events[name].take(pa.array(enqueue)) for name in OF_ENQUEUE}
        instants = {
            "enqueue_sent_ns": sent_ns[enqueue],
            "created_done_ns": done_ns[enqueue],
            "created_srv_us": self.numbers("srv_us")[enqueue],
            "started_ns": sent_ns[handle],
            "handled_ns": done_ns[handle],
            "lease_end_ns": sent_ns[last] + left_ms * MS,
            "finish_sent_ns": sent_ns[finish],
            "accepted_done_ns": done_ns[finish],
        }
        return pa.table({**columns, "plain": pa.repeat(True, len(plain)), **{k: pa.array(v) for k, v in instants.items()}})

    def eventful(self, plain: Any) -> pa.Table:
        """All events of the jobs that are neither plain nor only refused."""
        left_out = np.append((self.counts["refused"] == 1) & (self.totals == 1), False)
        left_out[plain] = True
        return self.events.filter(pa.array(~left_out[self.codes]))

    def valid(self, *names: str) -> Any:
        """Which rows have a value in each of these columns."""
        return reduce(np.logical_and, (np.asarray(pc.is_valid(self.events[name])) for name in names))

    def equal(self, name: str, value: str) -> Any:
        """Which rows have this value."""
        return np.asarray(pc.fill_null(pc.equal(self.events[name], value), False))

    def at_most(self, name: str, most: int) -> Any:
        """Which rows have no greater number."""
        return np.asarray(pc.fill_null(pc.less_equal(self.events[name], most), True))

    def numbers(self, name: str) -> Any:
        """A column of integers, 0 for null."""
        return np.asarray(pc.fill_null(self.events[name], 0), np.int64)

    def values(self, name: str) -> Any:
        """A number for each distinct value of a column; -1 for null."""
        return np.asarray(pc.fill_null(pc.dictionary_encode(self.events[name]).combine_chunks().indices, -1))
