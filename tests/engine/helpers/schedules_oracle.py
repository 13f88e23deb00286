"""Schedules as a person would keep them, in plain Python: an oracle beside the scripts (rule 24)."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Known:
    """What the oracle knows of one schedule. `cron`: it ticks at the multiples of its interval, as a cron expression would, else
    so long after its anchor. `options` are those of its jobs."""

    every_ms: int
    missed: str
    anchor_ms: int
    next_ms: int
    enabled: bool = True
    cron: bool = False
    overlap: str = "allow"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    last_job: str = ""
    count: int = 0
    skipped: int = 0


@dataclass
class SchedulesOracle:
    """The schedules of a queue by name; what is seen later than `late_ms` is late."""

    late_ms: int
    known: dict[str, Known] = field(default_factory=dict[str, Known])

    def put(self, name: str, every_ms: int, missed: str, now_ms: int, *, cron: bool = False) -> Known:
        known = self.known.get(name)
        if known is None:
            known = self.known[name] = Known(every_ms, missed, now_ms, 0, cron=cron)
            known.next_ms = self._after(known, now_ms)
        elif (known.every_ms, known.cron) != (every_ms, cron):
            known.every_ms, known.cron, known.anchor_ms = every_ms, cron, now_ms
            known.next_ms = self._after(known, now_ms)
        known.missed = missed
        return known

    def enable(self, name: str, enabled: bool, now_ms: int) -> None:
        known = self.known.get(name)
        if known is not None and enabled and not known.enabled:
            known.next_ms = self._after(known, now_ms)
        if known is not None:
            known.enabled = enabled

    def fire(self, name: str, now_ms: int) -> list[int]:
        """The ticks that make a job when a scheduler looks now and nobody is in between."""
        known = self.known.get(name)
        if known is None or not known.enabled:
            return []
        due: list[int] = []
        while known.next_ms <= now_ms:
            due.append(known.next_ms)
            known.next_ms += known.every_ms
        in_time = [tick_ms for tick_ms in due if now_ms - tick_ms <= self.late_ms]
        if len(in_time) < len(due) and known.missed == "skip":
            due = in_time
        elif len(in_time) < len(due) and known.missed == "once":
            due = due[-1:]
        return due[-100:]

    @staticmethod
    def _after(known: Known, now_ms: int) -> int:
        """The first tick after now. The clock may have stepped back behind the anchor, which then is a tick itself."""
        anchor_ms = 0 if known.cron else known.anchor_ms
        if now_ms < anchor_ms:
            return anchor_ms
        return anchor_ms + ((now_ms - anchor_ms) // known.every_ms + 1) * known.every_ms
