"""A clock that went back: a lost key, a restored backup, a foreign client that began again. It is no wrap: the channel goes on
after the latest clock that is known, and everybody is told."""

import pytest

from engine.errors import ScriptFault
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from engine.ops.channels import Proof
from tests.engine.channels.channel_desk import TTL_S, ChannelDesk, ids
from tests.engine.using import refused, wait_until


@pytest.fixture
def used(desk: ChannelDesk) -> ChannelDesk:
    """Five messages; `s` has acknowledged two of them."""
    desk.subscribed().published(*(f"m{number}" for number in range(1, 6))).acknowledge(2)
    return desk


def lose(desk: ChannelDesk, to: int | None = None) -> ChannelDesk:
    """The clock alone is lost, or is an earlier one."""
    if to is None:
        desk.redis.delete(desk.keys.clock)
    else:
        desk.redis.set(desk.keys.clock, to, keepttl=True)
    return desk


@pytest.mark.parametrize("to", [None, 0, 3])
def test_a_publish_goes_on_after_the_latest_clock(used: ChannelDesk, to: int | None) -> None:
    """The original begins again at 1, writes over bodies, and leaves `s` wedged."""
    reply = lose(used, to).publish("m6")
    assert (reply.clock, reply.era, reply.turned) == (6, 1, True) and used.publish("m7").turned is False
    fetched = used.fetch()
    assert ids(fetched) == ["m3", "m4", "m5", "m6", "m7"]
    assert (fetched.era, fetched.era_changed, fetched.turned, fetched.upto) == (1, True, False, 7)


@pytest.mark.parametrize("to", [None, 0, 3])
def test_a_fetch_finds_it(used: ChannelDesk, to: int | None) -> None:
    since_ms, fetched = lose(used, to).now_ms(), used.fetch()
    assert ids(fetched) == ["m3", "m4", "m5"]
    assert (fetched.clock, fetched.era, fetched.turned, fetched.era_changed) == (5, 1, True, True)
    assert used.redis.get(used.keys.clock) == b"5" and used.keys.clock in used.given(since_ms)
    again = used.fetch()
    assert (again.turned, again.era_changed, again.era) == (False, True, 1), "until something is acknowledged"
    assert used.acknowledge(4, era=1).result == "OK" and used.fetch().era_changed is False
    assert used.subscribe("new").era == 1 and used.fetch("new").era_changed is False


def test_an_acknowledgement_finds_it(used: ChannelDesk) -> None:
    reply = lose(used, 3).acknowledge(5)
    assert (reply.result, reply.cursor, reply.clock, reply.era, reply.turned) == ("OK", 5, 5, 1, True)
    assert used.redis.get(used.keys.clock) == b"5" and used.fetch().era_changed is False


def test_a_subscribe_finds_it(used: ChannelDesk) -> None:
    reply = lose(used).subscribe("new")
    assert (reply.result, reply.clock, reply.cursor, reply.era, reply.turned) == ("created", 5, 5, 1, True)
    assert ids(used.fetch()) == ["m3", "m4", "m5"] and used.fetch("new").era_changed is False


@pytest.mark.parametrize("ack", [4, 6, 2])
def test_a_stale_acknowledgement_writes_nothing_even_then(used: ChannelDesk, ack: int) -> None:
    """One of the former era is stale, wherever it points."""
    before, lives = lose(used, 3).dump(), used.lives()
    reply = used.acknowledge(ack, era=0)
    assert (reply.result, reply.era, reply.beyond, reply.clock, reply.cursor) == ("stale", 1, True, 5, 2)
    assert (used.dump(), used.lives()) == (before, lives)
    assert used.published("m6").acknowledge(4, era=0).result == "stale" and used.acknowledge(4, era=1).result == "OK"


def test_a_restored_backup_is_told_by_who_has_seen_more(used: ChannelDesk) -> None:
    """The backup is all of one instant: nothing in it contradicts anything. Only who has seen later clocks knows."""
    restore = used.backup()
    assert used.published("lost1", "lost2").fetch().clock == 7 and used.acknowledge(7, era=0).result == "OK"
    restore()
    # One who has seen nothing uses a clock again.
    assert used.publish("m6").clock == 6
    reply = used.fetch(seen=7)
    assert (reply.clock, reply.era, reply.turned, reply.cursor) == (7, 1, True, 2)
    assert ids(reply) == ["m3", "m4", "m5", "m6"] and reply.upto == 7 and used.acknowledge(7, era=0).result == "stale"
    assert used.publish("m7", seen=7).clock == 8 and used.acknowledge(8, era=1, seen=8).result == "OK"


def original_fetch(desk: ChannelDesk, most: int = 64) -> list[str]:
    """The clocks that a client of the original would deliver to `s`: those with a body among the next `most` after its cursor."""
    cursor, at = int(desk.redis.get(desk.keys.cursor("s"))), int(desk.redis.get(desk.keys.clock))
    clocks = range(cursor + 1, min(at, cursor + most) + 1)
    return [str(clock) for clock in clocks if desk.redis.exists(desk.keys.body(clock))]


def test_the_engine_reads_a_subscriber_of_the_original_past_a_gap(desk: ChannelDesk) -> None:
    """What the finding `the original looks 64 clocks ahead` declares, and how an operator frees the subscriber."""
    restore = desk.place(clock=0, s=0).backup()
    desk.publish(*(f"lost{number}" for number in range(100)))
    restore()
    assert desk.publish("m1", seen=100).clock == 101, "no clock is used twice"
    assert original_fetch(desk) == [] and original_fetch(desk, 101) == ["101"]
    fetched = desk.fetch()
    assert ids(fetched) == ["m1"] and desk.acknowledge(101, era=fetched.era).result == "OK"
    assert desk.foreign("m2") == 102 and original_fetch(desk) == ["102"]


@pytest.mark.parametrize("era", [None, 0])
def test_a_receipt_of_another_history_is_stale_where_no_clock_tells(used: ChannelDesk, era: int | None) -> None:
    """Publishers who had seen nothing have brought a restored channel to where it was, so it looks as if nothing had happened."""
    restore = used.backup()
    lost = used.published("lost6", "lost7").fetch()
    assert lost.items[-1][0] == 7
    restore()
    wait_until(lambda: used.now_ms() > lost.proof_ms - TTL_S * 1000, "another millisecond than that of the lost ones")
    before, lives = used.published("m6", "m7").dump(), used.lives()
    for clock in (7, 6, 5):
        reply = used.acknowledge(clock, era=era, seen=7, proof=Proof(7, lost.proof_ms))
        assert (reply.result, reply.cursor, reply.era, reply.turned, reply.beyond) == ("stale", 2, 0, False, True)
    assert (used.dump(), used.lives()) == (before, lives)
    found = used.fetch(seen=7)
    assert ids(found) == ["m3", "m4", "m5", "m6", "m7"]
    assert used.acknowledge(6, era=era, seen=7, proof=Proof(7, found.proof_ms)).result == "OK" and ids(used.fetch()) == ["m7"]


def test_a_proof_holds_when_its_message_has_expired(used: ChannelDesk) -> None:
    found = used.fetch()
    used.redis.delete(used.keys.body(5))
    reply = used.acknowledge(5, proof=Proof(5, found.proof_ms))
    assert (reply.result, reply.beyond, reply.cursor) == ("stale", False, 2), "it should live; nothing tells of a way back"
    assert used.acknowledge(5, proof=Proof(5, used.now_ms() - 1)).result == "OK"
    again = used.acknowledge(5, proof=Proof(5, found.proof_ms))
    assert (again.result, again.beyond) == ("stale", False)


def test_a_proof_that_nothing_is_there(used: ChannelDesk) -> None:
    """All that was unread has expired: its receipt says so, and does not cover what is published under the same clock later."""
    used.redis.delete(*(used.keys.body(clock) for clock in (3, 4, 5)))
    found = used.fetch()
    assert (found.items, found.upto, found.proof_ms) == ((), 5, -2)
    used.redis.set(used.keys.body(5), b"{}", ex=TTL_S)
    assert used.acknowledge(5, proof=Proof(5, -2)).beyond
    used.redis.delete(used.keys.body(5))
    assert used.acknowledge(5, proof=Proof(5, -2)).result == "OK"


def test_a_proof_of_what_never_ends(used: ChannelDesk) -> None:
    used.redis.persist(used.keys.body(5))
    assert used.fetch().proof_ms == -1
    used.redis.expire(used.keys.body(5), TTL_S)
    assert used.acknowledge(5, proof=Proof(5, -1)).beyond
    used.redis.persist(used.keys.body(5))
    assert used.acknowledge(5, proof=Proof(5, -1)).result == "OK"


@pytest.mark.parametrize("seen", [1, CLOCK_MAX, CLOCK_MIN, -1])
def test_a_channel_that_is_gone_goes_on_after_what_was_seen(desk: ChannelDesk, seen: int) -> None:
    after = seen + 1 if seen < CLOCK_MAX else CLOCK_MIN
    reply = desk.publish("m1", seen=seen)
    assert (reply.clock, reply.era, reply.turned) == (after, 1, True)
    desk.redis.flushall()
    made = desk.subscribe(seen=seen)
    assert (made.clock, made.cursor, made.era, made.turned) == (seen, seen, 1, True)
    desk.redis.flushall()
    assert desk.fetch(seen=seen).result == "subscription-not-found" and desk.dump() == {}


def test_what_was_seen_behind_the_clock_says_nothing(used: ChannelDesk) -> None:
    for seen in (5, 4, 0):
        assert not used.publish(f"n{seen}", seen=seen).turned and not used.fetch(seen=seen).turned
    assert used.fetch().era == 0


def test_a_wrap_is_no_way_back(desk: ChannelDesk) -> None:
    assert desk.place(clock=CLOCK_MAX - 1).subscribed().publish("a", seen=CLOCK_MAX - 1).clock == CLOCK_MAX
    crossed = desk.publish("b", seen=CLOCK_MAX)
    assert (crossed.clock, crossed.turned, crossed.era) == (CLOCK_MIN, False, 0)
    assert not desk.fetch(seen=CLOCK_MIN).turned and not desk.fetch(seen=CLOCK_MAX).turned
    back = lose(desk, CLOCK_MAX).publish("c")
    assert (back.clock, back.turned, back.era, ids(desk.fetch())) == (CLOCK_MIN + 1, True, 1, ["a", "b", "c"])


def test_a_cursor_ahead_of_its_clock_is_proof_enough(desk: ChannelDesk) -> None:
    """Nobody but the cursor knows: what we knew was lost together with the clock, and a foreign client has begun again."""
    before = desk.place(clock=2, s=5).dump()
    assert desk.acknowledge(1).result == "stale" and desk.dump() == before
    reply = desk.fetch()
    assert (reply.clock, reply.cursor, reply.era, reply.turned, reply.upto) == (5, 5, 1, True, 5)
    assert desk.publish("m6").clock == 6 and ids(desk.fetch()) == ["m6"]


def test_one_with_nothing_to_acknowledge_is_told_once(desk: ChannelDesk) -> None:
    """Else its long poll would never wait again."""
    lose(desk.subscribed().published("m1").acknowledged(1))
    assert desk.fetch().era_changed and not desk.fetch().era_changed
    assert not desk.published("m2").fetch().era_changed and ids(desk.fetch()) == ["m2"]


def test_eras_are_told_apart(desk: ChannelDesk) -> None:
    desk.subscribed("a").subscribed("b").publish("m1", "m2")
    for era in (1, 2, 3):
        assert lose(desk, 0).publish(f"n{era}").era == era and desk.fetch("a").era_changed
        assert desk.acknowledge(desk.fetch("a").items[0][0], "a", era=era - 1).result == "stale"
        assert desk.acknowledge(desk.fetch("a").items[0][0], "a", era=era).result == "OK"
        assert not desk.fetch("a").era_changed
    assert desk.fetch("b").era_changed and desk.fetch("b").era == 3 and len(desk.fetch("b").items) == 5


def test_a_channel_that_has_expired_begins_anew(desk: ChannelDesk) -> None:
    """That is no loss: all that was known of it has ended with it."""
    desk.subscribed().published("m1", "m2").age(400)
    assert not [key for key in desk.dump() if ".op." not in key]
    reply = desk.publish("m1")
    assert (reply.clock, reply.era, reply.turned) == (1, 0, False) and desk.fetch().result == "subscription-not-found"


def test_messages_that_outlived_what_is_known_of_the_channel_are_found(used: ChannelDesk) -> None:
    """A foreign client keeps the clock alive, ours have been away for longer than a life: the index is gone."""
    used.redis.delete(used.keys.meta, used.keys.live)
    used.foreign("f6")
    assert ids(used.fetch()) == ["m3", "m4", "m5", "f6"]
    assert used.publish("m7").clock == 7 and ids(used.fetch())[-1] == "m7"


def test_an_index_that_is_behind_its_clock_after_a_way_back_begins_anew(used: ChannelDesk) -> None:
    """Foreign clients wrote over old clocks after theirs was lost: those bodies are messages, too."""
    used.redis.zrem(used.keys.live, 4)
    used.redis.delete(used.keys.body(4))
    lose(used, 3).foreign("again4")
    fetched = used.fetch()
    assert fetched.turned and ids(fetched) == ["m3", "again4", "m5"]


def test_the_eras_of_subscribers_that_expired_do_not_pile_up(used: ChannelDesk) -> None:
    lose(used).publish("turned")
    for number in range(300):
        used.subscribed(f"passing{number}").redis.delete(used.keys.cursor(f"passing{number}"))
        if number == 100:
            used.subscribe("stays")
    assert used.redis.hlen(used.keys.meta) < 50 and used.redis.hget(used.keys.meta, "r.stays") == b"1"


@pytest.mark.parametrize("what", ["last", "era", "upto", "known"])
def test_what_is_known_of_a_channel_is_read_before_anything_is_written(used: ChannelDesk, what: str) -> None:
    used.redis.hset(used.keys.meta, what, "x")
    before = used.dump()
    for call in (lambda: used.publish("m6"), used.fetch):
        if what == "known" and call is not used.fetch:
            continue
        refused(ScriptFault, "no clock", call)
    assert used.dump() == before


def test_an_index_of_which_half_is_known_begins_anew(used: ChannelDesk) -> None:
    used.redis.hdel(used.keys.meta, "known")
    assert ids(used.fetch()) == ["m3", "m4", "m5"]


def test_a_late_acknowledgement_of_an_ended_channel_takes_nothing_of_its_successor(desk: ChannelDesk) -> None:
    """Its caller has fetched nothing and so knows no era; what it has seen is of a channel that has expired since."""
    reply = desk.subscribed().published("m1", "m2", "m3").acknowledge(40, seen=50)
    assert (reply.result, reply.cursor, reply.beyond) == ("stale", 0, True)
    assert ids(desk.fetch()) == ["m1", "m2", "m3"] and desk.acknowledge(3, seen=50).result == "OK"
