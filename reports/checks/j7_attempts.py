"""J7: a job fails as often as its attempts say, waits as its back-off says, and its counters count (rules 6 and 12).

The enqueue says how many runs may fail and how long the job waits after each. No claim hands out a job whose failed runs have
used up its attempts, and no failed run buries one that has attempts left. A retry asks for at least the shortest wait of the
back-off; J8 checks that it is kept. Between two claims of a job that follow each other by their count, `failures` rises by one
for a retry that is charged and stays for anything else. `crashes` is what the sweep in between has said; without its answer it
stays or rises by one.

What it cannot see: a handler that asks for a wait of its own looks like a wrong back-off, so waits are judged only where the spec
says `retries_by_policy`; those that the job lists or bounds are not. Other wire formats do not hold every back-off, so of them
only attempts and counters are judged. Histories older than version 7 have no attempts; those older than version 11 do not say
which retries were not charged, so after one in a service `failures` may stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run
from reports.windows import gone_by

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The version of the history that says how often a job may fail and how long it waits.
SAID_SINCE = 7

#: The version that says which retries count as no failed run, which jobs go in front, and how long a run may take. Only services
#: ask for these.
ASKED_SINCE = 11

#: A growing wait stops here, jitter taken off (see engine/outcomes.py).
GROWN_MS_MAX = 1_800_000


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs with too many or too few runs, or another policy than their enqueue; leases with wrong counters or too short waits."""
    attempts, failures = F.col("attempts"), F.col("failures")
    asked, claimed = F.col("enqueue_policy"), F.col("claim_policy")
    same = asked.eqNullSafe(claimed) if run.of_lanes else asked["attempts"] == claimed["attempts"]
    changed = asked.isNotNull() & claimed.isNotNull() & ~same
    too_often = sentence("was claimed after ", failures, " failed runs, and has ", attempts, " attempts")
    too_soon = sentence("was buried by a failed run after ", failures, " others, and has ", attempts, " attempts")
    differs = sentence("was claimed with ", F.to_json(claimed), ", and enqueued with ", F.to_json(asked))
    found: dict[Base, list[Flag]] = {
        "jobs": [
            Flag("run too often", failures >= attempts, too_often, absence=False),
            Flag("buried too soon", F.col("failed_last") & (failures + 1 < attempts), too_soon, absence=True),
            Flag("attempts changed", changed, differs, absence=False),
        ],
        "tokens": counters(run),
    }
    if run.of_lanes and run.spec.get("retries_by_policy"):
        least_ms = shortest_ms(F.col("policy"), F.col("failures"))
        asked_ms = F.col("retry_delay_ms")
        short = sentence(
            "lease ", token(), " ended in a retry after ", asked_ms, " ms, its back-off is at least ", least_ms, " ms"
        )
        found["tokens"].append(Flag("back-off too short", asked_ms < least_ms, short, absence=False))
    return found


def counters(run: Run) -> list[Flag]:
    """Leases whose counters do not follow from those of the lease before."""
    before = F.col("before")
    follows = (F.col("claims") == before["claims"] + 1) & F.col("claim_era").eqNullSafe(before["claim_era"])
    failed = F.when(before["retry_delay_ms"].isNotNull(), before["charged"]).when(before["end_unanswered"], None).otherwise(0)
    uncharged = failed * (0 if unsaid(run) else 1)
    failures, crashes = F.col("failures"), F.col("crashes")
    least, most = (F.coalesce(before["reap_crashes"], before["crashes"] + more) for more in (0, 1))
    lease = ("lease ", token(), " counts ")
    retry_lost, reap_lost = (lost_between(run, at_ns) for at_ns in (before["again"]["done_ns"], before["reap_done_ns"]))
    return [
        Flag(
            "failures miscounted",
            follows & ~failures.between(before["failures"] + uncharged, before["failures"] + failed),
            sentence(*lease, failures, " failed runs, the one before it counted ", before["failures"], " and failed ", failed),
            absence=True,
            loss=retry_lost,
        ),
        Flag(
            "crashes miscounted",
            follows & ~crashes.between(least, most),
            sentence(*lease, crashes, " crashes, the one before it ", before["crashes"], ", its sweep ", before["reap_crashes"]),
            absence=True,
            loss=reap_lost,
        ),
    ]


def unsaid(run: Run) -> bool:
    """True for a run whose rows do not say what only a service may have asked for."""
    return run.of_service and run.version < ASKED_SINCE


def lost_between(run: Run, ended_ns: Column) -> Column:
    """The kind of fault that may have lost the end of the lease before this one when this one was claimed; or this one when that
    one ended, which a server did that knew of no claim after it. Null for none."""
    claimed_ns = F.col("claim_done_ns")
    return F.coalesce(gone_by(run, ended_ns, claimed_ns), gone_by(run, claimed_ns, ended_ns))


def shortest_ms(policy: Column, failures: Column) -> Column:
    """The shortest wait after a failed run with so many before it; null where the policy does not say it."""
    runs, least_ms = failures + 1, policy["backoff_least_ms"]
    grown = (
        F.when(policy["backoff"] == "fixed", least_ms)
        .when(policy["backoff"] == "linear", least_ms * runs)
        .when(policy["backoff"] == "geometric", least_ms * runs * runs)
        .when(policy["backoff"] == "exponential", least_ms * F.pow(F.lit(2), F.least(failures, F.lit(20))).cast("bigint"))
    )
    # LEAST leaves nulls out, so an unknown wait must not reach it.
    bounded = F.when(grown.isNotNull(), F.least(grown, F.greatest(least_ms, F.lit(GROWN_MS_MAX))))
    return F.when(policy["backoff"] == "fixed", grown).otherwise(bounded)


def not_judged(run: Run) -> list[str]:
    """Attempts and waits, where rows or spec do not say what was asked for."""
    if run.version < SAID_SINCE:
        return [f"attempts and waits: a history of version {run.version} does not have them"]
    if not run.of_lanes:
        return ["waits: this wire format does not hold every back-off"]
    told = [f"uncharged retries: a history of version {run.version} does not have them"] if unsaid(run) else []
    if not run.spec.get("retries_by_policy"):
        told.append("waits: the spec does not say that handlers ask for none of their own")
    return told


CHECK = Check("J7", "attempts and waits are kept", doubts, flags, not_judged=not_judged)
