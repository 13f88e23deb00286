"""`python -m reports corrupt RUN --seed N`: corrupt a valid run in every known way, and say which ones the judge sees."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.corrupt import channel_receipts, channels, features, jobs, whole
from reports.corrupt.channel_history import ChannelHistory
from reports.corrupt.history import History
from reports.corrupt.kinds import CHANNEL_KINDS, CHANNEL_UNSEEABLE, KINDS, UNSEEABLE, Kind
from reports.errors import JudgeError
from reports.facts import of_channels
from reports.folder import read_spec
from reports.judge import Say, judge, to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The modules that register kinds when they are imported.
CATALOGUE = (jobs, features, whole, channels, channel_receipts, channel_receipts, whole)

#: Each edit of a channel run takes a channel for itself, so a copy holds at most this many of them.
CHANNEL_EDITS_MAX = 16


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


def corrupt(run: Path, seed: int, spark: SparkSession, kinds: Sequence[Kind] = (), say: Say = to_stderr) -> Iterator[Seen]:
    """Corrupt copies of a run in every way, judge them, and tell what was seen of each as soon as its copy is judged.

    Kinds that concern single jobs share a copy, those that concern single channels a few; each of the others has its own. Raises
    JudgeError when the run lacks what a kind needs, or a copy cannot be judged.
    """
    about_channels = of_channels(read_spec(run))
    chosen = list(kinds or (CHANNEL_KINDS if about_channels else KINDS).values())
    together, size = [one for one in chosen if not one.apart], CHANNEL_EDITS_MAX if about_channels else len(chosen)
    groups = [together[at : at + size] for at in range(0, len(together), size)] + [[one] for one in chosen if one.apart]
    with tempfile.TemporaryDirectory(prefix="ironclaim-corrupt-") as scratch:
        for number, group in enumerate(groups):
            history = (ChannelHistory if about_channels else History)(run, random.Random(f"{seed} {number}"))
            subjects = [(one, one.edit(history)) for one in group]
            copy = Path(scratch) / f"{number}-{group[0].name}"
            history.write(copy)
            say(f"corrupt: judging {', '.join(one.name for one in group)}")
            verdict = judge(copy, spark=spark, say=lambda line: None)
            if not verdict["checks"]:
                raise JudgeError(f"the copy with {group[0].name} cannot be judged: {'; '.join(verdict['reasons'])}")
            broken = [check["id"] for check in verdict["checks"] if check["verdict"] != "valid"]
            by_subject = violations(spark, copy, of_channels=about_channels)
            for one, subject in subjects:
                checks = tuple(sorted(by_subject.get(subject, ()))) if subject else tuple(broken)
                yield Seen(one, subject or "the run", checks)


def violations(spark: SparkSession, run: Path, *, of_channels: bool = False) -> dict[str, set[str]]:
    """Subject -> checks with a proved violation of it; of channels each one's subscribers count as it."""
    rows = spark.read.parquet(str(run / "tables" / "violations.parquet")).where("level = 'violated'").collect()
    found: dict[str, set[str]] = {}
    for row in rows:
        subject = row["subject"].split("/")[0] if of_channels else row["subject"]
        found.setdefault(subject, set()).add(row["check"])
    return found


def render(found: Iterable[Seen]) -> str:
    """One line per kind, how many were seen, and what cannot be seen, with the reason."""
    found = list(found)
    about_channels = any(CHANNEL_KINDS.get(one.kind.name) is one.kind for one in found)
    unseeable = CHANNEL_UNSEEABLE if about_channels else UNSEEABLE
    width = max(len(one.kind.name) for one in found)
    lines = [f"  {one.kind.name.ljust(width)}  {'seen' if one.caught else 'NOT SEEN':8}  {' '.join(one.checks)}" for one in found]
    caught = sum(one.caught for one in found)
    reasons = [f"  {name}: {reason}" for name, reason in unseeable.items()]
    hidden = ["", "cannot be seen from a history", *reasons] if reasons else []
    return "\n".join(["corruptions", *lines, *hidden, "", f"corrupt: kinds={len(found)} seen={caught}"])
