"""The server's cost of a claim per job, by queue depth, by the number of jobs that it may not claim, and by number of lanes.

Only the claims are sent by EVALSHA, so its statistics count nothing else. Refilling the queue and finishing the jobs use EVAL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import engine
from bench.micro.jobs import Claims, fill, run_as_eval
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import client, evalsha_stats, pinned_server
from bench.micro.rounds import in_turns
from engine.ops.claims import Finish
from engine.ops.jobs import EnqueueMany, Lease
from engine.queue import producing

BATCH = 10
#: Number of blocks of a repetition.
BLOCKS = 10

_OTHER = "other"


@dataclass(frozen=True, slots=True)
class Scene:
    """How a queue is prepared before the claims, and the job names that the worker claims."""

    prepare: Callable[[engine.Queue], None]
    classes: tuple[str, ...] = (NAME,)


def scenes(depths: Sequence[int], lanes: Sequence[int], barred: int, free: int) -> dict[str, dict[str, Scene]]:
    """The three groups of scenes, one per target, each by title."""
    return {
        "claim_deep": {f"{depth:,} waiting": Scene(lambda queue, depth=depth: fill(queue, depth)) for depth in depths},
        "claim_blocked": {
            "nothing in front": Scene(lambda queue: fill(queue, free)),
            f"{barred:,} of another name": Scene(lambda queue: _behind_name(queue, barred, free)),
            f"{barred:,} of a paused name": Scene(lambda queue: _behind_pause(queue, barred, free), (_OTHER, NAME)),
            f"{barred:,} of a name at its limit": Scene(lambda queue: _behind_limit(queue, barred, free), (_OTHER, NAME)),
            f"{barred:,} of a key at its limit": Scene(lambda queue: _behind_keys(queue, 1, barred, free)),
        },
        "claim_lanes": {
            f"{count:,} lane{'s' if count > 1 else ''}": Scene(lambda queue, count=count: _among(queue, count, max(lanes), free))
            for count in lanes
        },
    }


def measure(claims: int, repeat: int, groups: Mapping[str, Mapping[str, Scene]], report: Callable[[str], None]) -> dict[str, Any]:
    """Microseconds of the server per claimed job, one value per repetition; and max / min of each group's medians."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, group in groups.items():
        with ExitStack() as stack:
            cells = {title: stack.enter_context(Cell(scene)) for title, scene in group.items()}
            # Scenes alternate block by block, so that a short disturbance affects all of them.
            runs = {title: _bound(cell, max(1, claims // BLOCKS)) for title, cell in cells.items()}
            found[name] = {title: [] for title in cells}
            for turn in range(repeat):
                blocks = in_turns(runs, BLOCKS, lambda _: None)
                for title, values in blocks.items():
                    found[name][title].append(mean(values))
                report(f"{name}: repetition {turn + 1} of {repeat}")
    spans = {name: _span([median(values) for values in cells.values()]) for name, cells in found.items()}
    return {"redis_us_per_job": found, "ratios": spans}


def _behind_name(queue: engine.Queue, barred: int, free: int) -> None:
    fill(queue, barred, name=_OTHER, priority=10)
    fill(queue, free)


def _behind_pause(queue: engine.Queue, barred: int, free: int) -> None:
    queue.pause(_OTHER)
    _behind_name(queue, barred, free)


def _behind_limit(queue: engine.Queue, barred: int, free: int) -> None:
    queue.set_limit(_OTHER, concurrency=1)
    fill(queue, barred, name=_OTHER, priority=10)
    _use_up(Claims(queue, (_OTHER,), owner=2), 1)
    fill(queue, free)


def _behind_keys(queue: engine.Queue, keys: int, jobs: int, free: int) -> None:
    """Lanes whose keys are at their limit, with `jobs` jobs each, and one claimable lane without a key."""
    queue.set_limit(key="*", concurrency=1)
    for number in range(keys):
        fill(queue, jobs, key=f"tenant-{number}", priority=10)
    _use_up(Claims(queue, owner=2), keys)
    fill(queue, free)


def _among(queue: engine.Queue, lanes: int, most: int, free: int) -> None:
    """All but one of the lanes are blocked, each with a lease and a waiting job. Scenes with fewer lanes get the missing leases
    and jobs under a name without lanes, so that the scenes differ only in lanes: more keys and leases make any claim slower,
    whatever the number of lanes."""
    others = most - lanes
    fill(queue, others, name=_OTHER)
    _use_up(Claims(queue, (_OTHER,), owner=3), others)
    fill(queue, others, name=_OTHER)
    _behind_keys(queue, lanes - 1, 2, free)


def _use_up(claims: Claims, slots: int) -> None:
    """Claim as many jobs as the limits allow, and keep the leases to the end."""
    taken = sum(map(len, claims.take_all()))
    if taken != slots:
        raise RuntimeError(f"claim cost: {taken} jobs could be claimed where the limits have {slots} slots")


class Cell:
    """One server with one prepared queue."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __enter__(self) -> Cell:
        with ExitStack() as stack:
            server = stack.enter_context(pinned_server())
            self._queue = stack.enter_context(engine.Queue("claims", url=server.url))
            self._plain = client(server)
            self._claims = Claims(self._queue, self._scene.classes)
            self._scene.prepare(self._queue)
            self._depth = self._free()
            # Warm-up claims: the first one does work left over from the preparation.
            self._finish([self._top_up(self._claims.take(BATCH)) for _ in range(20)])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, claims: int) -> float:
        """Run this many claims; return the server's microseconds per job."""
        self._plain.config_resetstat()
        taken = [self._top_up(self._claims.take(BATCH)) for _ in range(claims)]
        calls, usec = evalsha_stats(self._plain)
        jobs = sum(map(len, taken))
        if calls != claims or jobs != claims * BATCH:
            raise RuntimeError(f"claim cost: {calls} calls and {jobs} jobs, not {claims} and {claims * BATCH}")
        # A job claimed from another lane would leave one more in this lane.
        if self._free() != self._depth:
            raise RuntimeError("claim cost: jobs were claimed that this worker may not take")
        self._finish(taken)
        return usec / jobs

    def _top_up(self, leases: tuple[Lease, ...]) -> tuple[Lease, ...]:
        """Enqueue as many jobs into the lane as were claimed from it."""
        drafts = [producing.draft(NAME, PAYLOAD, self._queue.payload_bytes_max) for _ in leases]
        void_ms = self._queue.driver.not_after_ms()
        run_as_eval(self._plain, self._queue.model.call(EnqueueMany(tuple(drafts)).stamped(void_ms)))
        return leases

    def _free(self) -> int:
        """Number of jobs in the claimable lane."""
        return int(self._plain.zcard(self._queue.model.keys.lane(NAME)))  # pyright: ignore[reportArgumentType]

    def _finish(self, taken: list[tuple[Lease, ...]]) -> None:
        for leases in taken:
            run_as_eval(self._plain, self._queue.model.call(Finish(leases)))
        self._plain.delete(self._queue.model.keys.done)


def _bound(cell: Cell, claims: int) -> Callable[[], float]:
    return lambda: cell.run(claims)


def _span(values: list[float]) -> float:
    return max(values) / min(values)
