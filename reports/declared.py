"""Declared findings: what a model's wire format cannot protect, said before the run, and told apart from violations.

`findings` of the spec: each with a `name`, `text` for people, and `checks`, ids of J checks or `id:kind` for one kind of their
violations. `procs` narrows it to jobs that were in the hands of a process whose name begins with one of these. A finding covers
violations that are proved, of its checks and of those jobs, and nothing else: what is unknown stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.channels.frames import ChannelFrames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import AnyFrames


@dataclass(frozen=True, slots=True)
class Finding:
    """One declared finding of a spec."""

    name: str
    text: str
    #: (check, kind); an empty kind is all of them.
    checks: tuple[tuple[str, str], ...]
    procs: tuple[str, ...] = ()


def declared(spec: Mapping[str, Any]) -> list[Finding]:
    """The findings of a spec that `reports.folder.spec_faults` has nothing to say against."""
    return [
        Finding(
            str(one["name"]),
            str(one["text"]),
            tuple((check, kind) for check, _, kind in (words.partition(":") for words in one["checks"])),
            tuple(one.get("procs") or ()),
        )
        for one in spec.get("findings") or ()
    ]


def with_findings(rows: DataFrame, frames: AnyFrames) -> DataFrame:
    """Violation rows with a column `finding`: the name of the first finding that may cover the row, or an empty text."""
    findings = declared(frames.run.spec)
    if any(finding.procs for finding in findings):
        rows = rows.join(hands(frames), "subject", "left")
    name = F.lit("")
    for finding in reversed(findings):
        name = F.when(covers(finding), F.lit(finding.name)).otherwise(name)
    return rows.withColumn("finding", name).drop("hands")


def covers(finding: Finding) -> Column:
    """True for a row that a finding describes, whatever its level."""
    about = F.lit(False)
    for check, kind in finding.checks:
        about = about | ((F.col("check") == check) & (F.lit(not kind) | (F.col("kind") == kind)))
    if not finding.procs:
        return about

    def foreign(proc: Column) -> Column:
        return reduce(or_, (proc.startswith(prefix) for prefix in finding.procs))

    return about & F.coalesce(F.exists("hands", foreign), F.lit(False))


def hands(frames: AnyFrames) -> DataFrame:
    """Job, as the subject of a violation, with the processes that had a lease of it; or subscriber, with those it fetched in."""
    if isinstance(frames, ChannelFrames):
        who = F.concat_ws("/", "channel", "subscriber").alias("subject")
        return frames.calls.where(F.col("f") == "fetch").groupBy(who).agg(F.collect_set("proc").alias("hands"))
    held = frames.events.where(F.col("fence").isNotNull() & ~F.coalesce(F.col("f") == "reap", F.lit(False)))
    return held.groupBy(F.col("job").alias("subject")).agg(F.collect_set("proc").alias("hands"))
