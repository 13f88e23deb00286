"""How a fetch waits, by a clock of the test: when it looks, how long it rests, and when it ends."""

from collections.abc import Generator
from typing import Any

import pytest

from engine.channel.steps import Rest, waiting

MS = 1_000_000


class Time:
    """A monotonic clock that goes when it is told to."""

    def __init__(self) -> None:
        self.ns = 5_000 * MS

    def now(self) -> int:
        return self.ns


def rests(wait_ms: int, ttl_s: int, answers: list[tuple[int, bool]], looks: list[str]) -> tuple[list[Rest], int]:
    """Rest as long as is asked for, or (answer) so many ms and then be rung; what was asked, and how long all took."""
    time = Time()
    asked: list[Rest] = []
    told = iter(looks)

    def look(waited_ms: int) -> Generator[Any, Any, tuple[str, bool]]:
        assert waited_ms == (time.ns - start) // MS, "a look is told how long it was waited"
        word = next(told, "")
        return word, word != ""
        yield

    start, steps = time.ns, waiting(look, wait_ms, ttl_s, time.now)
    try:
        request = next(steps)
        while True:
            assert isinstance(request, Rest)
            asked.append(request)
            rested_ms, goes_on = answers.pop(0) if answers else (request.most_ms, True)
            time.ns += rested_ms * MS
            request = steps.send(goes_on)
    except StopIteration as end:
        assert end.value == (next(reversed(looks), "") if looks else "")
    return asked, (time.ns - start) // MS


RESTS = [
    # At most thirty seconds, with a look every ten; a subscriber that lives for seconds is kept alive meanwhile.
    *((wait_ms, 1_815, [], [], [10_000] * 3, 30_000) for wait_ms in (30_000, 30_001, 3_600_000)),
    (30_000, 15, [], [], [5_000] * 6, 30_000),
    # Without a wait it looks once, and it ends with the first look that tells something.
    *((0, 1_815, [], [], [], 0), (20_000, 1_815, [], ["m"], [], 0)),
    (20_000, 1_815, [(7, True), (30, True)], ["", "", "m"], [10_000] * 2, 37),
    # It ends when the channel is closed, and rings for nothing do not make it longer.
    (20_000, 1_815, [(7, True), (30, False)], [], [10_000] * 2, 37),
    (500, 1_815, [(100, True)] * 4, [], [500, 400, 300, 200, 100], 500),
]


@pytest.mark.feature("DS12", model="dsps")
@pytest.mark.parametrize(("wait_ms", "ttl_s", "answers", "looks", "rested_ms", "took_ms"), RESTS)
def test_how_long_it_rests(wait_ms: int, ttl_s: int, answers: Any, looks: list[str], rested_ms: list[int], took_ms: int) -> None:
    asked, found_ms = rests(wait_ms, ttl_s, list(answers), looks)
    assert ([rest.most_ms for rest in asked], found_ms) == (rested_ms, took_ms)
    assert [rest.deaf_ms for rest in asked] == [min(each_ms, 1_000) for each_ms in rested_ms]


def test_it_does_not_rest_while_there_is_more_to_find() -> None:
    """Foreign publishers left many expired messages, and a look ends before it has found the living ones behind them."""
    told = iter(["searching", "searching", "", "m"])

    def look(_: int) -> Generator[Any, Any, tuple[str, bool]]:
        word = next(told)
        return word, word == "m"
        yield

    steps = waiting(look, 20_000, 1_815, Time().now, has_more=lambda word: word == "searching")
    asked = [next(steps)]
    with pytest.raises(StopIteration) as end:
        while True:
            asked.append(steps.send(True))
    assert end.value.value == "m" and asked == [Rest(0, 0), Rest(0, 0), Rest(10_000, 1_000)]
