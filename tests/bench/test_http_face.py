"""`python -m bench http` at a tiny size: everybody who waits is woken, each side of an enqueue answers, and no process stays."""

import pytest

from bench.micro import http_enqueue, http_face, http_wake
from tests.bench.real_parts import TWO_CORES, silent
from tests.given import Output, Patch

pytestmark = [TWO_CORES, pytest.mark.usefixtures("own_cores", "nothing_left")]


@pytest.mark.slow
def test_each_end_wakes_its_poll_and_every_listener() -> None:
    found = http_wake.measure(http_wake.Size(polls=5, listeners=3, seconds=1.0, ends_per_s=20.0), silent)
    assert {who: row["count"] for who, row in found["wake_ms"].items()} == {"polls": 20, "listeners": 3 * 20}
    for row in found["wake_ms"].values():
        assert 0 < row["p50"] <= row["p99"] <= row["max"]
    assert found["cpu_us_per_wake"] > 0 and len(found["memory_mb"]) >= 2
    assert http_face.details({"wake": found})[0].startswith("wake: ")


@pytest.mark.slow
def test_an_enqueue_over_http_stands_beside_a_bare_application_and_no_http() -> None:
    found = http_enqueue.measure(20, 2, silent)
    assert set(found) == {"1 at once", "16 at once"}
    for part in found.values():
        assert {name: len(rounds) for name, rounds in part["rows"].items()} == dict.fromkeys(
            ("HTTP face", "bare application", "AsyncQueue"), 2
        )
        assert all(row["jobs_per_s"] > 0 and row["p50_ms"] <= row["p99_ms"] for rounds in part["rows"].values() for row in rounds)
        assert all(row["ratio"] > 0 for row in part["ratios"].values())


def test_memory_that_steps_once_may_have_stayed_and_one_that_climbs_has_not() -> None:
    stepped = http_wake.growth([(30.0 * at, 80.0 + (at > 5)) for at in range(11)])
    climbing = http_wake.growth([(30.0 * at, 80.0 + at) for at in range(11)])
    assert stepped["low"] <= 0 < stepped["mb_per_minute"] == pytest.approx(0.2)
    assert climbing["low"] == pytest.approx(2.0) == climbing["high"]


@pytest.mark.parametrize(("p99_ms", "low", "met"), [(50.0, 0.1, True), (50.1, 0.0, False), (1.0, 0.11, False)])
def test_a_slow_wake_up_and_memory_that_grows_miss(p99_ms: float, low: float, met: bool) -> None:
    rows = {"polls": {"p99": p99_ms}, "listeners": {"p99": 1.0}}
    assert http_wake.met({"wake_ms": rows, "growth": {"low": low}}) is met


WRONG = {"polls 0": "whole number from 1 to 100000", "listeners -5": "whole number from 1 to 10000"}
WRONG |= {"seconds nan": "number from 1 to 86400", "rate 0": "number from 1 to 10000"}


@pytest.mark.parametrize(("words", "bound"), WRONG.items())
def test_a_size_nobody_can_measure_is_refused_before_a_server(words: str, bound: str, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(http_face, "Runner", lambda *_: pytest.fail("it has begun"))
    with pytest.raises(SystemExit, match="2"):
        http_face.main(f"--{words}".split())
    assert capsys.readouterr().err.endswith(f": {words.replace(' ', ' is ')}: it must be a {bound}\n")
