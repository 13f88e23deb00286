"""J8: no job is claimed before it is due, by the server's clock alone.

A claim's reply states when the job was due and when the server delivered it; both come from one script, so they can be compared
to the millisecond. The claim is also compared with the time of the enqueue that created the job plus its delay, and with the
time of an earlier retry plus its delay. The clocks of producers and workers are not used.

Original clients promote due jobs by their own timers, which fire slightly early: `early_ms` of the spec, at most 2 ms, allows
for that.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run, whole
from reports.windows import gone_by, went_back_ms


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Claims before the due time that they state, before the end of a retry's delay, or before the end of the enqueue's
    delay."""
    early_ms = F.lit(whole(run.spec, "early_ms", 0))
    # By a clock that has stepped back, what was due already is claimed before its time, and rightly so.
    back_ms = went_back_ms(run, F.col("claim_done_ns"))
    srv_ms, due_ms, again_ms = F.col("claim_srv_ms"), F.col("claim_due_ms"), F.col("older_again.due_ms")
    first_ms, created_ms = F.expr("claim_srv_us div 1000"), F.col("created_due_ms")
    claimed = ("claim ", token(), " by ", F.col("proc"), " came ")
    # A retry that was accepted after this claim does not delay it; that it was accepted is left to J3.
    retried = (F.col("older_again.srv_ms") <= srv_ms) & (srv_ms + early_ms + back_ms < again_ms)
    soon = srv_ms + early_ms + back_ms < due_ms
    unknown = F.col("claim_done_ns").isNotNull() & srv_ms.isNull()
    return {
        "tokens": [
            Flag("early", soon, sentence(*claimed, due_ms - srv_ms, " ms before the job was due"), absence=False),
            Flag(
                "early",
                retried,
                sentence(*claimed, again_ms - srv_ms, " ms before its retry was due"),
                absence=False,
                loss=gone_by(run, F.col("older_again.done_ns"), F.col("claim_done_ns")),
            ),
            Flag("no server time", unknown, sentence(*claimed, "without a server time"), absence=False, level="unknown"),
        ],
        "jobs": [
            Flag(
                "early",
                (F.col("delay_ns") > 0) & (first_ms + early_ms < created_ms),
                sentence("was claimed ", created_ms - first_ms, " ms before the delay of its enqueue was over"),
                absence=True,
            )
        ],
    }


CHECK = Check("J8", "no job is claimed before it is due", doubts, flags)
