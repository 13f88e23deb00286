"""What is there in the end: which job is in which state, and results of finished ones, as rows of the harness's history."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from chaos import rows
from engine import Counts, EngineError, Queue, Snapshot
from record.history import HistoryFile
from record.recorder import result_crc

STATES = ("waiting", "delayed", "active", "dead", "done", "blocked")

#: States in which a job still has to run.
OPEN_STATES = ("waiting", "delayed", "active", "blocked")

#: `Queue.snapshot` lists this many jobs of a state at one instant; what is beyond it comes later.
PAGE = 1_000

#: A queue that moves is listed again, at most this often and for this long.
TRIES = 20
TRIES_S = 5.0


@dataclass(frozen=True, slots=True)
class Look:
    """A listing between two counts of the same queue."""

    before: Counts
    listing: Snapshot
    after: Counts

    def listed(self, state: str) -> list[tuple[str, int]]:
        """Jobs of the state and the time that scores them."""
        return self.listing.states.get(state, [])

    def count(self, state: str) -> int:
        """The state's total as the queue counts it. While it moves, any number between the two counts may be what was listed."""
        bounds = sorted((getattr(self.before, state), getattr(self.after, state)))
        return min(max(len(self.listed(state)), bounds[0]), bounds[1])

    def whole(self) -> bool:
        """True when every state is listed in full; `done` may lose its oldest jobs while it is listed."""
        return all(len(self.listed(state)) == self.count(state) for state in STATES if state != "done")

    def one_instant(self) -> bool:
        """True when the listing can be taken for what the queue was at one instant.

        That holds for a queue that nobody moved, and for one page. Of further pages only `done` may have some, as it only gains
        jobs; but a job that finished meanwhile is then listed twice.
        """
        ids = [[job for job, _ in self.listed(state)] for state in STATES]
        if any(len(set(jobs)) < len(jobs) for jobs in ids):
            # Its rank changed between two pages, so another job was skipped.
            return False
        if replace(self.before, srv_us=0) == replace(self.after, srv_us=0):
            return True
        sizes = [max(len(self.listed(s)), getattr(self.before, s), getattr(self.after, s)) for s in STATES if s != "done"]
        return max(sizes) < PAGE and len(set(chain(*ids))) == sum(map(len, ids))


def take(queue: Queue, harness: HistoryFile, name: str) -> str:
    """Record every job of the queue under the snapshot's name (`deadline`, `give-up` or `end`). Raises EngineError.

    Returns a complaint, empty when all went well. A listing that mixes instants is not recorded: in it a job that moved may be
    missing or listed twice, and the judge would take both for the engine's doing.
    """
    deadline_s = time.monotonic() + TRIES_S
    for _ in range(TRIES):
        t_ns = time.monotonic_ns()
        look = Look(queue.counts(), queue.snapshot(), queue.counts())
        if (look.one_instant() and look.whole()) or time.monotonic() >= deadline_s:
            break
    if not look.one_instant():
        total = sum(look.count(state) for state in OPEN_STATES)
        return f"the snapshot {name!r} was not taken: the queue kept moving while its {total} open jobs were listed"
    for state in STATES:
        row = rows.final(name, state=state, count=look.count(state), jobs=look.listed(state), srv_us=look.listing.srv_us)
        harness.append(row, t_ns=t_ns)
    return ""


def drained(queue: Queue) -> bool:
    """True when no job is left that still has to run. Raises EngineError."""
    counts = queue.counts()
    return not any(getattr(counts, state) for state in OPEN_STATES)


#: So many results are read, spread evenly over the finished jobs that are listed: a round trip each.
RESULTS_MAX = 500


def read_results(queue: Queue, harness: HistoryFile, finished: Iterable[str]) -> str:
    """Ask the queue for results of these jobs, and record what it says. Returns a complaint, empty when all went well."""
    jobs = sorted(finished)
    for number, job in enumerate(jobs[:: -(-len(jobs) // RESULTS_MAX) or 1]):
        first_send_ns = time.monotonic_ns()
        try:
            found = queue.results.get(job)
        except EngineError as error:
            return f"the result of {job} could not be read: {error}"
        crc = None if found is None or found.value is None else result_crc(found.value)
        outcome = None if found is None else found.outcome
        times = (first_send_ns, time.monotonic_ns())
        harness.append([rows.result(f"harness-result-{number}", job, outcome=outcome, crc=crc, times_ns=times)])
    return ""
