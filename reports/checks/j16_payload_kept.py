"""J16: a handler gets the payload that was enqueued: crc32 at the claim and at the sink = crc32 at the enqueue.

This also finds payloads that were swapped between jobs (rule 33). A job that was enqueued with two payloads may have either. A
job whose envelope the server reported as corrupt is only possible, because it was not delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import Column


def doubts(run: Run) -> list[str]:
    """The check needs jobs that were enqueued and claimed."""
    wanted = (("created", "no enqueue ever succeeded"), ("leased", "no claim ever succeeded"))
    return [words for flag, words in wanted if not run.has(flag)]


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Jobs that were claimed or handled with another payload than the enqueue sent."""
    del run

    def wrong(where: str) -> Column:
        return F.array_except(f"{where}_crcs", "enqueue_crcs")

    def differs(where: str) -> Column:
        return (F.size("enqueue_crcs") > 0) & (F.size(wrong(where)) > 0)

    def words(what: str, where: str) -> Column:
        sent = F.concat_ws(" or ", F.sort_array("enqueue_crcs").cast("array<string>"))
        return sentence(what, " a payload of crc ", F.array_min(wrong(where)), ", and was enqueued with ", sent)

    ruined, unsummed = F.col("corrupt") & F.col("created"), sentence("has a row without the crc of its payload")
    return {
        "jobs": [
            Flag("claimed changed", differs("claim"), words("was claimed with", "claim"), absence=True),
            Flag("handled changed", differs("sink"), words("was handled with", "sink"), absence=True),
            Flag("unsummed", F.col("unsummed"), unsummed, absence=False, level="unknown"),
            Flag("corrupt", ruined, sentence("was found corrupt by the server"), absence=False, level="possible"),
        ]
    }


def not_judged(run: Run) -> list[str]:
    """Results, where the spec says of none that it was read: J23 is for them."""
    return [] if run.spec.get("results") is True else ["results: the spec does not say that handlers return any"]


CHECK = Check("J16", "payloads stay with their jobs", doubts, flags, not_judged=not_judged)
