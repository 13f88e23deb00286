"""The result of one check: its violations by level, the first examples, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reports.causes import Cause, of_doubt, of_row

if TYPE_CHECKING:
    from reports.checks.base import Check

#: A check shows at most this many examples.
EXAMPLES_MAX = 10

#: The level of a violation that a declared finding covers. The other levels are those of `reports.checks.base.Flag`.
DECLARED = "declared"

#: Levels of what may be a violation: because something is not known, handlers had all places, the clock of a host is not known,
#: rows are missing, or the machine was too slow.
IN_DOUBT = ("unknown", "full", "astray", "unproven", "slow")


@dataclass
class CheckResult:
    """The result of one check. `counts` is by (level, kind); `examples` are whole sentences, by level."""

    check: Check
    doubts: list[str]
    #: The parts of the check that this history cannot show.
    not_judged: list[str] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    #: The subject of each example.
    subjects: dict[str, list[str]] = field(default_factory=dict)
    #: True when rows are missing that may hide a violation.
    hidden: bool = False
    #: Per declared finding, the number of rows that it covers, which then do not count as violations; and their first examples.
    declared: dict[str, int] = field(default_factory=dict)
    declared_examples: dict[str, list[str]] = field(default_factory=dict)

    def total(self, level: str) -> int:
        """Number of violation rows of one level."""
        return sum(count for (at, _), count in self.counts.items() if at == level)

    @property
    def verdict(self) -> str:
        """Violated if any violation is proved, else unknown if anything is in doubt, else valid."""
        if self.total("violated"):
            return "violated"
        doubtful = self.doubts or self.hidden or any(map(self.total, IN_DOUBT))
        return "unknown" if doubtful else "valid"

    @property
    def causes(self) -> set[Cause]:
        """Why the check is unknown; empty when it is not."""
        if self.verdict != "unknown":
            return set()
        found = {
            of_row(self.check.id, level, kind) for (level, kind), count in self.counts.items() if count and level in IN_DOUBT
        }
        found |= {of_doubt(self.check.id, doubt) for doubt in self.doubts}
        return found | ({Cause.HOLES} if self.hidden else set())

    @property
    def why(self) -> str:
        """Why the check is not valid, in one line; empty when it is."""
        if self.verdict == "violated":
            return summarize(self.total("violated"), self.examples["violated"])
        reasons = list(self.doubts)
        if self.total("unknown"):
            reasons.append(summarize(self.total("unknown"), self.examples["unknown"]))
        if self.total("full"):
            reasons.append(summarize(self.total("full"), self.examples["full"]))
        if self.total("astray"):
            reasons.append("the clock of a host may explain it: " + summarize(self.total("astray"), self.examples["astray"]))
        if self.total("unproven"):
            reasons.append("missing rows may explain it: " + summarize(self.total("unproven"), self.examples["unproven"]))
        elif self.hidden:
            reasons.append("missing rows may hide a violation")
        if self.total("slow"):
            reasons.append("a slow machine may explain it: " + summarize(self.total("slow"), self.examples["slow"]))
        return "; ".join(reasons)


def summarize(count: int, examples: Sequence[str]) -> str:
    """The first example, with the count if there are more."""
    return examples[0] if count == 1 else f"{count} found, the first: {examples[0]}"
