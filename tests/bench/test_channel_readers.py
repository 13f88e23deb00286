"""What each kind of subscriber does with what it fetches, on a real server; the times between are made short."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import engine
from bench.channels import opening, reading
from bench.channels.workload import LONG_MS, Kind, PlannedChannel, PlannedSubscriber
from engine import testing
from engine.channel import replies
from tests.bench.real_parts import rows_of, wait_until


class Stage:
    """One subscriber of a kind on a thread, and a publisher beside it."""

    def __init__(self, url: str, history: Path) -> None:
        self._place = opening.Place(url, history=history)
        self._history = history
        self.reported: list[tuple[str, str, float | None, Exception | None]] = []
        self.client: Any = redis.Redis.from_url(url, decode_responses=True)
        self._threads: list[threading.Thread] = []

    def begin(self, kind: Kind) -> None:
        one = PlannedSubscriber("reader", kind, "subscriber-1")
        self.planned = PlannedChannel("ch", "fan-out 1", 1.0, LONG_MS, (one,))
        self.readers = reading.Readers(self._place, seed=1, report=lambda *told: self.reported.append(told))
        reader = self.readers.reader((self.planned, one))
        self._threads.append(threading.Thread(target=reader.run, daemon=True))
        self._publisher = self._place.open(self.planned, None)[0]
        self._threads[-1].start()
        wait_until(lambda: self.rows("subscribe"), "the subscription")

    def publish(self, *ids: str) -> None:
        for id in ids:
            self._publisher.publish(id, {"intended_ns": 0})

    def read_one(self, kind: Kind) -> None:
        """Begin, and let the subscriber read one message."""
        self.begin(kind)
        self.publish("a")
        wait_until(lambda: self.acknowledged() == [1], "the acknowledgement")

    def rows(self, operation: str) -> list[dict[str, Any]]:
        return [row for row in rows_of(self._history, "operation") if row["f"] == operation and row["type"] == "ok"]

    def fetched(self) -> list[list[str]]:
        """The messages of each fetch that brought some."""
        return [[item["message"] for item in row["items"]] for row in self.rows("fetch") if row["items"]]

    def handed(self) -> list[dict[str, Any]]:
        """What the second witness wrote."""
        return rows_of(opening.sink_of(self._history), "handed")

    def acknowledged(self) -> list[int]:
        return [row["clock"] for row in self.rows("acknowledge") if row["result"] == "OK"]

    def end(self) -> None:
        self.readers.stop(5.0)
        for thread in self._threads:
            thread.join(timeout=120.0)
        self._publisher.close()
        self.client.close()


@pytest.fixture
def stage(server: testing.EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Its subscriber works and looks quickly, and misuses nothing."""
    quick = {"WORK_S": (0.0, 0.1), "LAZY_S": 0.01, "LAG_S": 0.02, "MISUSE_SHARE": 0.0, "THERE_S": (0.0, 0.0), "AWAY_S": 60.0}
    for name, value in {"CATCH_UP_WAIT_MS": 50, **quick}.items():
        monkeypatch.setattr(reading, name, value)
    made = Stage(server.url, tmp_path / "subscriber-1.jsonl")
    yield made
    made.end()


def test_a_usual_one_acknowledges_each_batch(stage: Stage) -> None:
    stage.read_one("usual")
    stage.publish("b", "c")
    wait_until(lambda: stage.acknowledged()[-1:] == [3], "the last acknowledgement")
    assert [id for ids in stage.fetched() for id in ids] == ["a", "b", "c"]
    assert [told[0] for told in stage.reported].count("delivery") == 3
    assert all(told[3] is None for told in stage.reported)


def test_what_a_caller_was_handed_is_written_down_before_it_is_acknowledged(stage: Stage) -> None:
    stage.begin("usual")
    stage.publish("a", "b")
    wait_until(lambda: stage.acknowledged()[-1:] == [2], "the acknowledgement")
    fetches = [row for row in stage.rows("fetch") if row["items"]]
    assert [row["items"] for row in stage.handed()] == [row["items"] for row in fetches]
    for handed, fetch, acknowledge in zip(stage.handed(), fetches, stage.rows("acknowledge"), strict=True):
        assert handed["first_send_ns"] <= fetch["first_send_ns"] <= fetch["done_ns"] <= handed["done_ns"]
        assert handed["t_ns"] <= acknowledge["first_send_ns"]
        assert (handed["channel"], handed["subscriber"], handed["lost"]) == ("ch", "reader", 0)


def test_a_client_that_changes_what_it_hands_out_is_written_down_as_it_is(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    clean: Any = replies.page

    def page(*arguments: Any) -> Any:
        found = clean(*arguments)
        changed = [engine.Message(one.id, {**one.content, "other": 1}, one.clock) for one in found.messages]
        return found._replace(messages=(*changed, *changed))

    monkeypatch.setattr(replies, "page", page)
    stage.read_one("usual")
    (fetch,) = (row for row in stage.rows("fetch") if row["items"])
    (handed,) = stage.handed()
    assert [item["message"] for item in handed["items"]] == ["a", "a"]
    assert handed["items"][0]["crc"] != fetch["items"][0]["crc"]


def test_a_lazy_one_is_given_everything_twice(stage: Stage) -> None:
    stage.read_one("lazy")
    assert (stage.fetched(), [told[0] for told in stage.reported].count("delivery")) == ([["a"], ["a"]], 1)


def test_a_slow_one_works_before_it_acknowledges(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WORK_S", (0.2, 0.2))
    stage.read_one("slow")
    fetch = next(row for row in stage.rows("fetch") if row["items"])
    assert stage.rows("acknowledge")[0]["first_send_ns"] - fetch["done_ns"] >= 0.2e9


def test_a_vanished_one_stays_away_and_comes_back_in_a_hurry(stage: Stage) -> None:
    stage.begin("vanished")
    stage.publish("a", "b")
    assert stage.fetched() == []
    stage.readers.catch_up()
    wait_until(lambda: stage.acknowledged()[-1:] == [2], "everything after all")


def test_one_who_lags_keeps_its_place_and_loses_what_grows_too_old(stage: Stage) -> None:
    stage.begin("lagging")
    stage.publish("a", "b", "c")
    wait_until(lambda: len(stage.fetched()) > 2, "some looks")
    assert stage.fetched()[:2] == [["a"], ["a"]] and stage.acknowledged() == []
    stage.client.delete("c.{ch}.m.1", "c.{ch}.m.2")
    stage.readers.catch_up()
    wait_until(lambda: stage.acknowledged() == [3], "the acknowledgement")
    assert max(row["lost"] or 0 for row in stage.rows("fetch")) == 2


def test_one_whose_subscription_is_gone_subscribes_again(stage: Stage) -> None:
    stage.read_one("usual")
    stage.client.delete("c.{ch}.r.reader")
    # Whoever waits learns it when it is rung, or looks again.
    stage.publish("b")
    wait_until(lambda: len([row for row in stage.rows("subscribe") if row["result"] == "created"]) == 2, "the subscription")
    stage.publish("c")
    wait_until(lambda: stage.fetched()[-1][-1] == "c", "what came after it")


def test_what_must_not_work_is_tried_first_and_recorded(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MISUSE_SHARE", 1.0)
    stage.begin("usual")
    tried: set[str] = set()
    # One of five kinds each time: after 200 none is missing in fewer than 1e-18 of all draws.
    for number in range(200):
        stage.publish(f"m-{number}")
        wait_until(lambda: len(stage.acknowledged()) > number, "its acknowledgement")  # noqa: B023
        tried = {row["name"] for row in rows_of(tmp_path / "subscriber-1.jsonl", "misuse")}
        if len(tried) == 5:
            break
    assert tried == {"tampered", "truncated", "foreign", "old", "beyond"}
    for row in rows_of(tmp_path / "subscriber-1.jsonl", "misuse"):
        assert row["result"] == ("stale" if row["name"] in ("old", "beyond") else "malformed")
        assert (row["channel"], row["subscriber"]) == ("ch", "reader")
    assert all(told[3] is None for told in stage.reported)


def test_one_that_was_taken_is_reported_as_a_failure(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MISUSE_SHARE", 1.0)
    monkeypatch.setattr(engine.Channel, "acknowledge", lambda *_: type("Answer", (), {"result": "OK"}))
    stage.begin("usual")
    stage.publish("a")
    wait_until(lambda: any("was taken" in str(told[3]) for told in stage.reported), "the failure")
    assert {row["result"] for row in rows_of(stage.readers._place.history, "misuse")} == {"OK"}  # pyright: ignore


def test_a_cut_connection_is_no_end(stage: Stage) -> None:
    stage.begin("usual")
    stage.client.client_kill_filter(_type="normal", skipme=True)
    stage.client.client_kill_filter(_type="pubsub", skipme=True)
    stage.publish("a")
    wait_until(lambda: stage.acknowledged() == [1], "the acknowledgement")
