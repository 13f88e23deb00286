"""Several storages under Hypothesis, of which some are away now and then: what was published is delivered, whichever storage took
what, and what a storage that is asked knows to be acknowledged does not come again."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ChannelNotFound, EngineError, OutcomeUnknown, ServerUnavailable, SubscriptionNotFound
from engine.ops.channels import AskOld, Fetched, NewMessage
from tests.engine.channels.test_merging import Desk, ids, parts
from tests.walks import examples

#: Nothing expires in a walk.
TTL_S = 100_000
FAILURES = (ServerUnavailable("away"), OutcomeUnknown("cut"))


class Walk:
    """One walk. Every choice is Hypothesis's."""

    def __init__(self, dice: Random) -> None:
        self.dice, self.desk = dice, Desk(TTL_S)
        self.published: list[str] = []
        #: Messages that some storage has for the subscriber; where which are acknowledged; those that came.
        self.owed: set[str] = set()
        self.over: dict[str, set[str]] = {"a": set(), "b": set()}
        self.came: set[str] = set()
        self.last: Fetched | None = None
        if dice.random() < 0.5:
            self.desk.down["b"] = FAILURES[0]
        self.desk.subscribe()

    def step(self) -> None:
        moves = (self.publish, self.publish, self.fetch, self.fetch, self.acknowledge, self.acknowledge, self.outage, self.time)
        self.dice.choice(moves)()

    def attempt(self, steps: Any) -> tuple[Any, set[str]]:
        """What came of it: None when all failed, the error where none knows the subscriber. And which answered first."""
        asked = len(self.desk.asked)
        try:
            result = self.desk.run(steps)
        except (OutcomeUnknown, ServerUnavailable):
            result = None
        except (ChannelNotFound, SubscriptionNotFound) as error:
            result = error
        return result, {id for round in self.desk.asked[asked : asked + 1] for id in round.asks if id not in self.desk.down}

    def outage(self) -> None:
        id = self.dice.choice("ab")
        if id in self.desk.down:
            del self.desk.down[id]
        else:
            self.desk.down[id] = self.dice.choice(FAILURES)

    def time(self) -> None:
        self.desk.now_s += self.dice.choice((0.1, 0.6, 2, 20))

    def publish(self) -> None:
        new = not self.published or self.dice.random() < 0.8
        id = f"m{len(self.published)}" if new else self.dice.choice(self.published)
        fresh = not any(id in self.ids_in(place) for place in "ab")
        places = {place for place in "ab" if self.ask(place).result == "ok"}
        result, _ = self.attempt(self.desk.steps.publish(NewMessage(id, b"1"), None))
        if new:
            self.published.append(id)
        # One that is sent again may be of a time when only a storage was there that did not know the subscriber.
        if result is not None and fresh and any(id in self.ids_in(place) for place in places):
            self.owed.add(id)

    def fetch(self) -> None:
        result, asked = self.attempt(self.desk.steps.fetch("s", self.dice.choice((1, 2, 5, 64))))
        if isinstance(result, EngineError):
            assert {self.ask(place).result for place in asked} <= {"channel-not-found", "subscription-not-found"}
        if result is None or isinstance(result, EngineError):
            return
        self.last = result[0]
        again = {place for place in asked if not self.in_doubt(place) and self.over[place] & set(ids(result[0]))}
        assert again == set(), "acknowledged there"
        assert len(set(ids(result[0]))) == len(ids(result[0]))
        self.came |= set(ids(result[0]))

    def acknowledge(self) -> None:
        if self.last is None or self.last.receipt is None:
            return
        _, answered = self.attempt(self.desk.steps.acknowledge("s", self.last.receipt))
        for place in answered & set(parts(self.last)):
            self.over[place] |= {id for id in ids(self.last) if self.ask(place, id).old == (True,)}

    def finish(self) -> None:
        """All are there again, and everything is read."""
        self.desk.down.clear()
        self.desk.now_s += 60
        for _ in range(300):
            self.fetch()
            if self.last is None or self.last.receipt is None:
                break
            self.acknowledge()
        assert self.owed <= self.came and self.desk.unread("a") == self.desk.unread("b") == []

    def ask(self, place: str, *messages: str) -> Any:
        return self.desk.storages[place].apply("ch", AskOld("s", messages))

    def ids_in(self, place: str) -> set[str]:
        """The ids that a storage knows."""
        return {str(key.name) for key in self.desk.storages[place]._state._values._values if key.kind == "mid"}

    def in_doubt(self, place: str) -> bool:
        return ("s", place) in self.desk.steps._suspects._suspects


@pytest.mark.walk
@settings(max_examples=examples(100))
@given(dice=st.randoms(use_true_random=True), steps=st.integers(20, 80))
def test_nothing_is_lost_between_storages(dice: Random, steps: int) -> None:
    walk = Walk(dice)
    for _ in range(steps):
        walk.step()
    walk.finish()
