"""What holds the jobs of a queue back, as the commands print it: pauses, limits, lanes and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.command.output import instant
from engine.errors import UnsupportedFeature
from engine.queue.obstacles import LaneInfo, Obstacles
from engine.queue.synchronous.queue import Queue

#: Lanes of one queue that are printed: those with the most jobs.
_LANES_SHOWN = 100


def obstacles(queue: Queue) -> Obstacles | None:
    """What holds its jobs back; None on an old keyspace, where that cannot be told."""
    try:
        return queue.obstacles()
    except UnsupportedFeature:
        return None


def told(queue: Queue, found: Obstacles | None) -> dict[str, Any]:
    """The fields for programs: how many workers are alive, for how long the oldest waiting job could have been claimed, and
    pauses, limits and lanes."""
    workers = sum(worker.alive for worker in queue.workers.list())
    if found is None:
        return {"workers": workers, "oldest_age_ms": None, "pauses": None, "limits": None, "lanes": None}
    return {
        "workers": workers,
        "oldest_age_ms": found.oldest_age_ms,
        "pauses": [asdict(pause) for pause in found.pauses],
        "limits": [asdict(limit) | {"full": limit.full} for limit in found.limits],
        "lanes": [asdict(lane) for lane in found.lanes[:_LANES_SHOWN]],
    }


def summary(found: Obstacles | None) -> str:
    """What holds jobs back, in a cell of a table; '' where nothing does."""
    if found is None:
        return ""
    paused = ["paused" if pause.name is None else f"{pause.name} paused" for pause in found.pauses]
    return "; ".join(paused + [str(limit) for limit in found.limits if limit.full])


def tables(found: Obstacles) -> list[Sequence[dict[str, Any]]]:
    """The rows for people: pauses, limits, and the lanes with the most jobs."""
    pauses = [{"paused": pause.name or "(the queue)", "until": instant(pause.until_ms) or "resumed"} for pause in found.pauses]
    limits = [
        {
            "limit of": limit.target,
            "in hand": f"{limit.in_hand} of {limit.concurrency}" if limit.concurrency else None,
            "claims": f"{limit.used} of {limit.rate} in {limit.per_ms / 1000:g} s" if limit.rate else None,
            "free again": instant(limit.free_ms),
            "lanes waiting": limit.parked,
            "by": ", ".join(dict.fromkeys(worker for _, worker in limit.holders)) or None,
        }
        for limit in found.limits
    ]
    return [rows for rows in (pauses, limits, [_lane(lane, found.srv_us) for lane in found.lanes[:10]]) if rows]


def _lane(lane: LaneInfo, srv_us: int) -> dict[str, Any]:
    return {
        "lane": lane.name + (f"/{lane.key}" if lane.key else ""),
        "waiting": lane.waiting,
        "oldest s": round(max(0, srv_us / 1000 - lane.oldest_ms) / 1000, 1),
        "waits for": lane.waits_for or "a worker",
    }
