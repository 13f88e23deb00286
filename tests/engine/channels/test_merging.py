"""Several storages: written to all, read from all, merged by message id; one that works is enough. Storages in memory, of which
the test takes one away, by a carrier of steps without threads."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Self

import pytest

from engine import errors
from engine.channel import memory, replies, session_state, several_storages
from engine.channel.steps import Opening, Round, Steps
from engine.models.dsps import CLOCK_MAX
from engine.ops.channels import Acknowledged, Fetch, Fetched, NewMessage, Publish, Subscribe, Unsubscribe
from engine.redis.exchange import Sent
from tests.engine.using import refused, then

TTL_S, LATER_MS = 315, 2**52


class Desk:
    """A channel with storages `a` and `b`, under a clock that the test moves."""

    def __init__(self, ttl_s: int = TTL_S) -> None:
        self.now_s, self.ttl_s = 1000.0, ttl_s
        self.storages = {id: memory.MemoryStorage(now_ns=self.now_ns) for id in ("a", "b")}
        self.down: dict[str, errors.EngineError] = {}
        self.silent: set[str] = set()
        self.asked: list[Round] = []
        self.steps = self.another()

    def now_ns(self) -> int:
        return int(self.now_s * 1e9)

    def another(self) -> several_storages.SeveralStorages:
        """What another process has, that knows nothing."""
        states = {id: session_state.SessionState(self.ttl_s) for id in self.storages}
        return several_storages.SeveralStorages("ch", states, self.now_ns)

    def run(self, steps: Steps[Any]) -> Any:
        try:
            request = next(steps)
            while True:
                assert isinstance(request, Round)
                self.asked.append(request)
                request = steps.send(self._answers(request))
        except StopIteration as end:
            return end.value

    def _answers(self, asked: Round) -> dict[str, list[Sent | errors.EngineError]]:
        answers: dict[str, list[Sent | errors.EngineError]] = {}
        for id, asks in asked.asks.items():
            if id in self.down:
                answers[id] = [self.down[id]] * len(asks)
            elif id not in self.silent:
                answers[id] = self.storages[id].open(Opening("ch")).send_many(asks)
        if len(answers) < len(asked.asks):
            assert asked.enough is not None and any(map(asked.enough, answers.values())), "nobody would return yet"
        return answers

    @contextmanager
    def without(self, *storages: str, error: errors.EngineError | None = None) -> Iterator[None]:
        """These are away; some time after they have come back all are asked again."""
        self.down = dict.fromkeys(storages, error or errors.ServerUnavailable("away"))
        yield
        self.down.clear()
        self.now_s += 0.6

    def publish(self, *ids: str) -> Any:
        return [self.run(self.steps.publish(NewMessage(id, b"1"), None)) for id in ids]

    def publish_to(self, storage: str, *ids: str, ttl_s: int = TTL_S) -> Self:
        self.storages[storage].apply("ch", Publish(tuple(NewMessage(id, b"1") for id in ids), ttl_s, not_after_ms=LATER_MS))
        return self

    def subscribe(self) -> Any:
        return self.run(self.steps.subscribe("s"))

    def fetch(self, most: int = 64) -> Fetched:
        return self.run(self.steps.fetch("s", most))[0]

    def acknowledge(self, found: Fetched) -> Any:
        assert found.receipt is not None
        return self.run(self.steps.acknowledge("s", found.receipt))

    subscribed, published, fetched, acknowledged = map(then, ("subscribe", "publish", "fetch", "acknowledge"))

    def later(self, s: float) -> Self:
        self.now_s += s
        return self

    def backup(self, storage: str) -> Callable[[], None]:
        """A storage as it is now; what this returns puts it back, at some later instant."""
        kept = deepcopy(self.storages[storage]._state)

        def restore() -> None:
            self.storages[storage]._state = kept
            self.now_s += 0.1

        return restore

    def unread(self, storage: str) -> list[int]:
        return [at for at, _ in self.storages[storage].apply("ch", Fetch("s", 64, self.ttl_s)).items]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def ids(found: Fetched) -> list[str]:
    return [message.id for message in found.messages]


def parts(found: Fetched) -> dict[str, int]:
    """The clocks of a receipt."""
    assert found.receipt is not None
    return {id: replies.read_inner("ch", "s", part) for id, part in replies.read_outer(found.receipt).items()}


def test_a_message_is_written_to_all_read_once_and_acknowledged_in_all(desk: Desk) -> None:
    assert desk.subscribe().created and not desk.subscribe().created
    assert [(one.result, one.clock) for one in desk.publish("x", "y", "x")] == [("created", 1), ("created", 2), ("duplicate", 1)]
    found = desk.fetch()
    assert ids(found) == ["x", "y"] and parts(found) == {"a": 2, "b": 2} and not found.more_messages and found.lost == 0
    assert desk.acknowledge(found).result == "OK" and desk.acknowledge(found).result == "stale"
    assert (desk.unread("a"), desk.unread("b")) == ([], []) and desk.fetch().receipt is None
    assert desk.run(desk.steps.are_old("s", ("x", "y", "z"))) == {"x": True, "y": True, "z": False}
    assert desk.run(desk.steps.unsubscribe("s")) is True and desk.run(desk.steps.unsubscribe("s")) is False


@pytest.mark.parametrize("restored", [False, True])
def test_a_receipt_for_a_part_of_a_batch_is_held_against_all_of_it(desk: Desk, restored: bool) -> None:
    """Of storage a only the first message is delivered; the second one tells that it has another history now."""
    restore = desk.subscribed().publish_to("a", "x").backup("a")
    found = desk.publish_to("a", "lost").publish_to("b", "y", "x").fetch(2)
    assert ids(found) == ["y", "x"] and parts(found) == {"a": 1, "b": 2}
    if restored:
        restore()
        desk.publish_to("a", "other")
    assert desk.acknowledge(found) == Acknowledged("OK", restored)
    assert (desk.unread("a"), desk.unread("b")) == ([1, 2] if restored else [2], [])
    assert ids(desk.fetch()) == ["other" if restored else "lost"]


def test_one_storage_that_works_is_enough_and_the_other_is_left_out(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ironclaim.channel")
    desk.subscribe()
    desk.down["b"] = errors.ServerUnavailable("away")
    assert desk.publish("x")[0].created
    desk.publish("y", "z")
    assert [set(asked.asks) for asked in desk.asked[-3:]] == [{"a", "b"}, {"a"}, {"a"}]
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "storage b" in caplog.text
    desk.later(0.6).publish("u")
    assert set(desk.asked[-1].asks) == {"a", "b"} and desk.asked[-1].enough is not None, "it is not waited for"
    desk.later(0.6).publish("v")
    assert set(desk.asked[-1].asks) == {"a"}, "left out for longer each time"
    desk.down.clear()
    desk.later(0.6).publish("w")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert ids(desk.fetch()) == ["x", "y", "z", "u", "v", "w"] and desk.unread("b") == [1]


def test_one_that_does_not_answer_while_it_is_tried_stays_left_out(desk: Desk) -> None:
    with desk.subscribed().without("b", error=errors.OutcomeUnknown("cut")):
        desk.publish("x")
    desk.silent.add("b")
    for asked in ({"a", "b"}, {"a"}):
        assert ids(desk.fetch()) == ["x"] and set(desk.asked[-1].asks) == asked


def test_it_fails_only_when_all_do_and_says_the_worst(desk: Desk) -> None:
    desk.subscribe()
    desk.down = {"a": errors.ServerUnavailable("away"), "b": errors.OutcomeUnknown("cut")}
    refused(errors.OutcomeUnknown, None, desk.publish, "x")
    desk.down["b"] = errors.ServerUnavailable("away")
    known = desk.steps
    for steps in (known.fetch("s", 1), known.subscribe("t"), known.unsubscribe("s"), known.are_old("s", ("x",))):
        refused(errors.ServerUnavailable, None, desk.run, steps)
    assert set(desk.asked[-1].asks) == {"a", "b"}, "all are left out, so all are asked"


def test_a_bulk_counts_each_message_that_one_storage_took(desk: Desk) -> None:
    bulk = [(NewMessage("x", b"1"), NewMessage("y", b"2")), (NewMessage("z", b"3"),)]
    came = desk.publish_to("b", "y").run(desk.steps.publish_many(bulk, None))
    assert [(one.result, one.clock) for one in came] == [("created", 1), ("duplicate", 2), ("created", 3)]
    with desk.without("a", "b"), pytest.raises(errors.ServerUnavailable):
        desk.run(desk.steps.publish_many(bulk, None))


def test_a_bulk_that_stops_in_the_middle_says_what_came_of_each(desk: Desk) -> None:
    steps = desk.steps.publish_many([(NewMessage(f"m{n}", b"1"),) for n in range(20)], None)
    first = next(steps)
    assert isinstance(first, Round)
    second = steps.send(desk._answers(first))
    assert isinstance(second, Round) and len(second.asks["a"]) == 8
    raised = refused(errors.PartlyPublished, None, steps.send, {id: [errors.OutcomeUnknown("cut")] * 8 for id in second.asks})
    assert [isinstance(result, errors.EngineError) for result in raised.results] == [False] * 8 + [True] * 12


def test_what_one_storage_lacks_comes_from_the_other_and_where_it_belongs(desk: Desk) -> None:
    desk.subscribed().published("x").publish_to("b", "only-b").publish("y")
    found = desk.publish_to("a", "only-a").fetch()
    assert ids(found) == ["x", "only-b", "y", "only-a"] and parts(found) == {"a": 3, "b": 3}
    desk.acknowledge(found)
    assert (desk.unread("a"), desk.unread("b")) == ([], [])


def test_what_was_acknowledged_in_one_storage_alone_comes_no_more_from_the_other(desk: Desk) -> None:
    found = desk.subscribed().published("x", "y").fetch()
    with desk.without("a"):
        assert desk.acknowledge(found).result == "OK"
    desk.publish("z")
    assert (desk.unread("a"), desk.unread("b")) == ([1, 2, 3], [3]) and ids(desk.fetch()) == ["z"]
    desk.acknowledge(desk.fetch())
    assert (desk.unread("a"), desk.unread("b")) == ([], [])


def test_a_storage_that_only_has_old_messages_catches_up(desk: Desk) -> None:
    found = desk.subscribed().published(*[f"m{n}" for n in range(10)]).fetch()
    with desk.without("a"):
        desk.acknowledge(found)
    assert ids(desk.fetch(4)) == [] and desk.unread("a") == [], "without being told to, and all of it"


def test_a_subscriber_is_created_where_only_others_know_it_and_keeps_what_it_has_not_read(desk: Desk) -> None:
    desk.storages["a"].apply("ch", Subscribe("s", "a" * 16, TTL_S, not_after_ms=LATER_MS))
    desk.publish("x", "y")
    for _ in range(2):
        assert ids(desk.fetch()) == ["x", "y"], "storage b calls them old, for it knows the subscriber only since they were there"
    assert desk.unread("b") == []
    found = desk.published("z").fetch()
    assert ids(found) == ["x", "y", "z"]
    desk.acknowledged(found).publish("u", "v")
    desk.storages["a"].apply("ch", Unsubscribe("s", "b" * 16, not_after_ms=LATER_MS))
    assert ids(desk.fetch()) == ["u", "v"], "the subscriber of storage b lives on"


def test_a_subscriber_that_was_given_back_is_believed_in_the_end(desk: Desk) -> None:
    desk.storages["a"].apply("ch", Subscribe("s", "a" * 16, TTL_S, not_after_ms=LATER_MS))
    assert ids(desk.published("x").fetch()) == ["x"]
    desk.later(16).publish_to("b", "underway").acknowledged(desk.fetch()).fetch()
    found = desk.published("y").fetch()
    with desk.without("a"):
        desk.acknowledge(found)
    assert ids(desk.fetch()) == [] and desk.unread("a") == [] and desk.steps._suspects._suspects == {}


def test_no_more_than_asked_for_and_the_receipt_covers_no_other(desk: Desk) -> None:
    assert ids(desk.subscribed().publish_to("a", "x", "y").publish_to("b", "y", "z", "x").fetch()) == ["x", "y", "z"]
    found = desk.fetch(2)
    assert ids(found) == ["x", "y"] and found.more_messages and parts(found) == {"a": 2, "b": 1}
    assert ids(desk.acknowledged(found).fetch()) == ["z"] and desk.unread("b") == [2, 3]
    assert desk.acknowledged(desk.fetch()).unread("b") == [] and desk.fetch(0).messages == ()


def test_lost_is_what_no_storage_delivers(desk: Desk) -> None:
    desk.subscribed().publish_to("a", "x", "y", ttl_s=20).publish_to("b", "x", ttl_s=20).publish_to("b", "y")
    found = desk.published("z").later(21).fetch()
    assert (ids(found), found.lost) == (["y", "z"], 1)
    desk.acknowledge(found)
    for storage in ("a", "b"):
        desk.publish_to(storage, "short", ttl_s=20)
    found, speaks = desk.subscribed().later(21).run(desk.steps.fetch("s", 64))
    assert (found.lost, found.messages, speaks) == (1, (), True) and parts(found) == {"a": 4, "b": 4}
    assert (desk.acknowledge(found).result, desk.run(desk.steps.fetch("s", 64))) == ("OK", (Fetched(), False))


def test_a_batch_across_the_wrap_of_one_storage(desk: Desk) -> None:
    desk.storages["a"].apply("ch", Subscribe("s", "a" * 16, TTL_S, CLOCK_MAX - 1, not_after_ms=LATER_MS))
    found = desk.subscribed().published("x", "y", "z").fetch()
    assert [message.clock for message in found.messages] == [CLOCK_MAX, -CLOCK_MAX, 1 - CLOCK_MAX]
    assert parts(found) == {"a": 1 - CLOCK_MAX, "b": 3} and found.lost == 0
    assert desk.acknowledge(found).result == "OK" and desk.fetch().messages == ()


def test_a_storage_with_messages_gives_the_others_a_moment(desk: Desk) -> None:
    desk.subscribed().publish_to("a", "x").silent.add("b")
    assert ids(desk.fetch()) == ["x"] and parts(desk.fetch()) == {"a": 1} and desk.asked[-1].late_ms == 300


def test_it_is_missing_when_all_miss_it(desk: Desk) -> None:
    receipt = replies.outer({id: replies.inner("ch", "s", 1) for id in "ab"})
    for expected in (errors.ChannelNotFound, errors.SubscriptionNotFound):
        for steps in (desk.steps.fetch("s", 1), desk.steps.acknowledge("s", receipt), desk.steps.are_old("s", ("x",))):
            refused(expected, None, desk.run, steps)
        # Now there is a channel, at least.
        desk.publish_to("b", "x")


def test_of_a_receipt_the_parts_count_whose_storages_there_are(desk: Desk) -> None:
    desk.subscribed().publish("x")
    inner = replies.inner("ch", "s", 1)
    refused(errors.Malformed, "^receipt: ", desk.run, desk.steps.acknowledge("s", replies.outer({"gone": inner})))
    for bad in (replies.inner("ch", "t", 1), inner.replace("1", "2", 1), "{}"):
        refused(errors.Malformed, "^receipt: ", desk.run, desk.steps.acknowledge("s", replies.outer({"a": inner, "b": bad})))
    assert desk.unread("a") == desk.unread("b") == [1], "nothing was acknowledged"
    assert desk.run(desk.steps.acknowledge("s", replies.outer({"gone": inner, "b": inner}))).result == "OK"
    assert (desk.unread("a"), desk.unread("b")) == ([1], []) and ids(desk.fetch()) == []


def test_a_clock_that_went_back_in_one_storage_is_told(desk: Desk) -> None:
    desk.subscribed().published("x").acknowledge(desk.fetch())
    desk.storages["b"] = memory.MemoryStorage(now_ns=desk.now_ns)
    desk.storages["b"].apply("ch", Subscribe("s", "b" * 16, TTL_S, not_after_ms=LATER_MS))
    assert desk.publish("y")[0].era_changed
    found = desk.fetch()
    assert (ids(found), found.era_changed) == (["y"], True)
    assert desk.acknowledge(found).result == "OK" and not desk.fetch().era_changed


def test_one_damaged_key_is_said_once_and_takes_no_storage_away(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.subscribe()
    desk.down = {"a": errors.WrongKeyType("fetch: the server answered WRONGTYPE the key c.{ch}.r.s is a list")}
    for _ in range(3):
        assert not desk.fetch().messages
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "c.{ch}.r.s" in caplog.text
    desk.down = {}
    caplog.clear()
    desk.publish("m1")
    assert set(desk.asked[-1].asks) == {"a", "b"} and not caplog.records
