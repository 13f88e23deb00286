"""J6: a job is finished exactly once (rule 34): at most one accepted finish per job, but for those that were lost as declared.

The answer `ok` means that this call finished the job, `repeated` that an earlier one did: a lease with two answers `ok`, to two
calls or within one, has finished twice. A job that is claimed again after its finish is about to be finished again. A job is
created once: if two enqueues are both answered `created`, the payload of one is lost. A drop is an end like a finish: no job is
both finished and dropped, dropped by two leases, or claimed again after its drop. (J24 has the jobs that a later era of
the server hands out again.)

The sink is the second witness: for every lease with an accepted finish its handler wrote exactly one effect. Effects of other
leases are allowed, because handlers run at least once. The handlers of a service write to no sink; its own word is J25.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, milliseconds, sentence, token
from reports.facts import Run
from reports.windows import explanation

if TYPE_CHECKING:
    from pyspark.sql import Column

    from reports.windows import Clash, Test

#: What tells one lease of a job from another.
TOKEN = ("fence", "nonce")


def doubts(run: Run) -> list[str]:
    """The check needs accepted finishes, and a sink of every worker."""
    found = [] if run.has("finished") else ["no finish ever succeeded"]
    if run.of_service:
        return found
    if not (names := sinks(run)):
        return [*found, "the manifest declares no sink: there is no second witness"]
    workers = sorted({process.name for process in run.processes if process.role == "worker"} - set(names))
    return found + [f"the manifest declares no sink of {name}: its finishes have no second witness" for name in workers]


def sinks(run: Run) -> list[str]:
    """The processes whose handlers had a sink."""
    return sorted({process.name for process in run.processes if process.role == "sink"})


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that were finished or created twice, or run again; accepted leases without an effect, or with two."""
    leases, calls, creations, effects = (F.col(name) for name in ("finishes", "finish_calls", "creations", "effects"))
    by_leases, by_calls = different(leases, *TOKEN), F.size(calls) > 1
    tokens = F.when(by_leases, F.array_distinct(texts(leases))).otherwise(texts(calls))
    twice = sentence("was finished ", F.size(tokens), " times: by ", F.array_join(F.sort_array(tokens), " and by "))
    created = sentence("was created ", F.size(creations), " times: by ", F.array_join(F.sort_array(creations["op"]), " and by "))
    drops, doubled = F.col("drops"), by_leases | by_calls
    # What another era hands out again is left to J24, where the spec says what may be lost.
    again, revived = (run_again(ends, same_era=True if "loss" in run.spec else None) for ends in ("finishes", "drops"))
    both = (F.size(leases) > 0) & (F.size(drops) > 0)
    twice_dropped = sentence("was dropped by ", F.size(F.array_distinct(texts(drops))), " leases")

    def flag(kind: str, condition: Column, words: Column, *clashes: Clash) -> Flag:
        def clash(of: Test) -> Column:
            return reduce(or_, (one(of) for one in clashes))

        return Flag(kind, condition, words, absence=False, loss=explanation(run, clash))

    finished_twice = (pairs(leases, leases, TOKEN), pairs(calls, calls, (*TOKEN, "op", "position")))
    found: dict[Base, list[Flag]] = {
        "jobs": [
            flag("doubled", doubled, twice, *finished_twice),
            flag("run again", again(always) & ~doubled, sentence(*claimed_after(F.col("accepted_done_ns")), "finish"), again),
            flag(
                "finished and dropped",
                both,
                sentence("was finished, and dropped as well"),
                *(pairs(leases, drops), pairs(drops, leases)),
            ),
            flag("dropped twice", different(drops, *TOKEN), twice_dropped, pairs(drops, drops, TOKEN)),
            flag(
                "run again", revived(always) & ~again(always), sentence(*claimed_after(F.col("dropped_done_ns")), "drop"), revived
            ),
            flag("created twice", F.size(creations) > 1, created, pairs(creations, creations, ("op", "position"))),
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


def pairs(first: Column, second: Column, names: Sequence[str] = ()) -> Clash:
    """Whether some answer of the one list and a later one of the other, that differ in some of these fields, pass a test."""

    def clash(of: Test) -> Column:
        def contradicts(one: Column, other: Column) -> Column:
            differ = reduce(or_, (~one[name].eqNullSafe(other[name]) for name in names), F.lit(not names))
            return differ & (one["done_ns"] <= other["done_ns"]) & of(one["done_ns"], other["done_ns"])

        return exists(first, lambda one: exists(second, lambda other: contradicts(one, other)))

    return clash


def run_again(ends: str, *, same_era: bool | None) -> Clash:
    """Whether a job was handed out to a claim that was sent after its end: in the same era of the server, in another, in any."""

    def clash(of: Test) -> Column:
        def contradicts(end: Column, claim: Column) -> Column:
            in_era = F.lit(True) if same_era is None else (claim["era"] == end["era"]) == F.lit(same_era)
            later = in_era & (claim["first_send_ns"] > end["done_ns"])
            return later & of(end["done_ns"], claim["done_ns"])

        return exists(F.col(ends), lambda end: exists(F.col("claims_made"), lambda claim: contradicts(end, claim)))

    return clash


def always(written: Column, answered: Column) -> Column:
    """The test that all pass."""
    del written, answered
    return F.lit(True)


def exists(entries: Column, condition: Callable[[Column], Column]) -> Column:
    """True when the condition holds for some entry; never null."""
    return F.coalesce(F.exists(entries, condition), F.lit(False))


def different(entries: Column, *names: str) -> Column:
    """True when the entries do not all have the same values in these fields."""
    return F.size(F.array_distinct(F.transform(entries, lambda one: F.struct(*(one[name].alias(name) for name in names))))) > 1


def claimed_after(ended_ns: Column) -> tuple[Column | str, ...]:
    """The beginning of a sentence on a job that was claimed after its end."""
    return "was claimed again ", milliseconds(F.col("last_claim_sent_ns") - ended_ns), " ms after its "


def texts(finishes: Column) -> Column:
    """The tokens of finishes as texts."""
    return F.transform(finishes, lambda finish: F.concat_ws("/", finish["fence"].cast("string"), finish["nonce"]))


CHECK = Check("J6", "every job is finished exactly once", doubts, flags)
