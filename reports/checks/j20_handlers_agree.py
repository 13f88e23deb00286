"""J20: the call that ends a lease says what its handler did.

A worker records the start and the end of each handler run, and sends the call that ends the lease afterwards. So a finish is
accepted only for a handler that has started, has ended before the finish was sent, and has not raised; a job whose handler has
returned is neither retried nor buried; and a handler runs once under one token. Judged for processes that record their handlers.

A handler may go on, and return, after its time was up and its job given up. Its worker decides that; the call may leave later.
So a run that took as long as its timeout excuses the call, whenever that was sent. What is not certain is unknown: the worker's
time begins between the claim's answer and the handler's start, and services before version 11 do not say timeouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.checks.j7_attempts import unsaid
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import Column


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases whose end contradicts their handler."""
    recording = [process.name for process in run.processes if process.file in run.files and run.files[process.file].handled]
    judged, runs, handled_ns = F.col("proc").isin(recording), F.col("handlings"), F.col("handled_ns")
    finished, early_ms = judged & F.col("accepted"), milliseconds(handled_ns - F.col("finish_sent_ns"))

    def flag(kind: str, condition: Column, *words: Column | str, absence: bool = False, level: Column | str = "violated") -> Flag:
        return Flag(kind, condition, sentence("lease ", token(), " of ", F.col("proc"), " ", *words), absence, level)

    return {
        "tokens": [
            flag("finished unhandled", finished & (runs == 0), "was finished, and no handler had started", absence=True),
            flag("finished too soon", finished & (early_ms > 0), "was finished ", early_ms, " ms before its handler had ended"),
            flag(
                "finished while handled",
                finished & (runs > 0) & handled_ns.isNull(),
                "was finished, and its handler had not ended",
                absence=True,
            ),
            flag("finished though failed", finished & F.col("raised"), "was finished, and its handler had raised"),
            flag(
                "given up though done",
                judged & F.col("given_up_on") & returned_in_time(),
                "was retried or buried, and its handler had returned",
                level=in_time_for_sure(run),
            ),
            flag("handled twice", judged & (runs > 1), "had ", runs, " handler runs"),
        ]
    }


def returned_in_time() -> Column:
    """True when the handler returned, unless it had certainly taken as long as it may."""
    return F.col("returned") & ~F.coalesce(F.col("ran_ns") >= F.col("timeout_ns"), F.lit(False))


def in_time_for_sure(run: Run) -> Column:
    """The level of that: violated where its worker cannot have found either that its time was up."""
    untimed = F.col("timeout_ns").isNull() & F.lit(not unsaid(run))
    held_ns = F.col("returned_ns") - F.col("claim_done_ns")
    return F.when(untimed | (held_ns < F.col("timeout_ns")), "violated").otherwise("unknown")


CHECK = Check("J20", "ends say what handlers did", doubts, flags)
