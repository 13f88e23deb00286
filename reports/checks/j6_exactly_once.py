"""J6: a job is finished exactly once (rule 34): at most one accepted finish per job and era of the server.

The answer `ok` means that this call finished the job, `repeated` that an earlier one did: a lease with two answers `ok`, to two
calls or within one, has finished twice. A job that is claimed again after its finish is about to be finished again. A job is
created once: if two enqueues are both answered `created`, the payload of one is lost. A drop is an end like a finish: no job is
both finished and dropped in one era, dropped by two leases, or claimed again after its drop.

The sink is the second witness: for every lease with an accepted finish its handler wrote exactly one effect. Effects of other
leases are allowed, because handlers run at least once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.facts import Run
from reports.loss import one_era

if TYPE_CHECKING:
    from pyspark.sql import Column


def doubts(run: Run) -> list[str]:
    """The check needs accepted finishes, and a sink of every worker."""
    found = [] if run.has("finished") else ["no finish ever succeeded"]
    if not (names := sinks(run)):
        return [*found, "the manifest declares no sink: there is no second witness"]
    workers = sorted({process.name for process in run.processes if process.role == "worker"} - set(names))
    return found + [f"the manifest declares no sink of {name}: its finishes have no second witness" for name in workers]


def sinks(run: Run) -> list[str]:
    """The processes whose handlers had a sink."""
    return sorted({process.name for process in run.processes if process.role == "sink"})


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that were finished or created twice in an era, or run again; accepted leases without an effect, or with two."""
    leases, calls, effects = F.col("finishes"), F.col("finish_calls"), F.col("effects")
    by_leases, by_calls = F.size(leases) > eras(leases, run), F.size(calls) > eras(calls, run)
    tokens = F.when(by_leases, texts(leases)).otherwise(texts(calls))
    twice = sentence("was finished ", F.size(tokens), " times: by ", F.array_join(F.sort_array(tokens), " and by "))
    creations, first, last = F.col("creations"), F.col("first_finish"), F.col("last_claim")
    doubled, again = by_leases | by_calls, (last["first_send_ns"] > first["done_ns"]) & (last["era"] == first["era"])
    created = sentence("was created ", F.size(creations), " times: by ", F.array_join(F.sort_array(creations["op"]), " and by "))
    since_ms = milliseconds(last["first_send_ns"] - first["done_ns"])
    drops, dropped = F.col("drops"), F.col("first_drop")
    both = F.arrays_overlap(leases["era"], drops["era"])
    revived = (last["first_send_ns"] > dropped["done_ns"]) & (last["era"] == dropped["era"]) & ~F.coalesce(again, F.lit(False))
    since_drop_ms = milliseconds(last["first_send_ns"] - dropped["done_ns"])
    twice_dropped = sentence("was dropped by ", F.size(drops), " leases")
    found: dict[Base, list[Flag]] = {
        "jobs": [
            Flag("doubled", doubled, twice, absence=False),
            Flag("run again", again & ~doubled, sentence("was claimed again ", since_ms, " ms after its finish"), absence=False),
            Flag("finished and dropped", both, sentence("was finished, and dropped as well"), absence=False),
            Flag("dropped twice", F.size(drops) > eras(drops, run), twice_dropped, absence=False),
            Flag("run again", revived, sentence("was claimed again ", since_drop_ms, " ms after it was dropped"), absence=False),
            Flag("created twice", F.size(creations) > eras(creations, run), created, absence=False),
        ]
    }
    if names := sinks(run):
        unwritten = F.col("accepted") & (effects == 0) & F.col("ran_by").isin(names)
        accepted, lease = F.col("accepted"), ("finish of ", token(), " was accepted, and its handler wrote ")
        found["tokens"] = [
            Flag("no effect", unwritten, sentence(*lease, "nothing to the sink"), absence=True),
            Flag("two effects", accepted & (effects > 1), sentence(*lease, effects, " effects to the sink"), absence=False),
        ]
    return found


def eras(calls: Column, run: Run) -> Column:
    """Number of eras of the server in which the calls were answered, 1 where it lost nothing."""
    if one_era(run):
        return F.lit(1)
    return F.size(F.array_distinct(F.transform(calls, lambda call: call["era"])))


def texts(finishes: Column) -> Column:
    """The tokens of finishes as texts."""
    return F.transform(finishes, lambda finish: F.concat_ws("/", finish["fence"].cast("string"), finish["nonce"]))


CHECK = Check("J6", "every job is finished exactly once", doubts, flags)
