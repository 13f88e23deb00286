"""Fetches that come late: messages that have expired, the wrap, and what foreign clients published without an index. The work of
a call is bounded, and the next one goes on where it stopped."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest

from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, clock_ahead
from engine.ops.channels import FetchReply, NewMessage, Publish
from tests.engine.channels.channel_desk import NEVER_MS, TTL_S, ChannelDesk, ids

#: Keys that one call may look at.
LOOKS_MAX = 1_000
#: More of the same.
LATER = pytest.param(5_000, marks=pytest.mark.slow)


def names(count: int, start: int = 0) -> list[str]:
    return [f"m{number}" for number in range(start, start + count)]


def publish(desk: ChannelDesk, names: list[str], ttl_s: int = TTL_S) -> None:
    """Many messages."""
    for start in range(0, len(names), 500):
        desk.publish(*names[start : start + 500], ttl_s=ttl_s)


def expire(desk: ChannelDesk, clocks: range) -> None:
    """Let messages end."""
    for start in range(clocks.start, clocks.stop, 1_000):
        some = range(start, min(start + 1_000, clocks.stop))
        desk.redis.delete(*(desk.keys.body(clock_ahead(at, 0)) for at in some))


@contextmanager
def bounded(desk: ChannelDesk) -> Iterator[None]:
    """What is done inside the block looks at no more keys than one call may."""
    with desk.commands() as found:
        yield
    looks = found.get("exists", 0) + found.get("pttl", 0) + 1_000 * found.get("scan", 0)
    assert looks <= LOOKS_MAX + 64 and found.get("scan", 0) <= 1, found


def search(desk: ChannelDesk, calls_max: int, most: int = 64) -> tuple[FetchReply, int]:
    """Fetch, each time in bounded work, until it says what there is; how many calls that took."""
    for calls in range(1, calls_max + 1):
        with bounded(desk):
            reply = desk.fetch(most=most)
        assert reply.result == "ok" and reply.cursor is not None and reply.upto is not None
        if not reply.searching:
            return reply, calls
        assert not reply.items and reply.more
    raise AssertionError(f"still searching after {calls_max} calls")


@pytest.mark.feature("DS09", "DS10", model="dsps")
def test_expired_messages_in_front_wedge_nobody(desk: ChannelDesk) -> None:
    """The original: 65 expired in front and max = 64 give nothing for ever, and max = 1 stops at the first one."""
    publish(desk.subscribed(), names(70))
    expire(desk, range(1, 66))
    for most in (64, 1):
        reply = desk.fetch(most=most)
        assert ids(reply) == names(min(most, 5), 65)
    assert (reply.upto, reply.more) == (66, True) and desk.acknowledge(66).result == "OK"
    rest = desk.fetch()
    assert ids(rest) == names(4, 66) and (rest.upto, rest.more) == (70, False)


def test_when_all_have_expired_the_reply_says_up_to_where(desk: ChannelDesk) -> None:
    publish(desk.subscribed(), names(1_500))
    expire(desk, range(1, 1_501))
    reply, calls = search(desk, 2)
    assert (reply.items, reply.cursor, reply.upto, reply.more, calls) == ((), 0, 1_500, False, 2)
    assert desk.acknowledge(1_500).result == "OK" and desk.redis.zcard(desk.keys.live) == 0


def test_a_gap_in_the_middle(desk: ChannelDesk) -> None:
    publish(desk.subscribed(), names(30))
    expire(desk, range(6, 26))
    reply = desk.fetch(most=7)
    assert [at for at, _ in reply.items] == [1, 2, 3, 4, 5, 26, 27] and reply.upto == 27


@pytest.mark.feature("DS10", "DS11", model="dsps")
def test_most_and_more(desk: ChannelDesk) -> None:
    publish(desk.subscribed(), names(5))
    for most, more in ((0, True), (1, True), (4, True), (5, False), (1_000, False)):
        reply = desk.fetch(most=most)
        assert ids(reply) == names(min(most, 5)) and reply.more is more and not reply.searching and reply.upto == min(most, 5)
    expire(desk, range(5, 6))
    assert desk.fetch(most=4).upto == 5, "nothing lives after the fourth"


def test_a_fetch_ends_before_it_carries_more_than_a_mebibyte(desk: ChannelDesk) -> None:
    large = tuple(NewMessage(f"large{number}", b'"%b"' % (b"x" * 400_000)) for number in range(4))
    desk.subscribed().run(Publish(large, TTL_S, not_after_ms=NEVER_MS))
    reply = desk.fetch()
    assert (len(reply.items), reply.upto, reply.more) == (2, 2, True)
    desk.acknowledge(2)
    desk.run(Publish((NewMessage("huge", b'"%b"' % (b"x" * 1_500_000)), NewMessage("small", b"1")), TTL_S, not_after_ms=NEVER_MS))
    assert ids(desk.acknowledged(4).fetch()) == ["huge"], "one at least"
    desk.redis.mset({desk.keys.body(at): "x" * 2**19 for at in (5, 6)})
    assert desk.published("more").fetch().upto == 6, "a mebibyte is not more than one"


@pytest.mark.feature("DS18", model="dsps")
@pytest.mark.parametrize("most", [64, 2])
def test_a_batch_across_the_wrap_is_acknowledged_as_one(desk: ChannelDesk, most: int) -> None:
    """The original's receipt is for the largest clock, so what came after the wrap comes again."""
    desk.place(clock=CLOCK_MAX - 2).subscribed().publish(*names(5))
    clocks = [CLOCK_MAX - 1, CLOCK_MAX, CLOCK_MIN, CLOCK_MIN + 1, CLOCK_MIN + 2]
    assert {key: desk.redis.exists(desk.keys.body(key)) for key in clocks} == dict.fromkeys(clocks, 1)
    got: list[int] = []
    while clocks[len(got) :]:
        reply = desk.fetch(most=most)
        got += [at for at, _ in reply.items]
        assert reply.upto == got[-1] and reply.more is (got != clocks) and desk.acknowledge(got[-1]).result == "OK"
    assert got == clocks and not desk.fetch().items
    # One subscriber more, who starts there, and everything goes on.
    assert desk.subscribe("late").cursor == CLOCK_MIN + 2
    assert ids(desk.published("after").fetch("late")) == ids(desk.fetch()) == ["after"]


def test_expired_messages_around_the_wrap(desk: ChannelDesk) -> None:
    publish(desk.place(clock=CLOCK_MAX - 100).subscribed(), names(200))
    expire(desk, range(CLOCK_MAX - 99, CLOCK_MAX + 51))
    reply, calls = search(desk, 1)
    assert ids(reply) == names(50, 150) and calls == 1 and reply.upto == desk.fetch().clock


@pytest.mark.parametrize("far", [CLOCK_MAX - 5, 10**9, 1_500])
def test_2_to_the_53_empty_clocks_are_no_work(desk: ChannelDesk, far: int) -> None:
    desk.subscribed().redis.set(desk.keys.clock, far, ex=TTL_S)
    reply, _ = search(desk.published("m1", "m2"), 2)
    assert ids(reply) == ["m1", "m2"] and (reply.cursor, reply.upto, reply.clock) == (0, far + 2, far + 2)
    with desk.commands() as found:
        assert replace(desk.fetch(), srv_us=0) == replace(reply, srv_us=0)
    assert "scan" not in found, "it is known from now on"


@pytest.mark.parametrize("count", [1, 50, 500, LATER])
@pytest.mark.parametrize("start", [0, CLOCK_MAX - 25, -3])
def test_what_foreign_clients_published_is_found(desk: ChannelDesk, count: int, start: int) -> None:
    made = foreign(desk.place(clock=start).subscribed(), count)
    # Alone, then behind a message of ours, which comes to know of a few at once.
    reply, _ = search(desk, count // 500 + 2)
    assert ids(reply) == made[:64]
    assert drain(desk.published("ours")) == [*made, "ours"]


@pytest.mark.parametrize("count", [50, 500, LATER])
def test_a_publish_of_ours_comes_to_know_of_a_few_foreign_ones_and_leaves_many_to_fetches(desk: ChannelDesk, count: int) -> None:
    made = foreign(desk.subscribed().published("first"), count)
    with bounded(desk), desk.commands() as found:
        desk.publish("ours")
    assert found.get("pttl", 0) == (count if count <= 100 else 0)
    second = foreign(desk, 3)
    assert drain(desk.published("again")) == ["first", *made, "ours", *second, "again"]


@pytest.mark.parametrize("start", [0, CLOCK_MAX - 1_500, CLOCK_MAX - 2_000, CLOCK_MIN + 10])
def test_a_subscriber_that_came_after_foreign_messages_is_given_none_of_them(desk: ChannelDesk, start: int) -> None:
    """Its cursor is past the index, whose way round the circle leads to what is older."""
    made, at = foreign(desk.place(clock=start).subscribed("early").published("first"), 2_000), desk.subscribe("late").clock
    assert at is not None
    desk.publish("ours")
    for _ in range(5):
        with bounded(desk):
            reply = desk.fetch("late")
        assert reply.upto in (at, clock_ahead(at, 1))
        if reply.items:
            break
    assert ids(reply) == ["ours"] and not reply.more
    assert desk.acknowledge(clock_ahead(at, 1), "late").result == "OK"
    assert drain(desk, "early") == ["first", *made, "ours"]


def test_a_channel_of_foreign_clients_alone(desk: ChannelDesk) -> None:
    """No index at all: a cursor far behind, most of whose messages are gone."""
    made = foreign(desk, 3_000)
    expire(desk, range(1, 2_900))
    reply, calls = search(desk.place(s=0), 5)
    assert ids(reply) == made[2_899:2_963] and calls == 4 and drain(desk) == made[2_899:]


def test_many_keys_and_more_clocks_are_scanned_step_by_step(desk: ChannelDesk) -> None:
    """Another program's keys are in the way, too."""
    for start in range(0, 5_000, 1_000):
        desk.redis.mset({f"other:{number}": "" for number in range(start, start + 1_000)})
    made = foreign(desk.place(clock=3, s=0), 2)
    desk.redis.set(desk.keys.clock, 10**15)
    made += foreign(desk, 2)
    reply, calls = search(desk, 20)
    assert ids(reply) == made and 5 <= calls <= 12
    # While one scan is under way, another subscriber goes on with it, and a message of ours comes.
    desk.redis.delete(desk.keys.meta, desk.keys.live)
    desk.place(other=0)
    for _ in range(2):
        assert desk.fetch().searching and desk.fetch("other").searching
    reply, calls = search(desk.published("ours"), 20)
    assert ids(reply) == [*made, "ours"] and calls <= 4 and ids(desk.fetch("other")) == [*made, "ours"]


def test_a_scan_begins_again_on_another_server(desk: ChannelDesk) -> None:
    """Its cursor is worth nothing where the keys lie in another order."""
    desk.redis.mset({f"other:{number}": "" for number in range(3_000)})
    made, last = foreign(desk.place(clock=10**15, s=0), 40), b""
    while desk.fetch().searching:
        last = desk.redis.hget(desk.keys.meta, "scan") or last
    cursor, run, goal = last.split()
    assert run.decode() == desk.redis.info("server")["run_id"] and int(goal) == 10**15 + 40
    assert not desk.redis.hexists(desk.keys.meta, "scan") and desk.redis.hget(desk.keys.meta, "known") == b"all"
    # Another server's, which is nearly over: had it gone on, it would have passed most of them by.
    desk.redis.delete(desk.keys.live)
    desk.redis.hset(desk.keys.meta, mapping={"known": goal, "scan": b"%b %b %b" % (cursor, b"0" * 40, goal)})
    reply, calls = search(desk, 20)
    assert ids(reply) == made and calls > 2


def test_what_looks_like_a_body_and_is_none_is_passed_by(desk: ChannelDesk) -> None:
    desk.place(clock=10**15, s=0)
    for text in ("x", "1.5", "+5", "05", "1e3", "9007199254740993", "-0", ""):
        desk.redis.set(f"{desk.keys.bodies}{text}", "no body", ex=TTL_S)
    desk.redis.rpush(desk.keys.body(7), "no string")
    made = foreign(desk, 1)
    reply, _ = search(desk, 3)
    assert ids(reply) == made and reply.upto == 10**15 + 1


def test_many_expired_messages_of_ours_cost_next_to_nothing(desk: ChannelDesk) -> None:
    """6,000 that have ended and two that live: what is known of when they ended leads past them."""
    publish(desk.subscribed(), names(6_000), ttl_s=1)
    desk.subscribed("keeps the channel").subscribed().publish("lives", "too")
    until_past(desk, desk.redis.pexpiretime(desk.keys.body(6_000)))
    reply, calls = search(desk, 2)
    assert ids(reply) == ["lives", "too"] and calls == 1 and reply.upto == 6_002
    # Each message that comes and each fetch takes some of them out of the index.
    for number in range(20):
        assert len(desk.fetch().items) == 2 + number
        desk.publish(f"n{number}")
    assert desk.redis.zcard(desk.keys.live) < 600


def test_messages_with_different_lives_are_not_skipped(desk: ChannelDesk) -> None:
    """The marks of the short ones must not lead past a long one before or among them, foreign or ours."""
    publish(desk.subscribed().published("long", ttl_s=TTL_S), names(600), ttl_s=1)
    desk.foreign("foreign", ttl_s=TTL_S)
    publish(desk, names(600, 600), ttl_s=1)
    ended_ms = desk.redis.pexpiretime(desk.keys.body(1_202))
    until_past(desk.subscribed(), ended_ms)
    assert drain(desk.published("last")) == ["long", "foreign", "last"]


def test_a_mark_knows_of_the_foreign_messages_that_its_own_call_has_found(desk: ChannelDesk) -> None:
    desk.subscribed().published(*names(250), ttl_s=1).foreign("foreign", ttl_s=TTL_S)
    until_past(desk.published(*names(20, 250), ttl_s=1), desk.redis.pexpiretime(desk.keys.body(271)))
    assert drain(desk) == ["foreign"]


def test_a_foreign_message_that_is_found_late_is_not_skipped(desk: ChannelDesk) -> None:
    """It stands among short ones of ours, whose marks were made when nobody knew of it."""
    publish(desk.subscribed(), names(100), ttl_s=1)
    foreign(desk, 200)
    for start in range(100, 700, 50):
        publish(desk, names(50, start), ttl_s=1)
    ended_ms = desk.redis.pexpiretime(desk.keys.body(900))
    expire(desk.subscribed(), range(101, 300))
    until_past(desk, ended_ms)
    assert drain(desk) == ["f300"]


def test_the_index_does_not_grow_with_what_has_ended(desk: ChannelDesk) -> None:
    desk.subscribe()
    for number in range(60):
        expire(desk.published(*names(10, 10 * number)), range(10 * number - 40, 10 * number - 30))
    assert desk.redis.zcard(desk.keys.live) <= 60


def foreign(desk: ChannelDesk, count: int) -> list[str]:
    """Publish as clients of the original do, many in one pipeline; the ids."""
    start = int(desk.redis.get(desk.keys.clock) or 0)
    desk_ids = [f"f{clock_ahead(start, number + 1)}" for number in range(count)]
    with desk.redis.pipeline(transaction=False) as pipe:
        for number, id in enumerate(desk_ids):
            at = clock_ahead(start, number + 1)
            pipe.set(desk.keys.body(at), b'{"id":"%b","content":1}' % id.encode(), ex=TTL_S).set(desk.keys.mid(id), at, ex=TTL_S)
        pipe.set(desk.keys.clock, clock_ahead(start, count), ex=TTL_S).execute()
    return desk_ids


def drain(desk: ChannelDesk, subscriber: str = "s") -> list[str]:
    """Fetch and acknowledge until there is no more."""
    got: list[str] = []
    for _ in range(200):
        with bounded(desk):
            reply = desk.fetch(subscriber, most=500)
        got += ids(reply)
        if reply.upto != reply.cursor and not reply.searching:
            assert reply.upto is not None and desk.acknowledge(reply.upto, subscriber).result == "OK"
        if not reply.more:
            return got
    raise AssertionError("there is always more")


def until_past(desk: ChannelDesk, server_ms: int) -> None:
    """Wait until the server's time is later."""
    while (left_ms := server_ms - desk.now_ms()) >= 0:
        time.sleep((left_ms + 1) / 1_000)


HALF = CLOCK_MAX // 2
AROUND = (CLOCK_MAX - 2, CLOCK_MIN + 1, -HALF, -3, 0, 3, HALF)


def searches() -> Iterator[object]:
    """Of all pairs of places the first tier has each third one, and among many keys each seventh: each place is once on either
    side."""
    for (number, known), (other, at) in product(enumerate(AROUND), enumerate(AROUND)):
        for crowd, step in {0: 3, 2 * LOOKS_MAX: 7}.items():
            marks = [pytest.mark.slow] * bool((number + 3 * other) % step)
            yield pytest.param(known, at, crowd, marks=marks, id=f"{known}-{at}-{'many' if crowd else 'few'} keys")


@pytest.mark.parametrize(("known", "at", "crowd"), [*searches()])
def test_a_search_ends_from_every_position_of_the_circle(desk: ChannelDesk, known: int, at: int, crowd: int) -> None:
    """The engine last saw the channel at `known`; others moved clock and cursor to `at`, and the channel goes on from there."""
    desk.place(clock=known, s=known).published("before").fetch()
    for start in range(0, crowd, 500):
        desk.redis.mset({f"crowd{number}": "" for number in range(start, start + 500)})
    desk.place(clock=at, s=at).redis.hset(desk.keys.meta, "last", at)
    assert clock_ahead(at, 1) == desk.foreign("theirs")
    desk.publish("ours1", "ours2")
    for subscriber in ("s", "late"):
        desk.place(**{subscriber: at})
        got: list[str] = []
        for _ in range(20):
            reply = desk.fetch(subscriber)
            assert reply.result == "ok" and reply.upto is not None
            got += ids(reply)
            desk.redis.set(desk.keys.cursor(subscriber), reply.upto)
            if not reply.more:
                break
        assert got == ["theirs", "ours1", "ours2"], (known, at)
