"""What the harness learns of publishers and subscribers from their histories while they write them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos import rows
from chaos.channels.watch import ChannelWatch, Reader
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from record.history import HistoryFile

READER = Reader("orders", "reader")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[ChannelWatch]:
    made = ChannelWatch(tmp_path)
    made.follow("subscriber-1")
    made.follow("subscriber-2")
    yield made
    made.close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, HistoryFile]:
    names = ("subscriber-1", "subscriber-2")
    return {name: HistoryFile(tmp_path / f"{name}.jsonl", proc=name, role="subscriber") for name in names}


def answered(f: str, *items: dict[str, Any], **more: Any) -> str:
    columns = {"channel": "orders", "subscriber": "reader", "last_send_ns": 5, "done_ns": 7, "srv_us": 1, **more}
    return rows.body("operation", f=f, type="ok", op="1", items=list(items), **columns)


def test_messages_are_counted_once_published_and_each_time_delivered(watch: ChannelWatch, files: dict[str, HistoryFile]) -> None:
    created, duplicate = {"message": "a", "clock": 1, "result": "created"}, {"message": "b", "clock": 2, "result": "duplicate"}
    files["subscriber-1"].append([answered("publish", created, duplicate, sends=1)])
    files["subscriber-1"].append([answered("fetch", {"message": "a", "clock": 1})] * 2)
    watch.poll()
    assert (watch.created(), watch.finished()) == (1, 2)
    # The load publishes some twice on purpose: only one that was sent again is a repetition.
    assert watch.channels("subscriber-1").repeated_ns == {}
    files["subscriber-1"].append([answered("publish", duplicate, sends=2, done_ns=9)])
    watch.poll()
    assert watch.channels("subscriber-1").repeated_ns == {"publish": 9}


def test_what_was_delivered_is_in_hand_until_it_is_acknowledged(watch: ChannelWatch, files: dict[str, HistoryFile]) -> None:
    file, view = files["subscriber-1"], watch.channels("subscriber-1")
    file.append([answered("fetch", {"message": "a", "clock": 3}, {"message": "b", "clock": 4}, done_ns=11)])
    watch.poll()
    assert view.unread == {READER: (4, 11)}
    file.append([answered("acknowledge", result="stale")])
    watch.poll()
    assert view.unread == {READER: (4, 11)}
    file.append([answered("fetch"), answered("acknowledge", result="OK")])
    watch.poll()
    assert view.unread == {}


def test_a_subscriber_is_ready_once_it_was_answered(watch: ChannelWatch, files: dict[str, HistoryFile]) -> None:
    files["subscriber-1"].append([answered("subscribe", result="exists")])
    files["subscriber-2"].append([answered("fetch", subscriber="other")])
    watch.poll()
    assert watch.channels("subscriber-1").ready == {READER}
    assert watch.channels("subscriber-2").ready == {Reader("orders", "other")}
    assert watch.channels("nobody").ready == set()


AGAIN = [(3, True), (4, True), (5, False), (CLOCK_MIN, False)]


@pytest.mark.parametrize(("first", "again"), AGAIN, ids=["before", "the same", "after", "wrapped"])
def test_what_was_in_hand_comes_again(first: int, again: bool, watch: ChannelWatch, files: dict[str, HistoryFile]) -> None:
    in_hand = CLOCK_MAX if first == CLOCK_MIN else 4
    files["subscriber-2"].append([answered("fetch", {"message": "x", "clock": first})])
    # What comes later says nothing: it reads on.
    files["subscriber-2"].append([answered("fetch", {"message": "y", "clock": first + 3})])
    watch.poll()
    assert watch.delivered_again("subscriber-2", {READER: in_hand}) == ([READER] if again else [])
    assert watch.delivered_again("subscriber-1", {READER: in_hand}) == []
