"""Run every check and count what they found, in one pass over one frame of violation rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reports.checks import CHECKS
from reports.checks.base import Base, Check, Flag, flagged
from reports.checks.h0_history_whole import holes, lost_rows
from reports.errors import CannotJudge, one_line
from reports.frames import Frames
from reports.verdict import EXAMPLES_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row

#: Violations are few, or many and alike: they need no more partitions than this.
PARTITIONS = 4

#: Checks whose findings are holes in the history, or rows that do not belong together.
HISTORY = ("H0", "H3")

#: The finding of theirs that is about neither.
LATE_LOAD = ("H3", "late load")

#: How the ids of the checks begin that judge what the engine did.
ENGINE = "J"


@dataclass
class Found:
    """What one check came to. `counts` is by (level, kind); examples are whole sentences, by level."""

    check: Check
    doubts: list[str]
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    #: Rows are missing, and may hide a violation.
    hidden: bool = False

    def total(self, level: str) -> int:
        """Violation rows of one level."""
        return sum(count for (at, _), count in self.counts.items() if at == level)

    @property
    def verdict(self) -> str:
        """False beats unknown beats true."""
        if self.total("violated"):
            return "violated"
        return "unknown" if self.doubts or self.hidden or self.total("unknown") or self.total("unproven") else "valid"

    @property
    def why(self) -> str:
        """Why it is not valid, in one line; empty when it is."""
        if self.verdict == "violated":
            return said(self.total("violated"), self.examples["violated"])
        reasons = list(self.doubts)
        if self.total("unknown"):
            reasons.append(said(self.total("unknown"), self.examples["unknown"]))
        if self.total("unproven"):
            reasons.append("missing rows may explain it: " + said(self.total("unproven"), self.examples["unproven"]))
        elif self.hidden:
            reasons.append("missing rows may hide a violation")
        return "; ".join(reasons)


def said(count: int, examples: Sequence[str]) -> str:
    """The first example, and how many there are."""
    return examples[0] if count == 1 else f"{count} found, the first: {examples[0]}"


def examine(frames: Frames, tables: Path, checks: Sequence[Check] = CHECKS) -> list[Found]:
    """Judge every check; the violation rows go to `tables/violations.parquet`. A check that crashes is in doubt, not passed."""
    checks = [check for check in checks if check.applies(frames.run)]
    found = [Found(check, doubts_of(check, frames)) for check in checks]
    for one in found:
        one.hidden = one.check.id.startswith(ENGINE) and bool(lost_rows(frames.run))
    whole = not holes(frames.run)
    try:
        together = violations(frames, checks).persist()
        counted = tally(together)
    except Exception:
        counted = [row for one in found for row in one_by_one(one, frames)]
        enter(found, counted, whole=whole and not broken(counted))
        return found
    whole = whole and not broken(counted)
    enter(found, counted, whole=whole)
    save(leveled(together, whole=whole), tables / "violations.parquet")
    return found


def broken(rows: Iterable[Row]) -> bool:
    """True when single operations show holes, too."""
    return any((row["check"], row["kind"]) != LATE_LOAD and row["check"] in HISTORY for row in rows)


def doubts_of(check: Check, frames: Frames) -> list[str]:
    """Why a check cannot be judged."""
    try:
        return list(check.doubts(frames.run))
    except Exception as error:
        return [crashed(error)]


def crashed(error: BaseException) -> str:
    """A check that crashed is unknown, with its reason."""
    return f"the check crashed: {one_line(error)}"


def one_by_one(one: Found, frames: Frames) -> list[Row]:
    """When all checks together crashed: each by itself, so that a crash puts only its own check in doubt."""
    try:
        return tally(violations(frames, [one.check]))
    except Exception as error:
        one.doubts.append(crashed(error))
        return []


def violations(frames: Frames, checks: Sequence[Check]) -> DataFrame:
    """Violation rows of some checks: each frame is passed over once for all of them."""
    flags: dict[Base, list[tuple[str, Flag]]] = {"jobs": []}
    parts: list[DataFrame] = []
    for check in checks:
        for base, some in check.flags(frames.run).items():
            flags.setdefault(base, []).extend((check.id, flag) for flag in some)
        parts += [flagged(frame, [(check.id, flag)]) for frame, flag in check.more(frames)]
    parts += [flagged(getattr(frames, base), some) for base, some in flags.items()]
    return reduce(DataFrame.unionByName, parts).coalesce(PARTITIONS)


def save(frame: DataFrame, path: Path) -> None:
    """Write a table. Raises CannotJudge when the disk refuses."""
    try:
        frame.write.mode("overwrite").parquet(str(path))
    except Exception as error:
        raise CannotJudge(f"table {path.name} cannot be written: {one_line(error)}") from error


def level_of(level: str, *, absence: bool, whole: bool) -> str:
    """The level of a violation, as `leveled` puts it."""
    return "unproven" if absence and not whole and level == "violated" else level


def leveled(rows: DataFrame, *, whole: bool) -> DataFrame:
    """Violations that rest on absent rows prove nothing when the history has holes."""
    unproven = F.lit(not whole) & F.col("absence") & (F.col("level") == "violated")
    return rows.withColumn("level", F.when(unproven, "unproven").otherwise(F.col("level")))


def tally(rows: DataFrame) -> list[Row]:
    """Per check, level, absence and kind: the count `n` and the first examples by subject."""
    group = Window.partitionBy("check", "level", "absence", "kind")
    numbered = rows.withColumn("n", F.count(F.lit(1)).over(group))
    numbered = numbered.withColumn("place", F.row_number().over(group.orderBy("subject", "detail")))
    found = numbered.where(F.col("place") <= EXAMPLES_MAX).collect()
    return sorted(found, key=lambda row: (row["check"], row["level"], row["kind"], row["absence"], row["place"]))


def enter(found: Sequence[Found], rows: Sequence[Row], *, whole: bool) -> None:
    """Put the counted rows where they belong."""
    by_id = {one.check.id: one for one in found}
    counts = {(row["check"], row["level"], row["kind"], row["absence"]): row["n"] for row in rows}
    for (check, level, kind, absence), count in counts.items():
        place = (level_of(level, absence=absence, whole=whole), kind)
        by_id[check].counts[place] = by_id[check].counts.get(place, 0) + count
    for row in rows:
        shown = by_id[row["check"]].examples.setdefault(level_of(row["level"], absence=row["absence"], whole=whole), [])
        if len(shown) < EXAMPLES_MAX:
            shown.append(f"{row['subject']} {row['detail']}")
