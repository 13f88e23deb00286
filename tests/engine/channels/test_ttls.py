"""Who renews the life of what: the table of wire-models 6.1, every cell, from an age of 50 s with T = 115 s."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Channel
from engine.models import ChannelRule, Dsps, dsps
from tests.engine.channels.channel_desk import ChannelDesk

T_S, AGE_S = 115, 50


def check(desk: ChannelDesk, do: Callable[[ChannelDesk], object], renewed: set[str]) -> None:
    """What is done gives T to these, to what we know of the channel together with its clock, and leaves all others alone."""
    keys, before, since_ms = desk.keys, desk.lives(), desk.now_ms()
    do(desk)
    named = {"clock": keys.clock, "new body": keys.body(2), "new mid": keys.mid("m2"), "meta": keys.meta, "live": keys.live}
    named |= {name: keys.cursor(name) for name in ("own", "third")}
    expected = {named[what] for what in renewed | ({"meta", "live"} if "clock" in renewed else set())}
    assert desk.given(since_ms, T_S) == expected
    others = {key: end_ms for key, end_ms in desk.lives().items() if key not in expected and ".op." not in key}
    assert others == {key: end_ms for key, end_ms in before.items() if key not in expected and ".op." not in key}


@pytest.fixture
def aged(desk: ChannelDesk) -> ChannelDesk:
    """A channel with two subscribers and a message, all 50 s old."""
    desk.subscribed("own", ttl_s=T_S).subscribed("other", ttl_s=T_S).published("m1", ttl_s=T_S).age(AGE_S)
    return desk


RENEWED: dict[str, tuple[Callable[[ChannelDesk], object], set[str]]] = {
    "again": (lambda desk: desk.subscribe("own", ttl_s=T_S), {"clock"}),
    "new subscriber": (lambda desk: desk.subscribe("third", ttl_s=T_S), {"clock", "third"}),
    "publish": (lambda desk: desk.publish("m2", ttl_s=T_S), {"clock", "new body", "new mid"}),
    "duplicate": (lambda desk: desk.publish("m1", ttl_s=T_S), {"clock"}),
    "fetch": (lambda desk: desk.fetch("own", ttl_s=T_S), {"clock", "own"}),
    "fetch 0": (lambda desk: desk.fetch("own", most=0, ttl_s=T_S), {"clock", "own"}),
    "ack": (lambda desk: desk.acknowledge(1, "own", ttl_s=T_S), {"clock", "own"}),
    "stale": (lambda desk: desk.acknowledge(0, "own", ttl_s=T_S), set()),
    "beyond": (lambda desk: desk.acknowledge(2, "own", ttl_s=T_S), set()),
    "old": (lambda desk: desk.old("m1", subscriber="own"), set()),
    "no sub": (lambda desk: desk.fetch("nobody", ttl_s=T_S), set()),
    "no ack": (lambda desk: desk.acknowledge(1, "nobody", ttl_s=T_S), set()),
    "no unsub": (lambda desk: desk.unsubscribe("nobody"), set()),
    "late": (lambda desk: desk.publish("m2", ttl_s=T_S, not_after_ms=1), set()),
}


@pytest.mark.feature("DS19", "DS20", model="dsps")
@pytest.mark.parametrize("call", RENEWED)
def test_the_table(aged: ChannelDesk, call: str) -> None:
    check(aged, *RENEWED[call])


@pytest.mark.feature("DS20", model="dsps")
def test_an_empty_fetch_renews_as_well(aged: ChannelDesk) -> None:
    check(aged.acknowledged(1, "own", ttl_s=T_S).age(AGE_S), lambda desk: desk.fetch("own", ttl_s=T_S), {"clock", "own"})


def test_what_we_know_ends_with_the_clock_to_the_millisecond(desk: ChannelDesk) -> None:
    steps = [
        *(lambda: desk.subscribe(), lambda: desk.publish("m1"), lambda: desk.publish("m1")),
        *(lambda: desk.fetch(), lambda: desk.acknowledge(1), lambda: desk.subscribe("b")),
    ]
    for step in steps:
        desk.redis.pexpire(desk.keys.clock, 50_000)
        step()
        lives = desk.lives()
        assert lives[desk.keys.meta] == lives[desk.keys.clock] == lives.get(desk.keys.live, lives[desk.keys.clock])


SHORTER = [
    *(lambda desk: desk.publish("m2", ttl_s=15), lambda desk: desk.publish("m1", ttl_s=15)),
    *(lambda desk: desk.subscribe("own", ttl_s=15), lambda desk: desk.subscribe("third", ttl_s=15)),
    *(lambda desk: desk.fetch("own", ttl_s=15), lambda desk: desk.acknowledge(1, "own", ttl_s=15)),
]


@pytest.mark.parametrize("do", SHORTER)
def test_who_keeps_a_channel_for_less_takes_nothing_from_others(aged: ChannelDesk, do: Callable[[ChannelDesk], object]) -> None:
    """Messages and cursors that outlive the clock would be written over by a channel that begins again at 1."""
    before = aged.lives()
    do(aged)
    after = aged.lives()
    assert all(after[key] >= end_ms for key, end_ms in before.items())
    assert aged.age(16).publish("m3", ttl_s=15).clock in (2, 3) and aged.fetch("own", ttl_s=15).result == "ok"


def test_the_life_of_a_rule() -> None:
    for expire_ms, ttl_s in ((0, 15), (1, 16), (1_500, 17), (100_000, 115), (300_000, 315)):
        assert dsps.ttl_s(dsps.expire_ms((ChannelRule(expire_ms=expire_ms),), "orders")) == ttl_s


@pytest.mark.feature("DS02", model="dsps")
def test_a_message_id_may_come_again_after_its_life(desk: ChannelDesk) -> None:
    assert desk.published("m1", ttl_s=20).publish("m1", ttl_s=20).items[0].result == "duplicate"
    again = desk.subscribed(ttl_s=315).age(21).publish("m1", ttl_s=20)
    assert (again.items[0].result, again.clock, again.turned) == ("created", 2, False)


def publish_as_dsps(raw: Any, number: int, ttl_s: int) -> None:
    """The commands of the original's publish: the clock gets its time to live, whatever it had."""
    at = raw.incr("c.{orders}.clock")
    raw.expire("c.{orders}.clock", ttl_s)
    raw.set(f"c.{{orders}}.mid.d{number}", at, ex=ttl_s)
    raw.set(f"c.{{orders}}.m.{at}", f'{{"id":"d{number}","content":1}}', ex=ttl_s)
    raw.publish("dsps.c.{orders}", "new message")


@pytest.mark.parametrize(
    ("their_ttl_s", "told"), [(T_S, ""), (T_S + 1, ""), (60, "shorter by about 5"), (1_000, "longer by about 88")]
)
def test_a_service_with_another_expiry_is_told_of_once(
    ironclaim_url: str, raw: Any, caplog: pytest.LogCaptureFixture, their_ttl_s: int, told: str
) -> None:
    model = Dsps(rules=(ChannelRule(expire_ms=(T_S - 15) * 1_000),))
    with Channel("orders", model, url=ironclaim_url) as channel:
        channel.subscribe("s1")
        for number in range(3):
            channel.publish(f"m{number}", number)
            publish_as_dsps(raw, number, their_ttl_s)
            assert len(channel.fetch("s1").messages) == 2 * (number + 1)
            # What the engine's own call has put right, a duplicate of theirs puts wrong again.
            assert T_S - 50 < raw.ttl("c.{orders}.clock") <= max(T_S, their_ttl_s)
    warned = [record.getMessage() for record in caplog.records if "expire" in record.getMessage()]
    assert len(warned) == bool(told) and all(told in text and "channel orders" in text for text in warned), warned
