"""The page of whole runs: what it says, where its numbers come from, and how it fails."""

import html
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reports import page, verdict
from reports.facts import MS
from reports.judge import judge
from reports.page import chapter, document, series, timeline
from tests.reports.good_run import healthy
from tests.reports.page_runs import HOSTILE, hostile_page, judge_aloud, rows_of, sampled_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def good(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a valid run with its page."""
    run = sampled_run(tmp_path_factory.mktemp("good") / "run")
    assert judge_aloud(run, spark)["verdict"] == "valid"
    return run


@pytest.fixture(scope="module")
def hostile(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a violated run full of names that are markup, with its page."""
    return hostile_page(spark, tmp_path_factory)


def text_of(run: Path) -> str:
    return (run / page.FILE).read_text("utf-8")


def test_verdict_and_what_it_means_come_first(good: Path) -> None:
    text = text_of(good)
    body = text[text.index("<body>") :]
    assert body.index("<h1>") < body.index("<nav") < body.index("<table")
    head = html.unescape(re.sub(r"<[^>]+>", " ", body[: body.index("<nav")]))
    assert "valid" in head and "Every check ran, had evidence, and found nothing wrong." in head
    assert "none was lost and none was finished twice" in head
    assert "When worker-2 was killed it held 1 job; it ran elsewhere 9.2 s later (11.0 s are allowed)." in head
    assert "2 faults were injected; each was seen to bite and seen to heal." in head


def test_every_figure_is_there_with_its_numbers(good: Path) -> None:
    text = text_of(good)
    figures = re.findall(r'<section id="([^"]+)"><h2>[^<]*</h2>\s*<p>(?:(?!<section).)*?<svg', text, flags=re.S)
    assert figures == ["phases", "latency", "load", "recovery", "lanes-1", "lanes-2", "machine"]
    for name in figures:
        assert (good / page.FIGURES / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        rows = rows_of(text, name)
        assert rows and all(len(row) == len(rows[0]) > 2 for row in rows), name


def test_numbers_of_latency_are_those_of_the_history(good: Path) -> None:
    """Second 1 of the good run holds one job: sent when intended, answered after 1 ms, finished after 71 ms."""
    row = next(row for row in rows_of(text_of(good), "latency") if row[0] == "1")
    jobs, service, intended, whole = int(row[1]), row[2:6], row[6:10], row[-4:]
    assert (jobs, service, intended) == (1, ["1.000", "1.000", "1.000", "0"], ["1.000", "1.000", "1.000", "0"])
    assert whole == ["71.0", "71.0", "71.0", "0"]


def test_numbers_of_load_are_those_of_the_history_and_the_samples(good: Path) -> None:
    """In second 36 the frozen worker comes back, and its finish is refused; the sampler saw 3 waiting, 2 delayed, 1 active."""
    rows = {row[0]: dict(zip(HEADS, row, strict=True)) for row in rows_of(text_of(good), "load")}
    assert rows["36"]["refused"] == "1" and rows["35"]["refused"] == "0"
    assert [rows["5"][state] for state in ("waiting", "delayed", "active")] == ["3", "2", "1"]
    assert [rows["37"][name] for name in ("offered", "finished")] == ["6", "6"]
    assert sum(int(row["offered"]) for row in rows.values()) == sum(int(row["finished"]) for row in rows.values()) == 42


HEADS = (
    "second", "offered", "enqueued", "finished", "re-sent", "repeated", "refused", "unanswered", "waiting", "delayed", "active",
)  # fmt: skip


def test_recovery_and_lanes_follow_the_job_of_the_killed_worker(good: Path) -> None:
    assert rows_of(text_of(good), "recovery") == [["k1", "1-worker-kill", "worker-2", "proxied", "9.200", "ran elsewhere"]]
    held, again = rows_of(text_of(good), "lanes-1")
    assert [held[1], held[3], held[8], held[10], held[11]] == ["k1", "worker-2", "&ndash;", "19.0", "worker-1"]
    assert [again[1], again[3], again[8], again[9]] == ["k1", "worker-1", "finish", "accepted"]
    assert int(again[2]) > int(held[2]), "the next lease carries a higher fence"
    zombie, heir = rows_of(text_of(good), "lanes-2")
    assert [zombie[3], zombie[9], heir[3], heir[9]] == ["worker-3", "refused", "worker-1", "accepted"]


def test_names_that_are_markup_stay_text(hostile: Path) -> None:
    """Ids of jobs, names of phases, and the spec: all of them come from others."""
    text = text_of(hostile)
    assert "<script" not in text.lower() and "<img" not in text.lower() and "onerror=alert(1)>" not in text
    assert "‮" not in text and "\0" not in text
    assert html.escape(HOSTILE.replace("‮", "\\u202e").replace("\0", "\\x00")) in text
    assert "could not be drawn" not in text


def test_a_violation_names_its_jobs_and_shows_their_leases(hostile: Path) -> None:
    text = text_of(hostile)
    assert "The recorded history proves that a promise was broken." in text and "one was finished twice" in text
    assert text.index("J6 violated") < text.index("<nav")
    leases = rows_of(text, "offenders")
    assert len(leases) == 2 and [row[9] for row in leases] == ["accepted", "accepted"]


def test_a_violation_shows_the_rows_that_prove_it(hostile: Path) -> None:
    """Along time, and below its check; each row with its file and line."""
    text = text_of(hostile)
    rows = rows_of(text, "first-violation")
    for number, (_, place, at_s, *_) in enumerate(rows, 1):
        file, line = html.unescape(re.sub("<[^>]+>", "", place)).split(":")
        row = json.loads((hostile / "history" / file).read_text().splitlines()[int(line) - 1])
        assert row["items"][0]["job"] == HOSTILE and rows[number - 1][0] == str(number)
        assert 38.9 < float(at_s) < 41
    kinds = [re.sub("<[^>]+>", "", row[5]) for row in rows]
    assert kinds.count("finish") == 2 and kinds.count("claim") == 2 and kinds[0] == "enqueue"
    marked = {kind for kind, row in zip(kinds, rows, strict=True) if row[5].startswith("<mark>")}
    assert "finish" in marked and "enqueue" not in marked, "those that its sentence names"
    checks = text[text.index('<section id="checks">') : text.index('<section id="first-violation">')]
    assert "<summary>Evidence: rows of the history</summary>" in checks
    assert all(row[1] in checks for row in rows)


def test_objectives_are_beside_the_key_numbers(hostile: Path) -> None:
    head = text_of(hostile)
    head = head[: head.index("<nav")]
    assert "Service level objectives: 1 missed, 1 cannot be judged, 1 met." in head
    rows = re.findall(r"<tr><th scope=\"row\"><code>(.*?)</code>.*?<span class=\"badge (\w+)\">", head, flags=re.S)
    assert [(name.partition(".")[0], result) for name, result in rows] == [
        ("errors", "missed"), ("recovery", "met"), ("latency", "unknown"),
    ]  # fmt: skip


def without_history(folder: Path) -> Path:
    """A run whose history is gone."""
    run = healthy(folder).write()
    for file in (run / "history").iterdir():
        file.write_bytes(b"")
    return run


def test_a_run_that_cannot_be_looked_at_has_a_page_that_says_why(tmp_path: Path, spark: SparkSession) -> None:
    run = without_history(tmp_path / "run")
    decided, text = judge_aloud(run, spark), text_of(run)
    assert decided["verdict"] == "unknown" and html.escape(decided["reasons"][0]) in text
    assert "This is not a pass." in text and "<svg" not in text and not (run / page.FIGURES).exists()
    assert "python -m reports judge runs/" in text


def test_a_page_that_fails_changes_no_verdict_and_leaves_nothing_half_done(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = without_history(tmp_path / "run")
    (run / page.FILE).write_text("an older page")
    said: list[str] = []
    monkeypatch.setattr(document, "contents", fails)
    decided = judge(run, spark=spark, say=said.append)
    assert json.loads((run / "verdict.json").read_text())["reasons"] == decided["reasons"] == ["the history of run is empty"]
    assert said == ["judge: the page of run cannot be written: RuntimeError: the disk is full"]
    assert not list(run.glob("report.html*"))


def test_a_page_that_is_interrupted_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        assert list(tmp_path.glob("report.html*")) == [tmp_path / "report.html.new"], "it is written beside its place"
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        page.write_report(tmp_path, verdict.undecided("nothing to see", {}), None)
    assert not list(tmp_path.iterdir())


def test_a_chapter_that_fails_says_so_in_its_place() -> None:
    nothing: Any = None
    (only,) = chapter.guarded(fails, nothing)
    assert only.title == "Missing: fails" and "This could not be drawn: RuntimeError: the disk is full" in only.lead


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
    events = spark.createDataFrame(
        [], "kind string, f string, type string, result string, sends bigint, first_send_ns bigint, done_ns bigint"
    )
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
