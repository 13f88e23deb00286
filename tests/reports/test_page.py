"""The page of whole runs: what it says, where its numbers come from, and how it fails."""

import html
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reports import page
from reports.facts import MS
from reports.judge import judge
from reports.page import document, series, timeline
from tests.reports.good_run import healthy
from tests.reports.page_runs import HOSTILE, hostile_page, judge_aloud

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hostile(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a violated run full of names that are markup, with its page."""
    return hostile_page(spark, tmp_path_factory)


def text_of(run: Path) -> str:
    return (run / page.FILE).read_text("utf-8")


def test_names_that_are_markup_stay_text(hostile: Path) -> None:
    """Ids of jobs, names of phases, and the spec: all of them come from others."""
    text = text_of(hostile)
    assert "<script" not in text.lower() and "<img" not in text.lower() and "onerror=alert(1)>" not in text
    assert "‮" not in text and "\0" not in text
    assert html.escape(HOSTILE.replace("‮", "\\u202e").replace("\0", "\\x00")) in text
    assert "could not be drawn" not in text


def without_history(folder: Path) -> Path:
    """A run whose history is gone."""
    run = healthy(folder).write()
    for file in (run / "history").iterdir():
        file.write_bytes(b"")
    return run


def test_a_run_that_cannot_be_looked_at_has_a_page_that_says_why(tmp_path: Path, spark: SparkSession) -> None:
    run = without_history(tmp_path / "run")
    decided = judge_aloud(run, spark)
    text = text_of(run)
    assert decided["verdict"] == "unknown" and html.escape(decided["reasons"][0]) in text
    assert "This is not a pass." in text and "<svg" not in text and not (run / page.FIGURES).exists()
    assert "python -m reports judge runs/" in text


def test_a_page_that_fails_changes_no_verdict(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    run = without_history(tmp_path / "run")
    (run / page.FILE).write_text("an older page")
    said: list[str] = []
    monkeypatch.setattr(document, "head", fails)
    decided = judge(run, spark=spark, say=said.append)
    assert json.loads((run / "verdict.json").read_text())["reasons"] == decided["reasons"] == ["the history of run is empty"]
    assert said == ["judge: the page of run cannot be written: RuntimeError: the disk is full"]
    assert not list(run.glob("report.html*"))


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the disk is full")


def test_what_reaches_the_driver_grows_with_seconds_not_with_jobs(spark: SparkSession) -> None:
    """10,000 jobs in two seconds come as one exact line per latency and second; one in a hundred was never finished."""
    start_ns = 5_000_000_000_000
    intended = F.lit(start_ns) + (F.col("id") % 2) * 1_000 * MS
    took_ns = F.floor(F.col("id") / 2) * MS
    jobs = spark.range(10_000).select(
        intended.alias("intended_ns"),
        (intended + MS).alias("enqueue_sent_ns"),
        (intended + 3 * MS).alias("created_done_ns"),
        F.when(F.floor(F.col("id") / 2) < 4_950, intended + took_ns).alias("accepted_done_ns"),
        F.lit(0).cast("bigint").alias("delay_ns"),
        F.lit(7_500).cast("bigint").alias("claim_srv_us"),
        F.lit(5).cast("bigint").alias("claimable_ms"),
    )
    columns = "kind string, f string, type string, result string, sends bigint, first_send_ns bigint, done_ns bigint"
    events = spark.createDataFrame([], columns)
    frames: Any = SimpleNamespace(jobs=jobs, eventful=SimpleNamespace(events=events))
    axis = timeline.Axis(start_ns, start_ns + 2_000 * MS, 1)
    assert series.latencies(frames, axis).count() == 4 * 2
    found = series.series(frames, axis)
    assert found.count("offered", 2) == [5_000, 5_000] and found.count("finished", 2) == [1_000, 2_000]
    for second in (0, 1):
        assert found.latencies["service"][second] == series.Spread(5_000, 0, 2.0, 2.0, 2.0)
        assert found.latencies["intended"][second] == series.Spread(5_000, 0, 3.0, 3.0, 3.0)
        assert found.latencies["queue_delay"][second] == series.Spread(5_000, 0, 2.5, 2.5, 2.5)
        assert found.latencies["end_to_end"][second] == series.Spread(5_000, 50, 2_499.5, None, 4_949.0)
