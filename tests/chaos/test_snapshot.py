"""Snapshots: one instant, counted by the queue itself, or not taken at all."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from chaos import snapshot
from engine import NewJob, Queue, Snapshot
from record.history import HistoryFile, load_file
from tests.golden import same

#: More than two pages.
MANY = 2_100


class Watched(Queue):
    """A real queue to which something happens with each listing."""

    beside: Callable[[Snapshot], Snapshot] = staticmethod(lambda seen: seen)
    listings = 0

    def snapshot(self) -> Snapshot:
        self.listings += 1
        return self.beside(super().snapshot())


def enqueue(queue: Queue, jobs: int, **options: Any) -> None:
    queue.enqueue_many([NewJob("email", None, **options) for _ in range(jobs)])


def take(queue: Queue, file: Path) -> tuple[str, dict[str, tuple[int, list[str]]]]:
    """The complaint, and per state the count and the jobs that the rows say."""
    harness = HistoryFile(file, proc="harness", role="harness")
    complaint = snapshot.take(queue, harness, "end")
    harness.close()
    states: dict[str, tuple[int, list[str]]] = {}
    for row in load_file(file).rows:
        if row["kind"] == "final":
            _, jobs = states.get(row["state"], (0, []))
            states[row["state"]] = (row["count"], jobs + [item["job"] for item in row["items"]])
    return complaint, states


def still(_: Watched, seen: Snapshot) -> Snapshot:
    return seen


def joined(queue: Watched, seen: Snapshot) -> Snapshot:
    """A job comes in beside the listing."""
    enqueue(queue, 1)
    return seen


def joined_twice(queue: Watched, seen: Snapshot) -> Snapshot:
    enqueue(queue, int(queue.listings <= 2))
    return seen


def one_left_out(_: Watched, seen: Snapshot) -> Snapshot:
    return Snapshot(seen.srv_us, {**seen.states, "waiting": seen.states["waiting"][1:]})


def in_two_states(_: Watched, seen: Snapshot) -> Snapshot:
    return Snapshot(seen.srv_us, {**seen.states, "done": seen.states["waiting"][:1]})


def once_in_two_states(queue: Watched, seen: Snapshot) -> Snapshot:
    """Because the queue moved."""
    return in_two_states(queue, joined(queue, seen)) if queue.listings == 1 else seen


#: Jobs that wait, jobs that are delayed, and what happens with each listing; what is recorded stands in a text.
STORIES: dict[str, tuple[int, int, Callable[[Watched, Snapshot], Snapshot]]] = {
    "a quiet queue of many pages is listed in full": (MANY, 3, still),
    "a job that is not listed is counted": (5, 0, one_left_out),
    "many pages of a queue that keeps moving are not recorded": (MANY, 0, joined),
    "a queue that comes to rest is listed again": (MANY, 0, joined_twice),
    "one page is one instant also of a queue that moves": (5, 0, joined),
    "a job that finished between two pages is not in two states": (5, 0, once_in_two_states),
    "a job in two states of a quiet queue is recorded": (1, 0, in_two_states),
}


def test_what_is_recorded(ironclaim_url: str, tmp_path: Path) -> None:
    told: list[str] = []
    for story, (waiting, delayed, beside) in STORIES.items():
        queue = Watched(f"q{len(told)}", url=ironclaim_url)
        with queue:
            enqueue(queue, waiting)
            enqueue(queue, delayed, delay_ms=3_600_000)
            queue.beside = partial(beside, queue)
            complaint, states = take(queue, tmp_path / f"{len(told)}.jsonl")
        found = {state: (count, len(jobs), len(set(jobs))) for state, (count, jobs) in states.items()}
        twice = len({*states["waiting"][1]} & {*states["done"][1]}) if states else None
        # How often one is listed that moves on depends on the machine.
        listed = re.sub("its 2[0-9]{3} open", "its open", complaint) or f"listed {queue.listings} times"
        told.append(f"{story}: {listed}, {found}, {twice} in two states\n")
    same("chaos/snapshots.txt", "".join(told))
