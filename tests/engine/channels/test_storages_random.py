"""Random operations on a server and in memory, under Hypothesis: the same replies, and what a list would say. Clocks begin
anywhere, mostly near the wrap; time goes by in both, so channels, subscribers, messages and answers expire; clocks go back."""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.channel.memory import MemoryStorage
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, clock_after, clock_ahead
from engine.ops import channels as ops
from engine.ops.base import Operation
from tests.engine.channels.channel_desk import NEVER_MS, PAST_MS, ChannelDesk, message
from tests.walks import examples

#: Each example starts from an empty server, and does real I/O.
SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)
#: Lives end between the steps that time makes, at least 150 s from them, so that the time of a walk does not matter.
TTLS_S = (3150, 3150, 1050, 450)
TIMES_S = (300, 600, 1200, 3600)
#: The longest that a walk may take.
WALK_MS = 150_000
STARTS = (None, None, CLOCK_MAX - 3, CLOCK_MAX, CLOCK_MIN, -2, 2**52)
IDS = tuple(f"m{n}" for n in range(40))
SUBSCRIBERS = ("s", "t", "u")


@dataclass
class Sequence:
    """What a list says: each message by its place, without clocks; for each subscriber how many it has behind it.

    Where other settings let the channel live for less, some outlive it. Subscribers of then have no place in the new list; and
    as long as messages of then live (`until_s`), a clock that jumps ahead may bring them back, so the list says nothing."""

    messages: list[tuple[str, int, int]] = field(default_factory=list)
    behind: dict[str, int] = field(default_factory=dict)
    until_s: int = 0

    def published(self, operation: ops.Publish, reply: ops.PublishReply, end_s: int) -> None:
        for asked, item in zip(operation.messages, reply.items, strict=True):
            if item.result == "created" and item.clock is not None:
                self.messages.append((asked.id, item.clock, end_s))

    def forget(self) -> None:
        self.until_s = max((end_s for _, _, end_s in self.messages), default=self.until_s)
        self.messages, self.behind = [], {}

    def fetched(self, operation: ops.Fetch, reply: ops.FetchReply, now_s: int) -> None:
        place = self.behind.get(operation.subscriber)
        if place is None or now_s < self.until_s or reply.result != "ok":
            return
        unread = [(id, at) for id, at, end_s in self.messages[place:] if end_s > now_s]
        expected = [(at, message(id).body()) for id, at in unread[: operation.most]]
        assert list(reply.items) == expected and reply.more == (len(unread) > operation.most)

    def acknowledged(self, operation: ops.Acknowledge) -> None:
        place = self.behind.get(operation.subscriber)
        while place is not None and place < len(self.messages) and not clock_after(self.messages[place][1], operation.clock):
            place += 1
            self.behind[operation.subscriber] = place


class Walk:
    """One walk of all three. Every choice is Hypothesis's."""

    def __init__(self, desk: ChannelDesk, dice: Random) -> None:
        self.desk, self.dice = desk, dice
        self.now_s = 1_000
        self.memory = MemoryStorage(now_ns=lambda: self.now_s * 1_000_000_000)
        self.list = Sequence()
        self.earlier: list[Operation] = []
        self.clock: int | None = None
        self.era = 0
        #: Clocks that fetches ended with, and when what is there expires: on the server, and in memory.
        self.proofs: list[tuple[int, int, int]] = []
        desk.redis.flushall()
        start = dice.choice(STARTS)
        if start is not None:
            self.both(ops.Subscribe("first", desk.nonce(), 315, start, not_after_ms=NEVER_MS))
        self.backup()

    def step(self) -> None:
        moves = (self.publish, self.publish, self.fetch, self.fetch, self.acknowledge, self.acknowledge)
        moves += (self.subscribe, self.subscribe, self.unsubscribe, self.ask_old, self.time, self.copy, self.backup, self.restore)
        self.dice.choice(moves)()
        assert all(end_ms > 0 for end_ms in self.desk.lives().values()), "everything on the server ends"

    def both(self, operation: Operation, in_memory: Operation | None = None) -> Any:
        """The reply, of which only the times differ."""
        wanted: Any = self.memory.apply("chX", in_memory or operation)
        found = self.desk.run(operation)
        turned = found.turned if isinstance(found, ops.FetchReply) else False
        for _ in range(20):
            if not isinstance(found, ops.FetchReply) or not (found.searching or (found.more and not wanted.more)):
                break
            # A server that does not know of its messages looks for them, step by step.
            found = replace(self.desk.run(operation), turned=turned)
        if isinstance(found, ops.FetchReply) and found.proof_ms > 0 < wanted.proof_ms:
            # As far as the test's own run takes no time.
            left_ms = [reply.proof_ms - reply.srv_us // 1000 for reply in (found, wanted)]
            assert abs(left_ms[0] - left_ms[1]) < WALK_MS
            at = found.items[-1][0] if found.items else found.upto
            assert at is not None
            self.proofs.append((at, found.proof_ms, wanted.proof_ms))
            wanted = replace(wanted, proof_ms=found.proof_ms)
        assert replace(found, srv_us=0) == replace(wanted, srv_us=0), operation
        if getattr(found, "clock", None) is not None and not isinstance(operation, ops.AskOld):
            self.clock, self.era = found.clock, getattr(found, "era", self.era)
        return found

    def seen(self) -> int | None:
        """What the caller says it has seen: mostly the truth."""
        if self.clock is None or self.dice.random() < 0.5:
            return None
        return clock_ahead(self.clock, self.dice.choice((0, 0, 0, 0, -1, -5, 3, 2**40)))

    def ttl_s(self) -> int:
        return self.dice.choice(TTLS_S)

    def not_after_ms(self) -> int:
        return NEVER_MS if self.dice.random() < 0.9 else PAST_MS

    def publish(self) -> None:
        ids = self.dice.choices(IDS, k=self.dice.choice((1, 1, 2, 5)))
        operation = ops.Publish(tuple(map(message, ids)), self.ttl_s(), self.seen(), not_after_ms=self.not_after_ms())
        self.list.published(operation, self.both(operation), self.now_s + operation.ttl_s)

    def subscribe(self) -> None:
        who, end_ms = self.dice.choice(SUBSCRIBERS), self.not_after_ms()
        operation = ops.Subscribe(who, self.desk.nonce(), self.ttl_s(), self.seen(), not_after_ms=end_ms)
        self.earlier.append(operation)
        if self.both(operation).result == "created":
            self.list.behind[operation.subscriber] = len(self.list.messages)

    def unsubscribe(self) -> None:
        operation = ops.Unsubscribe(self.dice.choice(SUBSCRIBERS), self.desk.nonce(), not_after_ms=self.not_after_ms())
        self.earlier.append(operation)
        if self.both(operation).result == "deleted":
            self.list.behind.pop(operation.subscriber, None)

    def fetch(self) -> None:
        operation = ops.Fetch(self.dice.choice(SUBSCRIBERS), self.dice.choice((0, 1, 3, 64)), self.ttl_s(), self.seen())
        self.list.fetched(operation, self.both(operation), self.now_s)

    def acknowledge(self) -> None:
        at = self.clock if self.clock is not None else 0
        at = clock_ahead(at, self.dice.choice((0, 0, -1, -2, -5, 1, 2**53)))
        era = self.dice.choice((None, None, self.era, self.era + 1, 0))
        operation = ops.Acknowledge(self.dice.choice(SUBSCRIBERS), at, self.ttl_s(), era, self.seen())
        in_memory = operation
        if self.proofs and self.dice.random() < 0.5:
            (at, *ends_ms), wrong_ms = self.dice.choice(self.proofs[-4:]), self.dice.choice((0, 0, 0, 1, 10**9))
            to = clock_ahead(at, -self.dice.choice((0, 0, 0, 1, 2)))
            proofs = [ops.Proof(at, self.dice.choice((-2, -1)))] * 2 if self.dice.random() < 0.2 else []
            proofs += [ops.Proof(at, end_ms + wrong_ms) for end_ms in ends_ms]
            operation, in_memory = (replace(operation, clock=to, proof=proof) for proof in proofs[:2])
        if self.both(operation, in_memory).result == "OK":
            self.list.acknowledged(operation)

    def ask_old(self) -> None:
        self.both(ops.AskOld(self.dice.choice(SUBSCRIBERS), tuple(self.dice.sample(IDS, 5))))

    def time(self) -> None:
        by_s = self.dice.choice(TIMES_S)
        self.now_s += by_s
        self.desk.age(by_s)
        self.proofs = [(at, end_ms - by_s * 1000, in_memory_ms) for at, end_ms, in_memory_ms in self.proofs]
        if self.memory.apply("chX", ops.AskOld("s", ())).result == "channel-not-found":
            self.list.forget()

    def backup(self) -> None:
        self.kept = self.desk.backup(), deepcopy(self.memory._state), deepcopy(self.list), self.now_s, self.earlier[:]

    def restore(self) -> None:
        """Everything is as it was, but the time: clocks may be given again, to others."""
        restore, self.memory._state, self.list, then_s, self.earlier = self.kept
        restore(self.now_s - then_s)
        self.backup()
        if self.memory.apply("chX", ops.AskOld("s", ())).result == "channel-not-found":
            self.list.forget()

    def copy(self) -> None:
        """One that comes once more, much later."""
        if self.earlier:
            operation: Any = self.dice.choice(self.earlier)
            before = self.memory.apply("chX", ops.AskOld(operation.subscriber, ())).result
            self.both(operation)
            assert self.memory.apply("chX", ops.AskOld(operation.subscriber, ())).result == before


@pytest.mark.walk
@settings(max_examples=examples(15), suppress_health_check=SLOW)
@given(dice=st.randoms(use_true_random=True), steps=st.integers(30, 80))
def test_memory_and_server_say_the_same_whatever_is_done(desk: ChannelDesk, dice: Random, steps: int) -> None:
    walk = Walk(desk, dice)
    for _ in range(steps):
        walk.step()
