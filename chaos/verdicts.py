"""What a run's verdict.json says, as far as the harness decides by it, and whether only a slow machine is to blame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: How reasons begin for which a slow machine alone is enough: the load was sent late, delayed jobs were started late, or the
#: queue was looked at late.
LATE = ("H3 ", "J19 ", "H0 unknown: the snapshot at the deadline was taken ")

#: How a check begins that would have found late work to be a violation, had the machine not been too slow.
SLOW = "a slow machine may explain it"

#: What the drill itself says when it has seen that it is too slow.
GIVEN_UP = "the harness could not carry out the drill: this machine was too slow"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, that of each check, and the reasons, each of which begins with the name of its check."""

    verdict: str
    checks: Mapping[str, str] = field(default_factory=dict)
    reasons: Sequence[str] = ()

    @property
    def reason(self) -> str:
        """The first reason, empty without any."""
        return next(iter(self.reasons), "")

    @property
    def late(self) -> frozenset[str]:
        """The checks that complain of late work alone."""
        return frozenset(reason.split()[0] for reason in self.reasons if is_late(reason))

    @property
    def too_slow(self) -> bool:
        """Whether all that it complains of is late work, or the drill was given up for it."""
        late = bool(self.reasons) and all(map(is_late, self.reasons))
        return late or (self.verdict != "violated" and any(GIVEN_UP in reason for reason in self.reasons))


def is_late(reason: str) -> bool:
    """Whether a reason complains of late work alone."""
    return reason.startswith(LATE) or f"unknown: {SLOW}" in reason


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
    return Verdict(found["verdict"], checks, tuple(found["reasons"]))
