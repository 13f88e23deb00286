"""Pauses and limits, as they are and to change."""

from __future__ import annotations

from dataclasses import dataclass

from engine.ops.looks import LimitInfo, PauseInfo
from engine.queue.why import Obstacles


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit: how full it is, from 0 to 100, and who fills it."""

    limit: LimitInfo
    fill: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LimitList:
    """Pauses and limits of a queue; `known` is False on an old keyspace, where they cannot be told."""

    known: bool
    pauses: tuple[PauseInfo, ...]
    limits: tuple[LimitRow, ...]
    paused: bool
    now_ms: int


def limit_list(obstacles: Obstacles | None) -> LimitList:
    """The pauses and limits of a queue."""
    if obstacles is None:
        return LimitList(False, (), (), False, 0)
    paused = any(pause.name is None for pause in obstacles.pauses)
    return LimitList(True, obstacles.pauses, tuple(map(row, obstacles.limits)), paused, obstacles.srv_us // 1000)


def row(limit: LimitInfo) -> LimitRow:
    """A limit as its row."""
    shares = [used / most for used, most in ((limit.in_hand, limit.concurrency), (limit.used, limit.rate)) if most]
    workers = dict.fromkeys(worker for _, worker in limit.holders if worker)
    return LimitRow(limit, min(100, round(100 * max(shares, default=0.0))), tuple(workers))
