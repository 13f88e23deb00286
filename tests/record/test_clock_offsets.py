"""The rows by which a process says how its clock stands to the server's."""

import time
from pathlib import Path

import pytest

from engine import Queue
from record.history import HistoryFile, load_file
from record.recorder import ClockOffsets, Recorder

S = 1_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> HistoryFile:
    """A history file."""
    return HistoryFile(tmp_path / "worker-1.jsonl", proc="worker-1", role="worker")


def measures(file: HistoryFile) -> list[tuple[int, int, int]]:
    """What the file says: send, reply, and the server's time."""
    return [(row["first_send_ns"], row["done_ns"], row["srv_us"]) for row in load_file(file.path).rows if row["kind"] == "offset"]


def test_the_first_call_the_best_of_each_period_and_the_last_are_written(file: HistoryFile) -> None:
    offsets = ClockOffsets(file)
    calls = [(1.0, 0.5), (2.0, 0.2), (3.0, 0.1), (4.0, 0.3), (8.0, 0.9), (12.0, 0.4), (13.0, 0.1), (14.0, 0.2), (15.0, 0.6)]
    told = {at_s: (int(at_s * S), int((at_s + took_s) * S), int(at_s * 1_000)) for at_s, took_s in calls}
    for call in told.values():
        offsets.learn(*call)
    assert measures(file) == [told[1.0], told[3.0]]
    offsets.end()
    offsets.end()
    assert measures(file) == [told[at_s] for at_s in (1.0, 3.0, 13.0, 15.0)]


def test_a_period_ends_with_the_first_call_that_is_done_at_its_end(file: HistoryFile) -> None:
    offsets = ClockOffsets(file, period_ns=10)
    for sent_ns, done_ns, srv_us in ((0, 0, 1), (4, 8, 2), (5, 10, 3), (12, 19, 4)):
        offsets.learn(sent_ns, done_ns, srv_us)
    assert measures(file) == [(0, 0, 1), (4, 8, 2)]
    offsets.end()
    assert measures(file) == [(0, 0, 1), (4, 8, 2), (12, 19, 4)]


def test_a_recorded_queue_measures_its_clock_by_its_own_calls(file: HistoryFile, ironclaim_url: str) -> None:
    recorder, before = Recorder(file, queue="q"), (time.monotonic_ns(), time.time_ns())
    with Queue("q", url=ironclaim_url, observer=recorder) as queue:
        for _ in range(3):
            queue.enqueue("job", {})
    after = time.monotonic_ns(), time.time_ns()
    recorder.close()
    found = measures(file)
    assert 2 <= len(found) <= 3 and all(before[0] <= sent_ns < done_ns <= after[0] for sent_ns, done_ns, _ in found)
    assert all(before[1] <= (srv_us + 1) * 1_000 and srv_us * 1_000 <= after[1] for *_, srv_us in found)
