"""The measures of a channel run against numbers worked out by hand, and the parts of its page that need no Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.models import dsps
from reports import frames, load
from reports.channels import measure, turns
from reports.channels.frames import ChannelFrames
from reports.channels.plan import CLOCK_MAX, CLOCKS, clock_at, distance, lag, past_wrap
from reports.folder import history_files
from reports.page.channels.series import ChannelSeries, Fall, channel_series, falls
from reports.page.timeline import Axis, axis
from tests.reports.channel_story import ChannelStory
from tests.reports.story import ns

#: Clocks at the ends, in the middle and around the wrap.
CLOCKS_SEEN = (0, 1, -1, 41, CLOCK_MAX, CLOCK_MAX - 1, -CLOCK_MAX, -CLOCK_MAX + 1)


def frames_of(spark: SparkSession, run: Path) -> ChannelFrames:
    """The frames of a run, as its judge builds them."""
    files, spec = history_files(run), json.loads((run / "spec.json").read_text())
    history = load.read_history(spark, run, files)
    built = frames.build(history, load.collect_facts(history, spec), run)
    assert isinstance(built, ChannelFrames)
    return built


def told(folder: Path) -> Path:
    """A channel that crosses the wrap and goes back, and one with a slow subscriber, whose messages expire."""
    story = ChannelStory(folder)
    for name, role in (("harness", "harness"), ("publisher-1", "publisher"), ("subscriber-1", "subscriber")):
        story.process(name, role)
    story.phases(lead_in=0.0, calm=5.0, end=20.0)
    story.channel("one", preset=CLOCK_MAX - 1)
    story.channel("two", fan_out=2, preset=-5, slow=["away"])
    for channel, subscriber in (("one", "reader"), ("two", "reader"), ("two", "away")):
        story.subscribe("subscriber-1", channel, subscriber, 0.5)
    story.publish("publisher-1", "one", "a", 1.0, late=0.005)
    story.fetch("subscriber-1", "one", "reader", 1.010, took=0.002)
    story.acknowledge("subscriber-1", "one", "reader", 1.020)
    story.publish("publisher-1", "one", "b", 2.0, took=0.003, sends=2)
    for at in (2.003, 2.100):
        story.fetch("subscriber-1", "one", "reader", at)
    story.publish("publisher-1", "two", "c", 3.0)
    story.fetch("subscriber-1", "two", "reader", 3.001)
    story.acknowledge("subscriber-1", "two", "reader", 3.010)
    story.fetch("subscriber-1", "two", "away", 4.8)
    story.publish("publisher-1", "two", ["d", "c"], 6.0)
    story.expire("two", "d")
    for at in (6.5, 6.6):
        story.fetch("subscriber-1", "two", "reader", at)
    story.restore("one", CLOCK_MAX, highest=-CLOCK_MAX)
    story.publish("publisher-1", "one", "e", 10.0)
    story.fetch("subscriber-1", "one", "reader", 10.009)
    story.acknowledge("subscriber-1", "one", "reader", 10.100)
    story.acknowledge("subscriber-1", "one", "reader", 10.200)
    story.publish("publisher-1", "one", "f", 11.0, reply=None)
    story.row("publisher-1", "drop", 12.0, intended_ns=ns(12.0), count=2, detail="one x: too late")
    run = story.write(closed=20.0)
    (run / "samples" / "channels.jsonl").write_text(
        "".join(json.dumps({"t_ns": ns(at), "channel": "one", "clock": clock}) + "\n" for at, clock in SAMPLED) + '{"t_ns":'
    )
    return run


SAMPLED = [(1.0, CLOCK_MAX), (2.5, -CLOCK_MAX), (7.0, str(CLOCK_MAX)), (8.0, "many"), (9.0, True), (10.5, -CLOCK_MAX + 1)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return told(tmp_path_factory.mktemp("channels") / "run")


@pytest.fixture(scope="module")
def built(spark: SparkSession, run: Path) -> ChannelFrames:
    return frames_of(spark, run)


@pytest.fixture(scope="module")
def measured(built: ChannelFrames) -> dict[str, Any]:
    return measure.measures(built)


@pytest.fixture(scope="module")
def along(built: ChannelFrames) -> Axis:
    return axis(built.run)


@pytest.fixture(scope="module")
def drawn(built: ChannelFrames, along: Axis) -> ChannelSeries:
    return channel_series(built, along)


def test_clocks_of_the_judge_are_those_of_the_engine() -> None:
    assert (CLOCK_MAX, CLOCKS) == (dsps.CLOCK_MAX, dsps.CLOCKS)
    for one in CLOCKS_SEEN:
        assert clock_at(past_wrap(one)) == one
        for other in CLOCKS_SEEN:
            assert distance(one, other) == dsps.clock_distance(one, other)
            assert (lag(one, other) > 0) == dsps.clock_after(other, one)
    assert [past_wrap(one) for one in (CLOCK_MAX - 1, CLOCK_MAX, -CLOCK_MAX, -CLOCK_MAX + 1)] == [-1, 0, 1, 2]


def test_messages_are_counted(measured: dict[str, Any]) -> None:
    """Five are there for sure and one perhaps; `b` came twice, `c` was published twice. The reader of `two` is told of `d`, twice
    from one cursor; that of `one` is told of `b`, which it had not acknowledged before the restore took it away."""
    names = ("published", "offered", "deliveries", "redelivered", "subscribers", "lost_declared", "dropped")
    assert {name: measured[name] for name in names} == {
        **{"published": 5, "offered": 6, "deliveries": 5, "redelivered": 1, "subscribers": 3},
        **{"lost_declared": 2, "dropped": 2},
    }


def test_each_channel_has_its_line(measured: dict[str, Any]) -> None:
    one, two = measured["channels"]
    assert one == {
        **{"channel": "one", "group": "fan-out 1", "fan_out": 1, "published": 3, "delivered": 3, "redelivered": 1, "lost": 1},
        **{"wraps": True, "crossings": 1, "era_changes": 1},
    }
    assert two == {
        **{"channel": "two", "group": "fan-out 2", "fan_out": 2, "published": 2, "delivered": 2, "redelivered": 0, "lost": 1},
        **{"wraps": False, "crossings": 0, "era_changes": 0},
    }
    assert (measured["wraps_crossed"], measured["wrap_channels"], measured["era_changes"]) == (1, 1, 1)


def test_latency_counts_from_the_intended_publish_to_the_receipt(measured: dict[str, Any]) -> None:
    """`a` was meant for 0.995 and there at 1.012; `b` took 4 ms, `c` 2 ms; who is slow on purpose is not measured."""
    found = {(line["phase"], line["series"]): (line["n"], line["max_ms"]) for line in measured["percentiles"]}
    assert found == {
        **{("lead-in", "fan-out 1"): (2, 17.0), ("lead-in", "fan-out 2"): (1, 2.0), ("calm", "fan-out 1"): (1, 10.0)},
        **{("all", "fan-out 1"): (3, 17.0), ("all", "fan-out 2"): (1, 2.0)},
    }
    assert all(line["p50_ms"] is None for line in measured["percentiles"]), "too few for a median"


def test_rates_and_send_lag(measured: dict[str, Any]) -> None:
    """8 messages were offered between 0.995 s and 11 s; 5 were there by 10.001 s; 5 deliveries came from 1.012 s to 10.010 s."""
    assert measured["rates"] == {
        "offered_per_s": round(8 / 10.005, 2),
        "published_per_s": round(5 / (10.001 - 0.995), 2),
        "delivered_per_s": round(5 / (10.010 - 1.012), 2),
    }
    assert measured["send_lag"]["p50_ms"] == 0.0 and measured["send_lag"]["p99_ms"] == pytest.approx(4.75)
    assert measured["recorder_share"] is not None


@pytest.mark.slow
def test_a_clock_that_crosses_has_the_instant_and_its_eras(drawn: ChannelSeries) -> None:
    one, two = drawn.clocks
    assert (one.near, one.crossed_s) == (True, (2.003,)) and (two.near, two.crossed_s) == (False, ())
    before, after = one.eras
    assert before[0] == (0.501, -1) and before[-1][1] == 1, "from M - 1 over M to -M"
    assert after[0] == (10.001, 2), "the new era goes on after the latest clock that its callers remember"


@pytest.mark.parametrize(
    ("start", "lowest", "highest", "crossed"),
    [(-3, -3, -1, False), (-3, -2, 2, True), (-1, 1, 5, True), (4, 5, 9, False), (4, -1, 3, True), (past_wrap(0), 1, 2, False)],
)
def test_an_era_crosses_when_it_began_before_the_wrap(start: int, lowest: int, highest: int, crossed: bool) -> None:
    """Its first answer may lie beyond the wrap; one that goes back before the wrap crosses it once more."""
    row: Any = {"channel": "one", "era": 1, "first_ns": 5, "lowest": lowest, "highest": highest}
    assert (turns.era_of(row | {"beyond_ns": 7 if highest > 0 else None}, start).crossed_ns == 7) is crossed


def test_lag_is_what_lies_between_cursor_and_clock(drawn: ChannelSeries) -> None:
    lags = drawn.lags
    assert list(lags) == ["fan-out 1", "fan-out 2", "slow on purpose"]
    assert [lags["fan-out 1"][second].most for second in (0, 1, 2, 3, 9)] == [0, 0, 1, 1, 1]
    assert lags["fan-out 1"][10].most == 0, "it has acknowledged across the wrap"
    assert (lags["slow on purpose"][4].most, lags["slow on purpose"][7].most) == (1, 2)


def test_rates_over_time_are_those_of_the_history(drawn: ChannelSeries, along: Axis) -> None:
    def at(name: str) -> dict[int, int]:
        return {second: count for second, count in enumerate(drawn.count(name, along.buckets)) if count}

    assert at("offered") == {0: 1, 2: 1, 3: 1, 6: 1, 10: 1, 11: 1}
    assert at("published") == {1: 1, 2: 1, 3: 1, 6: 1, 10: 1}
    assert at("delivered") == {1: 1, 2: 1, 3: 1, 4: 1, 10: 1} and at("redelivered") == {2: 1} and at("lost") == {6: 1, 10: 1}
    assert (at("re-sent"), at("duplicate"), at("stale"), at("unanswered")) == ({2: 1}, {6: 1}, {10: 1}, {11: 1})


def test_a_fall_of_the_clock_on_the_server_is_seen_across_the_wrap(run: Path, along: Axis) -> None:
    """Samples that cannot be read are passed over; a crossing is no fall."""
    assert falls(run, along) == [Fall("one", 7.0, 1, 0)]
