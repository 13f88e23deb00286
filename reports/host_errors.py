"""The intervals of calls on other hosts than the harness's, widened by the error of their clocks.

A call happened between its send and its answer, so the send is taken to be as early, and the answer as late, as they can be. A
handler's instants are both taken as early as can be: it ends before its worker sends the call that ends the lease. What a call on
such a host took is longer then by twice the error; the lag of a send stays as it was. Within one process the order of a call that
followed an answer is lost by that: `in_turn_ns` restores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import Column


def widened(run: Run) -> dict[str, Column]:
    """Columns of a row of the history, by name; none where all times are of one host."""
    known = [host for host in run.hosts if host.error_ns]
    if not known:
        return {}
    error_ns = F.lit(0)
    for host in known:
        error_ns = F.when(F.col("source").isin(*host.files), F.lit(host.error_ns)).otherwise(error_ns)
    handled = F.coalesce(F.col("f") == "handle", F.lit(False))
    early = {name: F.col(name) - error_ns for name in ("intended_ns", "first_send_ns", "last_send_ns")}
    return {**early, "done_ns": F.col("done_ns") + F.when(handled, -error_ns).otherwise(error_ns)}


def in_turn_ns(run: Run) -> Column:
    """When a call was sent, to be ordered by with the answers of its own process: as much later as those were taken to be."""
    later_ns = F.lit(0)
    for host in run.hosts:
        names = [process.name for process in run.processes if process.file in host.files]
        later_ns = F.when(F.col("proc").isin(*names), F.lit(2 * host.error_ns)).otherwise(later_ns) if host.error_ns else later_ns
    return F.col("first_send_ns") + later_ns
