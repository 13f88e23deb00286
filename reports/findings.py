"""Run every check and count the violations, in one pass over one frame of violation rows; set apart what was declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter, or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reports.caching import kept, save
from reports.causes import LATE_LOAD, SLOW_LOAD, Cause, Doubt
from reports.channels.frames import ChannelFrames
from reports.checks import CHECKS, h3_recorder_sound
from reports.checks.base import Base, Check, Flag, flagged
from reports.checks.h0_history_whole import holes, lost_rows
from reports.errors import one_line
from reports.facts import finding_name
from reports.frames import AnyFrames, Frames
from reports.verdict import DECLARED, EXAMPLES_MAX, CheckResult

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, Row

# Declared findings: guarantees that a model's wire format cannot give, listed in the spec and kept apart
# from violations.
#
# `findings` of the spec: each has a `name`, a human-readable `text`, and `checks`: ids of J or P checks, or
# `id:kind` for one kind of their violations. `procs` narrows it to jobs leased by a process whose name
# starts with one of these prefixes. A finding covers only proved violations of its checks and jobs; rows of
# level unknown stay unknown.


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


#: Violation rows are few, or many of the same kind, so this many partitions suffice.
PARTITIONS = 4

#: Checks that report missing or contradictory rows of the history.
HISTORY = ("H0", "H3")

#: Id prefixes of the checks that judge the engine.
ENGINE = ("J", "P")


def examine(
    frames: AnyFrames, tables: Path, checks: Sequence[Check] = CHECKS, *, say: Callable[[str], None] = lambda line: None
) -> list[CheckResult]:
    """Run every check and write the violation rows to `tables/violations.parquet`. A check that crashes is unknown, not
    passed."""
    checks = [check for check in checks if check.judges(frames.run)]
    found = [doubted(check, frames) for check in checks]
    for one in found:
        one.hidden = one.check.id.startswith(ENGINE) and bool(lost_rows(frames.run))
    whole, slow = not holes(frames.run), h3_recorder_sound.slow(frames.run)
    astray = any(host.trouble for host in frames.run.hosts)
    try:
        together = kept(with_findings(violations(frames, checks), frames))
        counted = tally(together)
    except Exception as error:
        say(f"judge: the checks crashed together, so each is run alone: {one_line(error)}")
        counted = [row for one in found for row in one_by_one(one, frames)]
        enter(found, counted, whole=whole and not broken(counted), slow=slow or late(counted), astray=astray)
        return found
    whole, slow = whole and not broken(counted), slow or late(counted)
    enter(found, counted, whole=whole, slow=slow, astray=astray)
    save(leveled(together, whole=whole, slow=slow, astray=astray), tables / "violations.parquet")
    return found


def broken(rows: Iterable[Row]) -> bool:
    """True when H0 or H3 violation rows show that the history has holes."""
    return any((row["check"], row["kind"]) != LATE_LOAD and row["check"] in HISTORY for row in rows)


def late(rows: Iterable[Row]) -> bool:
    """True when violation rows of H3 show that the machine was too slow for the load."""
    return any((row["check"], row["kind"]) in SLOW_LOAD for row in rows)


def doubted(check: Check, frames: AnyFrames) -> CheckResult:
    """A check before its rows are counted, with the reasons why it cannot be judged."""
    not_judged = check.not_judged(frames.run)
    try:
        return CheckResult(check, list(check.doubts(frames.run)), not_judged)
    except Exception as error:
        return CheckResult(check, [crashed(error)], not_judged)


def crashed(error: BaseException) -> Doubt:
    """The doubt that makes a crashed check unknown, with the error."""
    return Doubt(f"the check crashed: {one_line(error)}", Cause.CRASHED)


def one_by_one(one: CheckResult, frames: AnyFrames) -> list[Row]:
    """Evaluate one check on its own. Used after the joint pass crashed, so that a crash makes only its own check unknown."""
    try:
        return tally(with_findings(violations(frames, [one.check]), frames))
    except Exception as error:
        one.doubts.append(crashed(error))
        return []


def violations(frames: AnyFrames, checks: Sequence[Check]) -> DataFrame:
    """Violation rows of the given checks, reading each frame once for all flags on it."""
    nothing = frames.eventful.jobs if isinstance(frames, Frames) else frames.misuses
    # Frames are compared by identity: an equal plan may still be another frame.
    by_frame: dict[int, tuple[DataFrame, list[tuple[str, Flag]]]] = {id(nothing): (nothing, [])}
    for check in checks:
        for frame, flag in flags_of(check, frames):
            by_frame.setdefault(id(frame), (frame, []))[1].append((check.id, flag))
    return united([flagged(*each) for each in by_frame.values()]).coalesce(PARTITIONS)


def united(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows of these frames, whose columns are the same. By twos: Spark looks at a whole plan again with each union."""
    while len(parts) > 1:
        parts = [reduce(DataFrame.union, parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts[0]


def flags_of(check: Check, frames: AnyFrames) -> list[tuple[DataFrame, Flag]]:
    """The flags of a check, each with the frame whose rows it is about. Flags on leases and jobs are raised by no plain job."""
    if not isinstance(frames, Frames):
        return check.channels(frames)
    bases: dict[Base, DataFrame] = {"tokens": frames.eventful.tokens, "jobs": frames.eventful.jobs, "in_hand": frames.in_hand}
    of_bases = [(bases[base], flag) for base, some in check.flags(frames.run).items() for flag in some]
    return [*of_bases, *check.more(frames)]


def level_of(row: Row, *, whole: bool, slow: bool, astray: bool) -> str:
    """The level of one violation, by the same rules as `leveled`."""
    if row["level"] != "violated":
        return str(row["level"])
    if astray:
        return "astray"
    if row["absence"] and not whole:
        return "unproven"
    if row["timed"] and slow:
        return "slow"
    return DECLARED if row["finding"] else "violated"


def leveled(rows: DataFrame, *, whole: bool, slow: bool, astray: bool) -> DataFrame:
    """Set the final level: every violation becomes astray when the clock of a host is not known, one that rests on absent rows
    becomes unproven when the history has holes, one that something took too long becomes slow when the machine was, and one that
    a declared finding covers becomes declared."""
    violated = F.col("level") == "violated"
    unproven, late = F.lit(not whole) & F.col("absence"), F.lit(slow) & F.col("timed")
    level = F.when(violated & F.lit(astray), "astray").when(violated & unproven, "unproven").when(violated & late, "slow")
    level = level.when(violated & (F.col("finding") != ""), DECLARED)
    return rows.withColumn("level", level.otherwise(F.col("level")))


def tally(rows: DataFrame) -> list[Row]:
    """Per check, level, absence, timed, kind and finding: the count `n` and the first examples in order of subject."""
    group = Window.partitionBy("check", "level", "absence", "timed", "kind", "finding")
    numbered = rows.withColumn("n", F.count("*").over(group))
    numbered = numbered.withColumn("place", F.row_number().over(group.orderBy("subject", "detail")))
    found = numbered.where(F.col("place") <= EXAMPLES_MAX).collect()
    return sorted(found, key=itemgetter("check", "level", "kind", "absence", "timed", "finding", "place"))


def enter(found: Sequence[CheckResult], rows: Sequence[Row], *, whole: bool, slow: bool, astray: bool) -> None:
    """Add the counted rows to the results of their checks."""
    by_id = {one.check.id: one for one in found}
    for row in rows:
        one, finding = by_id[row["check"]], row["finding"]
        level = level_of(row, whole=whole, slow=slow, astray=astray)
        shown = one.declared_examples.setdefault(finding, []) if level == DECLARED else one.examples.setdefault(level, [])
        if len(shown) < EXAMPLES_MAX:
            shown.append(f"{row['subject']} {row['detail']}")
            one.subjects.setdefault(level, []).append(row["subject"])
        if row["place"] == 1:
            place = (level, row["kind"])
            one.counts[place] = one.counts.get(place, 0) + row["n"]
            if level == DECLARED:
                one.declared[finding] = one.declared.get(finding, 0) + row["n"]
