"""The clock of the scripts against its twin in Python: edges and random numbers, on a real server."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import ScriptFault
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, clock_after, clock_ahead, clock_distance
from engine.redis.scripts import layers_of, linked_functions, scripts_folder
from tests.engine.channels.channel_desk import ChannelDesk

AROUND = (CLOCK_MIN, CLOCK_MIN // 2, 0, CLOCK_MAX // 2, CLOCK_MAX)
EDGES = sorted({clock_ahead(edge, by) for edge in AROUND for by in range(-3, 4)})


def pairs() -> Iterator[tuple[int, int]]:
    """All pairs of edges, then clocks that are anywhere, close to each other, or half a circle apart."""
    yield from itertools.product(EDGES, EDGES)
    draw = random.Random(20_240)
    for _ in range(3_000):
        one = draw.randint(CLOCK_MIN, CLOCK_MAX)
        yield one, draw.randint(CLOCK_MIN, CLOCK_MAX)
        yield one, clock_ahead(one, draw.randint(-1_000, 1_000))
        yield one, clock_ahead(one, CLOCK_MAX + draw.randint(-3, 3))


@pytest.mark.feature("DS18", model="dsps")
def test_the_two_say_the_same(desk: ChannelDesk) -> None:
    text = linked_functions(["clock_of", "clock_after", "clock_ahead", "clock_steps"], layers_of(scripts_folder(), "dsps"))
    text += "\n" + Path(__file__).with_name("clock.lua").read_text()
    given = list(pairs())
    for start in range(0, len(given), 1_000):
        some = given[start : start + 1_000]
        said = desk.redis.eval(text, 0, *itertools.chain(*some))
        for at, (one, other) in enumerate(some):
            after = clock_after(one, other)
            steps = clock_distance(other, one) if after else 0
            there = [str(one).encode(), str(other).encode()] if after else [b"", b""]
            beside = [str(clock_ahead(one, by)).encode() for by in (1, -1)]
            assert said[6 * at : 6 * at + 6] == [int(after), str(steps).encode(), *there, *beside], (one, other)


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e3", " 1", "0x10", "9007199254740992", "-9007199254740993", "nan"])
@pytest.mark.parametrize("where", ["clock", "cursor", "mid", "meta"])
def test_what_is_no_clock_is_told_and_nothing_is_written(desk: ChannelDesk, where: str, text: str) -> None:
    desk.subscribed().publish("m1")
    keys = {"clock": desk.keys.clock, "cursor": desk.keys.cursor("s"), "mid": desk.keys.mid("m1")}
    if where == "meta":
        desk.redis.hset(desk.keys.meta, "last", text)
    else:
        desk.redis.set(keys[where], text, keepttl=True)
    before, lives = desk.dump(), desk.lives()
    cursor = (desk.subscribe, desk.fetch, lambda: desk.acknowledge(1), lambda: desk.old("m1"))
    calls = {"cursor": cursor, "mid": (lambda: desk.publish("m2", "m1"), lambda: desk.old("m1"))}
    for call in calls.get(where, (lambda: desk.publish("m2"), *cursor)):
        with pytest.raises(ScriptFault, match="no clock"):
            call()
    assert (desk.dump(), desk.lives()) == (before, lives)
