"""What a run's verdict.json says, as far as the harness decides by it, and whether only a slow machine is to blame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Causes as the judge writes them, which imports nothing of the harness nor is imported by it.
SLOW, RECORDER, CRASHED = "slow", "recorder", "crashed"

#: Causes for which a slow machine alone is enough: what came late may be due to it, and so may a recording out of order.
LATE = frozenset((SLOW, RECORDER))

#: The check that is about nothing but the time at which jobs were started.
PUNCTUAL = "J19"

#: The check that says whether the drill was carried out.
CARRIED_OUT = "H1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, that of each check, and the reasons for a reader. `causes`: why it is unknown, each with its checks; none of
    a run that was judged before there were causes. `why`: the reason of each check that is not valid."""

    verdict: str
    checks: Mapping[str, str] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The first reason, empty without any."""
        return next(iter(self.reasons), "")

    @property
    def tripped(self) -> frozenset[str]:
        """The checks that are not valid."""
        return frozenset(check for check, found in self.checks.items() if found != "valid")

    @property
    def late(self) -> frozenset[str]:
        """The checks that complain of late work alone."""
        return frozenset(check for check in self.tripped if check == PUNCTUAL or self._only_late(check))

    @property
    def too_slow(self) -> bool:
        """Whether all that it complains of is late work, or the drill was given up for it."""
        late = bool(self.tripped) and self.tripped == self.late and CRASHED not in self.causes
        return late or (self.verdict != "violated" and CARRIED_OUT in self.causes.get(SLOW, ()))

    def _only_late(self, check: str) -> bool:
        causes = {cause for cause, checks in self.causes.items() if check in checks}
        return bool(causes) and causes <= LATE


def unknown(reason: str) -> Verdict:
    """The verdict of a run that nobody could judge."""
    return Verdict("unknown", reasons=(reason,))


def read(run: Path) -> Verdict:
    """The verdict of a run; unknown where there is none that can be used."""
    try:
        return parsed(json.loads((run / "verdict.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return unknown(f"the judge left no verdict: {type(error).__name__}: {error}")


def parsed(found: Any) -> Verdict:
    """What the content of a verdict.json says. Raises KeyError and TypeError."""
    checks = {check["id"]: check["verdict"] for check in found["checks"]}
    why = {check["id"]: check["why"] for check in found["checks"] if check["verdict"] != "valid"}
    return Verdict(found["verdict"], checks, tuple(found["reasons"]), found.get("causes", {}), why)
