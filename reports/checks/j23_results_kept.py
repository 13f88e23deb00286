"""J23: a result stays with its job and its run, from the handler to the caller.

A handler of a drill returns another value in each run of each job. Its crc32 is recorded by the handler at the sink, by the
worker in the finish, and by a caller who reads the result of the finished job. So a worker sends what the handler returned under
the same token, and a caller gets what an accepted finish of the job sent, not the result of another job or of a refused finish.

The history has results from version 8 on, and callers read only a sample of them. Results of leases that a process without a sink
handled are compared from the finish on. How long a result is kept, the server's clock says: where that has jumped between the
finish and the caller, the result is older by the jump. Without `results` in the spec handlers return nothing, and the check does
not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.checks.j1_no_overlap import doubts as nothing_claimed
from reports.facts import Run, whole
from reports.windows import clock_jumps, gone_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames

#: The version of the history from which on it has results.
RESULTS_SINCE = 8

#: A result is certainly still there so long after its finish, where the spec names no retention: the default is an hour.
KEPT_MS = 1_800_000


def doubts(run: Run) -> list[str]:
    """The check needs claims, and a history that has results."""
    old = [] if run.version >= RESULTS_SINCE else [f"a history of version {run.version} does not have results"]
    return [*nothing_claimed(run), *old]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Finishes with another result than the handler's, and callers that were given another result, or none."""
    kept_ms = whole(run.spec, "retention_ms", 0) or KEPT_MS
    returned, sent, strange = F.col("returned_crc"), F.col("sent_crc"), F.array_except("read_crcs", "sent_crcs")
    asked_ns, nothing_ns = F.col("read_nothing.first_send_ns"), F.col("read_nothing.done_ns")
    later_ns = asked_ns - F.col("accepted_done_ns")
    # At most: calls that take long on a slow machine make a result no older than its server takes it for.
    aged_ms = milliseconds(nothing_ns - F.col("finish_sent_ns"))
    for jump in clock_jumps(run):
        between = (F.col("accepted_done_ns") <= F.lit(jump.end_ns)) & (nothing_ns >= F.lit(jump.begin_ns))
        aged_ms = aged_ms + F.when(between, F.lit(jump.size_ms)).otherwise(0)
    still_kept = (later_ns > 0) & (aged_ms < kept_ms)
    of_lease = ("under ", token())

    # A result may be lost together with its finish.
    lost = gone_by(run, F.col("accepted_done_ns"), nothing_ns)

    def flag(kind: str, condition: Column, *words: Column | str, absence: bool = False, loss: Column | None = None) -> Flag:
        return Flag(kind, condition, sentence(*words), absence, loss=loss)

    return {
        "tokens": [
            flag(
                "result changed",
                returned != sent,
                *("was finished with a result of crc ", sent, ", and its handler returned ", returned, " ", *of_lease),
            ),
            flag(
                "result not sent",
                F.col("accepted") & returned.isNotNull() & sent.isNull(),
                *("was finished without the result that its handler returned ", *of_lease),
                absence=True,
            ),
        ],
        "jobs": [
            flag(
                "wrong result",
                F.size(strange) > 0,
                *("gave a caller a result of crc ", F.array_min(strange), ", which no accepted finish of it sent"),
                absence=True,
            ),
            flag(
                "result lost",
                F.col("accepted") & (F.size("sent_crcs") > 0) & still_kept,
                *("gave a caller no result ", milliseconds(later_ns), " ms after its finish"),
                loss=lost,
            ),
        ],
    }


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Unknown when no caller was given a result."""
    given = frames.events.where((F.col("f") == "result") & F.col("result_crc").isNotNull())
    read = given.agg(F.count("*").alias("n")).withColumn("who", F.lit("callers"))
    nothing = Flag("nothing read", F.col("n") == 0, sentence("read no result"), absence=False, level="unknown", subject="who")
    return [(read, nothing)]


CHECK = Check("J23", "results stay with their jobs", doubts, flags, more, applies=lambda run: run.spec.get("results") is True)
