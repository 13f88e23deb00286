"""The checks of a job queue, T1 to T5, from frames to violation rows.

Whether a row breaks the promise is its level: `violated`; `declared` where the promise allows it, so that it is a finding;
`unknown` where the run did not last long enough to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Flag, flagged, milliseconds, sentence
from reports.facts import MS
from reports.targets.facts import TargetFrames, TargetRun
from reports.verdict import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAMES: Mapping[str, str] = {
    "T1": "every job that was acknowledged ran to its end, or is still there",
    "T2": "no job ran to its end twice",
    "T3": "nothing ran that nobody had sent",
    "T4": "a job whose worker was killed runs again within the bound",
    "T5": "nothing is left behind in the keys of the server",
}

#: Guarantees of the engine's own that need what these queues do not tell: they are not judged, and never passed.
CANNOT_BE_KNOWN: Mapping[str, str] = {
    "J1": "whether two workers held a job at once: no lease and no end of one is told to the handler",
    "J2": "whether the holders of a job are numbered: there are no fences",
    "J3": "whether the end that a worker reported late was refused: reports carry no token, and no answer is told to the handler",
    "J7": "whether crashes count as attempts: no counter is told to the handler",
    "J12": "whether places of limits are given back: none are set",
}


def violations(frames: TargetFrames) -> DataFrame:
    """The rows of all checks: check, subject, kind, level, absence, detail."""
    run = frames.run
    of_jobs = [
        ("T1", lost(run)),
        ("T2", doubled(run)),
        *(("T3", flag) for flag in ghosts()),
        ("T4", late_start(run)),
        ("T5", stranded(run)),
    ]
    return reduce(
        lambda one, other: one.unionByName(other),
        [flagged(frames.jobs, of_jobs), flagged(frames.cuts, [("T4", late_again(run))])],
    )


def excused(run: TargetRun) -> Column:
    """Whether a fault may have cost a job that may be lost: it was acknowledged before the last of them healed."""
    return F.lit(run.promise.once and run.faulty) & (F.col("acknowledged_ns") <= run.healed_ns)


def unfinished() -> Column:
    return F.col("acknowledged_ns").isNotNull() & (F.col("ends") == 0)


def story() -> Column:
    """What is known of a job that did not run to its end."""
    cut = F.when(F.col("cut_by").isNotNull(), F.concat(F.lit("; cut off by "), F.col("cut_by"))).otherwise("")
    return sentence("started ", F.col("starts"), " times", cut)


def lost(run: TargetRun) -> Flag:
    """Acknowledged, not run to its end, and in no key of the server."""
    level = F.when(excused(run), DECLARED).otherwise("violated")
    detail = sentence("was acknowledged, never ran to its end, and is in no key of the server: ", story())
    return Flag("lost", unfinished() & ~F.col("held"), detail, True, level)


def stranded(run: TargetRun) -> Flag:
    """Acknowledged, not run to its end, and in some key of the server, where no worker takes it."""
    bound_ms = run.promise.bound_ms
    passed = bound_ms is not None and run.waited_ms >= bound_ms + run.promise.slack_ms and not run.moving
    late = F.lit(passed and not run.promise.once)
    level = F.when(excused(run), DECLARED).when(late, "violated").otherwise("unknown")
    waited = f", {run.waited_ms / 1_000:.0f} s after the last fault"
    detail = sentence(f"never ran to its end and is still in the server's keys{waited}: ", story())
    return Flag("stranded", unfinished() & F.col("held"), detail, True, level)


def doubled(run: TargetRun) -> Flag:
    """Ran to its end more than once. Only a fault excuses that which came before the job had ended and been given back, and whose
    effects were not over when the job was sent; and only a queue that does not promise at most once, also where its client sent a
    command again whose reply was lost."""
    first_end_ns, sent_ns = F.col("ran")[0]["end_ns"], F.coalesce("sent_ns", "first_start_ns")
    caused = F.lit(False)
    for inject_ns, heal_ns in run.in_force:
        ended = first_end_ns + run.promise.slack_ms * MS < F.lit(inject_ns)
        caused = caused | ~(ended | (sent_ns > F.lit(heal_ns + run.promise.late_ms * MS)))
    level = "violated" if run.promise.once else F.when(caused, DECLARED).otherwise("violated")
    procs = F.concat_ws(", ", F.transform("ran", lambda one: one["proc"]))
    detail = sentence("ran to its end ", F.col("ends"), " times, by ", procs)
    return Flag("doubled", F.col("ends") > 1, detail, False, level)


def ghosts() -> list[Flag]:
    """Handlers that ran what nobody had sent, or before it was sent."""
    ran = F.col("starts") > 0
    return [
        Flag("never sent", ran & F.col("sent_ns").isNull(), sentence("ran, and nobody had sent it"), True),
        Flag(
            "ran before it was sent",
            ran & (F.col("first_start_ns") < F.col("sent_ns")),
            sentence("ran before it was sent"),
            False,
        ),
    ]


def late_level(run: TargetRun) -> str:
    return DECLARED if run.promise.bound_ms is None else "violated"


def late_again(run: TargetRun) -> Flag:
    """A run that a SIGKILL cut off, and that was started again later than it should."""
    took = F.col("again_ns") - F.col("cut_ns")
    detail = sentence("was cut off by ", F.col("fault"), " and started again ", milliseconds(took), " ms later")
    return Flag("late", took > run.promise.late_ms * MS, detail, False, late_level(run))


def late_start(run: TargetRun) -> Flag:
    """A job whose first start came too late, the time of the faults put aside: a worker that is gone had fetched it."""
    took = F.col("first_start_ns") - F.col("acknowledged_ns")
    detail = sentence("was first started ", milliseconds(took), " ms after it was acknowledged")
    return Flag("late", took > run.promise.late_ms * MS + run.outage_ns, detail, False, late_level(run))
