"""What holds the jobs of a queue back, as the commands print it: pauses, limits, lanes, and workers that claim nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.command.output import instant
from engine.errors import UnsupportedFeature
from engine.queue.synchronous.queue import Queue
from engine.queue.why import LaneInfo, Obstacles
from engine.queue.workers import WorkerInfo

#: Lanes of one queue that are printed, those with the most jobs: for programs, and for people.
_LANES_TOLD = 100
_LANES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds its jobs back, None on an old keyspace, where that cannot be told; and the workers that live."""

    obstacles: Obstacles | None
    workers: list[WorkerInfo]

    @property
    def oldest_s(self) -> float | None:
        """For how long the job has waited that has waited longest."""
        return None if self.obstacles is None else round(self.obstacles.oldest_age_ms / 1000, 1)

    @property
    def kept_back(self) -> list[WorkerInfo]:
        """The workers that claim nothing."""
        return [worker for worker in self.workers if worker.paused or worker.gate_closed]


def holding(queue: Queue) -> Holding:
    """What holds its jobs back."""
    workers = [worker for worker in queue.workers.list() if worker.alive]
    try:
        return Holding(queue.obstacles(), workers)
    except UnsupportedFeature:
        return Holding(None, workers)


def told(held: Holding) -> dict[str, Any]:
    """The fields for programs: how many workers are alive and which of them claim nothing, for how long the oldest waiting job
    could have been claimed, and pauses, limits and lanes."""
    found = held.obstacles
    return {
        "workers": len(held.workers),
        "kept_back": [{"worker": w.name, "paused": w.paused, "gate_closed": w.gate_closed} for w in held.kept_back],
        "oldest_age_ms": None if found is None else found.oldest_age_ms,
        "pauses": None if found is None else [asdict(pause) for pause in found.pauses],
        "limits": None if found is None else [asdict(limit) | {"full": limit.full} for limit in found.limits],
        "lanes": None if found is None else [asdict(lane) for lane in found.lanes[:_LANES_TOLD]],
    }


def summary(held: Holding) -> str:
    """What holds jobs back, in a cell of a table; '' where nothing does."""
    words: list[str] = []
    if held.obstacles is not None:
        words += ["paused" if pause.name is None else f"{pause.name} paused" for pause in held.obstacles.pauses]
        words += [str(limit) for limit in held.obstacles.limits if limit.full]
    return "; ".join(words + [f"{worker.name} {why_kept_back(worker)}" for worker in held.kept_back])


def why_kept_back(worker: WorkerInfo) -> str:
    """Why a worker claims nothing, as its last heartbeat told; '' where it may."""
    return "paused" if worker.paused else "gate closed" if worker.gate_closed else ""


def tables(held: Holding) -> list[Sequence[dict[str, Any]]]:
    """The rows for people: pauses, limits, the lanes with the most jobs, and workers that claim nothing."""
    found = held.obstacles
    if found is None:
        return []
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
    lanes = [_lane(lane, found.srv_us) for lane in found.lanes[:_LANES_SHOWN]]
    workers = [{"worker": worker.name, "claims nothing": why_kept_back(worker)} for worker in held.kept_back]
    return [rows for rows in (pauses, limits, lanes, workers) if rows]


def _lane(lane: LaneInfo, srv_us: int) -> dict[str, Any]:
    return {
        "lane": lane.name + (f"/{lane.key}" if lane.key else ""),
        "waiting": lane.waiting,
        "oldest s": round(max(0, srv_us / 1000 - lane.oldest_ms) / 1000, 1),
        "waits for": lane.waits_for or "a worker",
    }
