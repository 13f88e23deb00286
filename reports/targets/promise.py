"""What the spec of a run says that a job queue promises, and what is wrong with a spec that does not say it rightly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AT_MOST_ONCE, AT_LEAST_ONCE = "at most once", "at least once"

#: Where a queue names no bound, a job counts as late when it runs more than this after its worker was killed.
LATE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Promise:
    """`bound_ms`: by when a job runs again whose worker is gone; None = no time is named. `slack_ms`: how much later is still in
    time, on a busy machine."""

    delivery: str
    bound_ms: int | None
    slack_ms: int

    @property
    def once(self) -> bool:
        """Whether no job may run to its end twice, and a fault may cost jobs."""
        return self.delivery == AT_MOST_ONCE

    @property
    def late_ms(self) -> int:
        """From when on a job is late."""
        return LATE_MS if self.bound_ms is None else self.bound_ms + self.slack_ms

    @property
    def words(self) -> str:
        """The promise in a few words."""
        bound = "no recovery bound" if self.bound_ms is None else f"recovery within {self.bound_ms / 1_000:.0f} s"
        return f"{self.delivery}, {bound}"


def of_target(spec: Mapping[str, Any]) -> bool:
    """True for the spec of a run of another job queue."""
    return spec.get("scenario") == "target"


def promise_of(spec: Mapping[str, Any]) -> Promise:
    """The promise in a spec without faults."""
    told = spec["promise"]
    return Promise(told["delivery"], told["recovery_bound_ms"], spec["slack_ms"])


def promise_faults(spec: Mapping[str, Any]) -> list[str]:
    """What is wrong with the promise of a spec, each field with its value and bound."""
    told = spec.get("promise")
    if not isinstance(told, dict):
        return [f"promise is {told!r}, it must be an object"]
    found: list[str] = []
    if told.get("delivery") not in (AT_MOST_ONCE, AT_LEAST_ONCE):
        found.append(f"promise.delivery is {told.get('delivery')!r}, it must be {AT_MOST_ONCE!r} or {AT_LEAST_ONCE!r}")
    bound = told.get("recovery_bound_ms", 0)
    if bound is not None and (type(bound) is not int or bound <= 0):
        found.append(f"promise.recovery_bound_ms is {bound!r}, it must be a whole number above 0, or null for none")
    if not isinstance(told.get("source"), str) or not told["source"]:
        found.append("promise.source is missing, it must be a text")
    if type(spec.get("slack_ms")) is not int or spec["slack_ms"] < 0:
        found.append(f"slack_ms is {spec.get('slack_ms')!r}, it must be a whole number of at least 0")
    return found
