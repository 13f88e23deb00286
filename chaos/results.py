"""Results of finished jobs, read as any caller reads them, when the queue has been drained: rows of the harness's history."""

from __future__ import annotations

import time
from collections.abc import Iterable

from chaos import rows
from engine import EngineError, Queue
from record.history import HistoryFile
from record.recorder import result_crc

#: So many results are read, spread evenly over the finished jobs that are listed: a round trip each.
RESULTS_MAX = 500


def read(queue: Queue, harness: HistoryFile, finished: Iterable[str]) -> str:
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
