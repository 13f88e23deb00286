"""Snapshots: one instant, counted by the queue itself, or not taken at all."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chaos import snapshot
from engine import NewJob, Queue, Snapshot
from record.history import HistoryFile, load_file

#: More than two pages.
MANY = 2_100


class Watched(Queue):
    """A real queue to which something happens with each listing."""

    beside: Callable[[Snapshot], Snapshot] = staticmethod(lambda seen: seen)
    listings = 0

    def snapshot(self) -> Snapshot:
        self.listings += 1
        return self.beside(super().snapshot())


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Watched]:
    queue = Watched("snapshots", url=ironclaim_url)
    yield queue
    queue.close()


def enqueue(queue: Queue, jobs: int, **options: Any) -> None:
    queue.enqueue_many([NewJob("email", None, **options) for _ in range(jobs)])


def joined(queue: Queue, seen: Snapshot) -> Snapshot:
    """A job comes in beside the listing."""
    enqueue(queue, 1)
    return seen


def take(queue: Queue, folder: Path) -> tuple[str, dict[str, tuple[int, list[str]]]]:
    """The complaint, and per state the count and the jobs that the rows say."""
    harness = HistoryFile(folder / "harness.jsonl", proc="harness", role="harness")
    complaint = snapshot.take(queue, harness, "end")
    harness.close()
    states: dict[str, tuple[int, list[str]]] = {}
    for row in load_file(folder / "harness.jsonl").rows:
        if row["kind"] == "final":
            _, jobs = states.get(row["state"], (0, []))
            states[row["state"]] = (row["count"], jobs + [item["job"] for item in row["items"]])
    return complaint, states


def test_a_quiet_queue_of_many_pages_is_listed_in_full(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, MANY)
    enqueue(queue, 3, delay_ms=3_600_000)
    complaint, states = take(queue, tmp_path)
    assert (complaint, queue.listings) == ("", 1)
    others = dict.fromkeys(("active", "dead", "done", "blocked"), (0, 0))
    found = {state: (count, len(set(jobs))) for state, (count, jobs) in states.items()}
    assert found == {"waiting": (MANY, MANY), "delayed": (3, 3), **others}


def test_a_job_that_is_not_listed_is_counted(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, 5)
    queue.beside = lambda seen: Snapshot(seen.srv_us, {**seen.states, "waiting": seen.states["waiting"][1:]})
    complaint, states = take(queue, tmp_path)
    count, jobs = states["waiting"]
    assert (complaint, count, len(jobs), queue.listings) == ("", 5, 4, snapshot.TRIES)


def test_many_pages_of_a_queue_that_keeps_moving_are_not_recorded(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, MANY)

    queue.beside = partial(joined, queue)
    complaint, states = take(queue, tmp_path)
    assert complaint.startswith("the snapshot 'end' was not taken: the queue kept moving while its 2")
    assert states == {}


def test_a_queue_that_comes_to_rest_is_listed_again(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, MANY)

    def move_twice(seen: Snapshot) -> Snapshot:
        enqueue(queue, int(queue.listings <= 2))
        return seen

    queue.beside = move_twice
    complaint, states = take(queue, tmp_path)
    assert (complaint, queue.listings) == ("", 3)
    assert states["waiting"][0] == len(set(states["waiting"][1])) == MANY + 2


def test_one_page_is_one_instant_also_of_a_queue_that_moves(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, 5)

    queue.beside = partial(joined, queue)
    complaint, states = take(queue, tmp_path)
    assert (complaint, queue.listings, states["waiting"][0], len(states["waiting"][1])) == ("", 1, 5, 5)


def test_a_job_that_finished_between_two_pages_is_not_in_two_states(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, 5)

    def finish_once(seen: Snapshot) -> Snapshot:
        """The first listing has a job in two states, because the queue moved; later ones have not."""
        if queue.listings > 1:
            return seen
        enqueue(queue, 1)
        return Snapshot(seen.srv_us, {**seen.states, "done": seen.states["waiting"][:1]})

    queue.beside = finish_once
    complaint, states = take(queue, tmp_path)
    assert (complaint, queue.listings, states["done"]) == ("", 2, (0, []))


def test_a_job_in_two_states_of_a_quiet_queue_is_recorded(queue: Watched, tmp_path: Path) -> None:
    enqueue(queue, 1)
    queue.beside = lambda seen: Snapshot(seen.srv_us, {**seen.states, "done": seen.states["waiting"]})
    complaint, states = take(queue, tmp_path)
    assert complaint == "" and states["waiting"][1] == states["done"][1] != []
