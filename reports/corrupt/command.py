"""`python -m reports corrupt RUN --seed N`: corrupt a valid run in every known way, and say which ones the judge sees."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.corrupt import features, jobs, whole
from reports.corrupt.history import History
from reports.corrupt.kinds import KINDS, Kind
from reports.errors import JudgeError
from reports.judge import Say, judge, to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The modules that register kinds when they are imported.
CATALOGUE = (jobs, features, whole)


@dataclass(frozen=True)
class Seen:
    """What the judge made of one kind: the checks with a violation of its subject, or with a verdict that is not valid."""

    kind: Kind
    subject: str
    checks: tuple[str, ...]

    @property
    def caught(self) -> bool:
        """True when the check that must see it did."""
        return self.kind.check in self.checks


def corrupt(run: Path, seed: int, spark: SparkSession, kinds: Sequence[Kind] = (), say: Say = to_stderr) -> list[Seen]:
    """Corrupt copies of a run in every way, judge them, and return what was seen of each.

    Kinds that concern single jobs share a copy; each of the others has its own. Raises JudgeError when the run lacks what a kind
    needs, or a copy cannot be judged.
    """
    chosen = list(kinds or KINDS.values())
    groups = [[one for one in chosen if not one.apart], *([one] for one in chosen if one.apart)]
    found: list[Seen] = []
    with tempfile.TemporaryDirectory(prefix="ironclaim-corrupt-") as scratch:
        for number, group in enumerate(filter(None, groups)):
            history = History(run, random.Random(f"{seed} {number}"))
            subjects = [(one, one.edit(history)) for one in group]
            copy = Path(scratch) / f"{number}-{group[0].name}"
            history.write(copy)
            say(f"corrupt: judging {', '.join(one.name for one in group)}")
            verdict = judge(copy, spark=spark, say=lambda line: None)
            if not verdict["checks"]:
                raise JudgeError(f"the copy with {group[0].name} cannot be judged: {'; '.join(verdict['reasons'])}")
            broken = [check["id"] for check in verdict["checks"] if check["verdict"] != "valid"]
            by_subject = violations(spark, copy)
            for one, subject in subjects:
                checks = tuple(sorted(by_subject.get(subject, ()))) if subject else tuple(broken)
                found.append(Seen(one, subject or "the run", checks))
    return found


def violations(spark: SparkSession, run: Path) -> dict[str, set[str]]:
    """Subject -> checks with a proved violation of it."""
    rows = spark.read.parquet(str(run / "tables" / "violations.parquet")).where("level = 'violated'").collect()
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["subject"], set()).add(row["check"])
    return found


def render(found: Iterable[Seen]) -> str:
    """One line per kind, and how many were seen."""
    found = list(found)
    width = max(len(one.kind.name) for one in found)
    lines = [f"  {one.kind.name.ljust(width)}  {'seen' if one.caught else 'NOT SEEN':8}  {' '.join(one.checks)}" for one in found]
    caught = sum(one.caught for one in found)
    return "\n".join(["corruptions", *lines, "", f"corrupt: kinds={len(found)} seen={caught}"])
