"""MemoryStorage: both matrices of the original, lives by its clock, room, threads, listeners."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest

from engine import AsyncChannel
from engine.channel.memory import FETCH_BYTES_MAX, LiveIndex, MemoryStorage
from engine.channel.steps import Opening
from engine.ops import channels as ops
from engine.ops.base import Operation
from engine.redis.exchange import Sent
from tests.engine.channels.channel_desk import NEVER_MS, TTL_S, Calls, message
from tests.engine.channels.test_copies import SUBSCRIBE, UNSUBSCRIBE
from tests.engine.channels.test_matrices import rows


class Desk(Calls):
    """One storage whose time the test moves, and a channel in it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.storage = MemoryStorage(now_ns=lambda: int(self.now_s * 1e9))

    def run(self, operation: Operation) -> Any:
        return self.storage.apply("ch", operation)

    def later(self, s: float) -> Self:
        self.now_s += s
        return self

    def alive(self, *subscribers: str) -> list[str]:
        """What is there at this instant, asked in a way that renews nothing."""
        return [str(self.old(subscriber=subscriber).result) for subscriber in subscribers]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_clocks_are_kept_in_the_order_of_the_circle_also_those_of_a_channel_that_began_anew() -> None:
    index = LiveIndex()
    for at in (5, 7, 6, 6, 1, -3, -9, -9):
        index.add(at)
    for after, upto, found in ((0, 7, [1, 5, 6, 7]), (5, -3, [6, 7, -9, -3]), (-9, 5, [-3, 1, 5]), (7, 7, [])):
        assert [*index.between(after, upto)] == found
    assert index.drop(lambda at: at not in (1, 5, -9)) and [*index.between(-10, 7)] == [-3, 6, 7]
    index.add(5)
    assert [*index.between(-10, 7)] == [-3, 5, 6, 7] and not index.drop(lambda at: False)


def clocks_of(reply: ops.FetchReply) -> list[int]:
    return [clock for clock, _ in reply.items]


@pytest.mark.feature("DS25", model="dsps")
@pytest.mark.parametrize("row", rows("publish_matrix.csv"), ids=lambda row: f"{row['clock_before']} {row['published_twice']}")
def test_the_publish_matrix(desk: Desk, row: dict[str, str]) -> None:
    after = int(row["clock_after"])
    if row["clock_before"] != "absent":
        desk.subscribe("s", seen=int(row["clock_before"]))
    reply = desk.publish("a")
    assert (reply.clock, reply.items[0].result, reply.items[0].clock) == (after, "created", after)
    if row["published_twice"] == "yes":
        again = desk.later(100).publish("a")
        assert (again.clock, again.items[0].result, again.items[0].clock) == (after, "duplicate", after)
        assert desk.later(TTL_S - 1).alive("nobody") == ["subscription-not-found"], "the duplicate renewed the channel"
        assert desk.publish("a").items[0].result == "created", "but not its own life"


@pytest.mark.feature("DS25", model="dsps")
@pytest.mark.parametrize("row", rows("ack_matrix.csv"), ids=lambda row: " ".join(row.values()))
def test_the_acknowledgement_matrix(desk: Desk, row: dict[str, str]) -> None:
    channel, cursor, clock = (int(row[name]) for name in ("channel_clock", "subscriber_clock", "ack_clock"))
    result = row["result"]
    reply = desk.subscribed("s", seen=cursor).subscribed("other", seen=channel).later(100).acknowledge(clock)
    assert (reply.result, reply.clock, reply.cursor) == (result, channel, clock if result == "OK" else cursor)
    desk.later(TTL_S - 1)
    if result == "OK":
        assert desk.alive("s", "other") == ["ok", "subscription-not-found"], "clock and own cursor are renewed"
    else:
        assert desk.alive("s", "other") == ["channel-not-found"] * 2, "nothing is renewed"


def test_a_receipt_is_held_against_what_its_fetch_ended_with(desk: Desk) -> None:
    found = desk.subscribed("s").published("a", ttl_s=100).published("b", ttl_s=50).fetch("s")
    assert found.proof_ms == 1_050_000

    def acknowledge(ends_ms: int) -> tuple[str, bool]:
        reply = desk.acknowledge(2, proof=ops.Proof(2, ends_ms))
        return reply.result, reply.beyond

    assert acknowledge(1_050_001) == acknowledge(-2) == ("stale", True), "another message is there"
    desk.later(50)
    assert acknowledge(1_050_001) == ("stale", False), "it would live, so it was never this one, or is gone too early"
    assert clocks_of(desk.fetch("s")) == [1]
    assert acknowledge(found.proof_ms) == ("OK", False) and acknowledge(1_050_001) == ("stale", False)


def test_a_fetch_says_whether_there_is_more(desk: Desk) -> None:
    desk.subscribed("s").publish("a", "b", "c")
    for most, more in ((0, True), (2, True), (3, False)):
        reply = desk.fetch("s", most)
        assert (len(reply.items), reply.upto, reply.more) == (most, most, more)


def test_a_fetch_ends_before_it_gets_large_but_never_before_its_first_message(desk: Desk) -> None:
    desk.subscribe("s")
    large = b'"' + b"x" * (FETCH_BYTES_MAX // 2) + b'"'
    for id, content in (("a", large * 3), ("b", large), ("c", large)):
        desk.run(ops.Publish((ops.NewMessage(id, content),), TTL_S, not_after_ms=NEVER_MS))
    for clock, more in ((1, True), (2, True), (3, False)):
        assert clocks_of(desk.fetch("s")) == [clock] and desk.fetch("s").more is more
        desk.acknowledge(clock)


def test_who_renews_what(desk: Desk) -> None:
    """The table of wire-models 6.1, by what is left after everything that was not renewed has gone."""
    steps: dict[str, Callable[[], object]] = {
        **{"subscribe again": lambda: desk.subscribe("s"), "publish": lambda: desk.publish("new")},
        **{"duplicate": lambda: desk.publish("old"), "fetch": lambda: desk.fetch("s")},
        **{"stale": lambda: desk.acknowledge(99), "ask": lambda: desk.old("old")},
    }
    left = {}
    for name, step in steps.items():
        desk.published("old").subscribed("s").subscribed("other").later(TTL_S - 100)
        step()
        desk.later(200)
        left[name] = (*desk.alive("s", "other"), desk.publish("old").items[0].result)
        desk.later(10 * TTL_S)
    gone, kept = ("channel-not-found",) * 2, "subscription-not-found"
    wanted = {**dict.fromkeys(("subscribe again", "publish", "duplicate"), (kept, kept)), "fetch": ("ok", kept)}
    wanted |= {"stale": gone, "ask": gone}
    assert left == {name: (*of, "created") for name, of in wanted.items()}


def test_expired_messages_are_skipped_and_can_be_counted(desk: Desk) -> None:
    desk.subscribed("s").published(*[f"m{n}" for n in range(70)], ttl_s=20).published("last").later(21)
    reply = desk.fetch("s", 10)
    assert (clocks_of(reply), reply.cursor, reply.more) == ([71], 0, False)
    desk.acknowledged(71).published("short", ttl_s=20).subscribed("keeps-the-channel").later(21)
    reply = desk.fetch("s")
    assert (reply.items, reply.cursor, reply.upto, desk.acknowledge(72).result) == ((), 71, 72, "OK")


def test_a_clock_behind_what_the_caller_has_seen_goes_on_after_it(desk: Desk) -> None:
    reply = desk.subscribed("s").published("a").publish("b", seen=10)
    assert (reply.clock, reply.era, reply.turned) == (11, 1, True) and not desk.publish("b", seen=10).turned
    fetched = desk.fetch("s")
    assert clocks_of(fetched) == [1, 11] and fetched.era_changed
    stale = desk.acknowledge(11, era=0)
    assert (stale.result, stale.beyond, stale.cursor) == ("stale", True, 0)
    assert desk.acknowledge(11, era=1).result == "OK" and not desk.fetch("s").era_changed
    assert desk.fetch("s", seen=5).era == 1, "one that has seen less is no news"


def test_a_channel_lives_as_long_as_the_longest_of_its_services_wants(desk: Desk) -> None:
    desk.subscribed("s").published("a", "b").acknowledged(1).publish("c", ttl_s=20)
    assert desk.fetched("s", ttl_s=20).acknowledged(2, ttl_s=20).later(21).publish("d", ttl_s=20).clock == 4
    reply = desk.fetch("s")
    assert clocks_of(reply) == [4] and (reply.cursor, reply.era, reply.turned, reply.era_changed) == (2, 0, False, False)


def test_a_copy_of_a_subscription_does_nothing_and_says_what_the_first_did(desk: Desk) -> None:
    first = desk.run(SUBSCRIBE)
    assert (first.result, first.cursor) == ("created", 0)
    assert desk.published("a").run(UNSUBSCRIBE).result == "deleted"
    copy = desk.run(SUBSCRIBE)
    assert (copy.result, copy.cursor) == ("created", None) and desk.alive("s") == ["subscription-not-found"]
    assert desk.subscribe("s").cursor == 1
    assert desk.run(UNSUBSCRIBE).result == "deleted" and desk.alive("s") == ["ok"]
    assert desk.unsubscribe("nobody").result == "missing" and desk.subscribe("s").result == "exists"


def test_what_comes_too_late_changes_nothing(desk: Desk) -> None:
    past_ms = desk.storage.now_ms() - 1
    assert desk.publish("a", not_after_ms=past_ms).items[0].result == "refused"
    assert desk.run(SUBSCRIBE.stamped(past_ms)).result == "refused" and desk.alive("s") == ["channel-not-found"]
    assert desk.subscribed("s").published("a").run(UNSUBSCRIBE.stamped(past_ms)).result == "refused"
    reply = desk.publish("a", "b", not_after_ms=past_ms)
    assert [item.result for item in reply.items] == ["duplicate", "refused"] and reply.clock == 1


def test_what_has_expired_leaves_the_memory(desk: Desk) -> None:
    """Also of channels that nobody uses any more, and of those that are renewed for ever."""
    for n in range(100):
        desk.storage.apply(f"old{n}", ops.Publish(tuple(message(f"m{i}") for i in range(10)), TTL_S, not_after_ms=NEVER_MS))
    assert desk.storage.held() == 2100
    for n in range(3000):
        desk.published(f"m{n}").later(1)
    assert desk.storage.held() <= 2 * TTL_S + 3
    desk.later(2 * TTL_S).alive("s")
    assert desk.storage.held() == 0 and desk.publish("anew").clock == 1


@pytest.mark.slow
def test_a_long_backlog_is_not_walked_through_by_each_fetch(desk: Desk) -> None:
    desk.subscribe("s")
    for n in range(50):
        desk.publish(*[f"m{n}-{i}" for i in range(1000)])
    desk.acknowledge(49_990)
    looked = 0

    def counted(key: object, now: int, get=desk.storage._state._values.get) -> object:
        nonlocal looked
        looked += 1
        return get(key, now)  # type: ignore[arg-type]

    desk.storage._state._values.get = counted  # type: ignore[method-assign]
    assert clocks_of(desk.fetch("s")) == list(range(49_991, 50_001)) and looked < 20


def test_whoever_listens_hears_each_publish_of_its_channel_and_duplicates_too(desk: Desk) -> None:
    called: list[str] = []
    opened = [desk.storage.open(Opening(name)) for name in ("ch", "ch", "other")]

    def listener() -> None:
        called.append("called")

    for one in opened * 2:
        one.listen(listener)
    for do, calls in (
        *((lambda: desk.publish("a", "b"), 2), (lambda: (desk.publish("a"), desk.subscribe("s"), desk.fetch("s")), 4)),
        *((lambda: (opened[0].unlisten(listener), desk.publish("c")), 5), (lambda: (opened[1].close(), desk.publish("d")), 5)),
    ):
        do()
        assert len(called) == calls


def test_opened_for_a_channel_it_answers_as_it_does_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = desk.storage.open(Opening("ch"))
    sent = opened.send(ops.Publish((ops.NewMessage("a", b"1"),), TTL_S))
    assert sent.reply.items[0].clock == 1 and sent.definite and sent.first_send_ns <= sent.done_ns
    desk.later(11)
    monkeypatch.setattr("engine.channel.memory.DEADLINE_MS", -1)
    refused, fetched = opened.send_many([ops.Subscribe("s", "a" * 16, TTL_S), ops.Fetch("s", 1, TTL_S)])
    assert isinstance(refused, Sent) and refused.came_late
    assert isinstance(fetched, Sent) and fetched.reply.result == "subscription-not-found"


async def test_under_asyncio_a_caller_that_never_rests_lets_others_have_a_turn() -> None:
    async with AsyncChannel("ch", storages={"m": MemoryStorage()}) as channel:
        ended, calls = asyncio.Event(), 0
        asyncio.get_running_loop().call_soon(ended.set)
        while not ended.is_set():
            await channel.publish(f"m{calls}", None)
            calls += 1
            assert calls < 1_000
        assert calls >= 1


def test_threads_share_it() -> None:
    """Every message gets its own clock, and one that two publish is published once."""
    storage = MemoryStorage()
    replies: list[ops.PublishReply] = []

    def publish(_: int) -> None:
        replies.extend(storage.apply("ch", ops.Publish((message(f"m{n}"),), TTL_S, not_after_ms=NEVER_MS)) for n in range(500))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(publish, range(4)))
    created = [reply.items[0].clock for reply in replies if reply.items[0].result == "created"]
    assert sorted(filter(None, created)) == list(range(1, 501)) and len(replies) == 2000
