"""Declared findings: guarantees that a model's wire format cannot give, listed in the spec and kept apart from violations.

`findings` of the spec: each has a `name`, a human-readable `text`, and `checks`: ids of J or P checks, or `id:kind` for one
kind of their violations. `procs` narrows it to jobs leased by a process whose name starts with one of these prefixes. A finding
covers only proved violations of its checks and jobs; rows of level unknown stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.channels.frames import ChannelFrames
from reports.facts import finding_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import AnyFrames


@dataclass(frozen=True, slots=True)
class Finding:
    """One declared finding of a spec."""

    name: str
    text: str
    #: (check, kind); an empty kind stands for all kinds.
    checks: tuple[tuple[str, str], ...]
    procs: tuple[str, ...] = ()


def declared(spec: Mapping[str, Any]) -> list[Finding]:
    """The findings of a spec that `reports.folder.spec_faults` has accepted."""
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
    """Violation rows with a column `finding`: the name of the first finding that may cover the row, else of the declared loss
    that explains it, else an empty text."""
    findings = declared(frames.run.spec)
    if any(finding.procs for finding in findings):
        rows = rows.join(hands(frames), "subject", "left")
    name = F.coalesce(F.concat(F.lit(finding_name("")), "loss"), F.lit(""))
    for finding in reversed(findings):
        name = F.when(covers(finding), F.lit(finding.name)).otherwise(name)
    return rows.withColumn("finding", name).drop("hands", "loss")


def covers(finding: Finding) -> Column:
    """True for a row that a finding describes, whatever the row's level."""
    about = F.lit(False)
    for check, kind in finding.checks:
        about = about | ((F.col("check") == check) & (F.lit(not kind) | (F.col("kind") == kind)))
    if not finding.procs:
        return about

    def foreign(proc: Column) -> Column:
        return reduce(or_, (proc.startswith(prefix) for prefix in finding.procs))

    return about & F.coalesce(F.exists("hands", foreign), F.lit(False))


def hands(frames: AnyFrames) -> DataFrame:
    """Per job, the processes that held a lease of it; in a channel run, per subscriber, the processes that fetched for it. The
    column `subject` matches the subject of violation rows."""
    if isinstance(frames, ChannelFrames):
        subject = F.concat_ws("/", "channel", "subscriber").alias("subject")
        return frames.calls.where(F.col("f") == "fetch").groupBy(subject).agg(F.collect_set("proc").alias("hands"))
    held = frames.events.where(F.col("fence").isNotNull() & ~F.coalesce(F.col("f") == "reap", F.lit(False)))
    return held.groupBy(F.col("job").alias("subject")).agg(F.collect_set("proc").alias("hands"))
