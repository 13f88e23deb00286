"""The measures of a channel run against numbers worked out by hand, and the parts of its page that need no Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.models import dsps
from reports import evidence, frames, load
from reports.channels import measure, turns
from reports.channels.frames import ChannelFrames
from reports.channels.plan import CLOCK_MAX, CLOCKS, clock_at, distance, lag, past_wrap
from reports.checks import CHECKS
from reports.findings import examine
from reports.folder import history_files
from reports.page import chapters
from reports.page.channels import chapters as channel_chapters
from reports.page.channels import words
from reports.page.channels.series import Fall, channel_series, falls
from reports.page.timeline import Axis, Window, axis
from reports.table import render
from reports.verdict import NO_MEASURES
from tests.given import Patch
from tests.golden import same
from tests.reports.channel_story import ChannelStory
from tests.reports.figures import page_of
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


def test_clocks_of_the_judge_are_those_of_the_engine() -> None:
    assert (CLOCK_MAX, CLOCKS) == (dsps.CLOCK_MAX, dsps.CLOCKS)
    for one in CLOCKS_SEEN:
        assert clock_at(past_wrap(one)) == one
        for other in CLOCKS_SEEN:
            assert distance(one, other) == dsps.clock_distance(one, other)
            assert (lag(one, other) > 0) == dsps.clock_after(other, one)
    assert [past_wrap(one) for one in (CLOCK_MAX - 1, CLOCK_MAX, -CLOCK_MAX, -CLOCK_MAX + 1)] == [-1, 0, 1, 2]


ERAS = [(-3, -3, -1, False), (-3, -2, 2, True), (-1, 1, 5, True), (4, 5, 9, False), (4, -1, 3, True), (past_wrap(0), 1, 2, False)]


@pytest.mark.parametrize(("start", "lowest", "highest", "crossed"), ERAS)
def test_an_era_crosses_when_it_began_before_the_wrap(start: int, lowest: int, highest: int, crossed: bool) -> None:
    """Its first answer may lie beyond the wrap; one that goes back before the wrap crosses it once more."""
    row: Any = {"channel": "one", "era": 1, "first_ns": 5, "lowest": lowest, "highest": highest}
    assert (turns.era_of(row | {"beyond_ns": 7 if highest > 0 else None}, start).crossed_ns == 7) is crossed


def test_a_fall_of_the_clock_on_the_server_is_seen_across_the_wrap(run: Path, along: Axis) -> None:
    """Samples that cannot be read are passed over; a crossing is no fall."""
    assert falls(run, along) == [Fall("one", 7.0, 1, 0)]


def test_what_is_not_known_is_said_and_many_are_many() -> None:
    assert words.story({"measures": {**NO_MEASURES}})[0] == "It cannot be told what was published and delivered."
    told = {**NO_MEASURES, "published": 2, "deliveries": 1, "wraps_crossed": 0, "wrap_channels": 1}
    assert words.story({"measures": told})[0].endswith("it cannot be told whether any was lost.")
    assert words.clocks(told).endswith("; 0 of them crossed it under load.")
    assert "; clocks went back 8 times, one time for each" in words.clocks({**told, "era_changes": 8})
    assert [words.lost({**told, "lost": lost}).split("; ")[1] for lost in (0, 3)] == ["none was lost.", "3 were lost."]
    assert '<div class="unsure"><dt>wraps crossed</dt><dd>0 of 1</dd></div>' in words.tiles(told)
    assert "<div><dt>wraps crossed</dt><dd>not known</dd></div>" in words.tiles({**NO_MEASURES})


def test_the_whole_page(built: ChannelFrames, measured: Any, along: Axis, run: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """With a check, faults and a violation that are made up; what is printed and measured, and what proves nothing in it.

    Five messages are there for sure and one perhaps; `b` came twice, `c` was published twice. The reader of `two` is told of `d`,
    twice from one cursor; that of `one` is told of `b`, which it had not acknowledged before the restore took it away. `a` was
    meant for 0.995 s and there at 1.012; `b` took 4 ms, `c` 2 ms; who is slow on purpose is not measured.
    """
    bands = [("1-net-down", "net-down", "publisher-1", 2.0, 5.0, True), ("2-x", "subscriber-kill", "s", 9.0, 12.0, False)]
    monkeypatch.setattr(chapters, "windows", lambda *_: [Window(*band) for band in bands])
    series = channel_series(built, along)
    monkeypatch.setattr(channel_chapters, "channel_series", lambda *_: series)
    fault = {"fault": "1-net-down", "target": "publisher-1", "detail": "seen", "healed_detail": ""}
    fault |= {"witnessed": True, "healed": False}
    check = {"id": "P1", "name": "all arrive", "verdict": "violated", "why": "one is gone", "evidence": []}
    check |= {"violations": 1, "declared": 0, "possible": 2, "not_judged": ["the rest"]}
    check |= {"examples": ["one/reader never got b"], "subjects": ["one/reader"]}
    decided: dict[str, Any] = {"verdict": "violated", "reasons": ["P1 violated"], "checks": [check], "findings": [], "slo": []}
    decided["spec"] = built.run.spec
    decided["measures"] = {**NO_MEASURES, **measured, "faults": [fault], "lost": 1}
    evidence.collect(run, decided, built.run, lambda line: None)
    held = examine(built, tmp_path, [check for check in CHECKS if check.id in ("H0", "H1", "H2", "H3")])
    doubts = [f"{one.check.id} {one.verdict}: {one.why}" for one in held]
    printed = [render(decided), *doubts, json.dumps(measured, indent=1)]
    same("reports/page_of_channels.html", "\n".join([page_of(run, decided, built), *printed]))
