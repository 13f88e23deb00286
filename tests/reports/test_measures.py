"""A valid run, its verdict and its measures, checked against numbers worked out by hand."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reports import evidence, slo, slo_file
from reports.facts import RANKS, Run
from reports.frames import Frames
from reports.measure import NEVER_MS, stated
from reports.page.document import head
from reports.table import render
from tests.golden import same
from tests.reports.conftest import verdict_of
from tests.reports.figures import page_of
from tests.reports.good_run import GENERAL, healthy
from tests.reports.page_runs import OBJECTIVES, written
from tests.reports.story import ns, srv_ms


@pytest.fixture(scope="module")
def valid_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = healthy(tmp_path_factory.mktemp("valid") / "run")
    story.enqueue("slow", 11.0, delay_ms=2_000, intended_ns=ns(10.5), own_intended_ns=ns(10.9))
    story.run("worker-1", "slow", 13.0)
    story.end("bury", story.handled("worker-1", "hopeless", 39.1, enqueued=39.0, took=0.1, end="fail"), at=39.3)
    story.at_end["dead"].append(("hopeless", srv_ms(39.3)))
    story.row("producer-1", "drop", 40, intended_ns=ns(39.9), count=3, detail="too late to send")
    story.spec |= {"machine": {"cores": 2, "memory_bytes": 8 * 2**30, "load": [0.1, 0.2, 0.3]}, "git_commit": "abc"}
    return written(story)


@pytest.fixture(scope="module")
def judgement(valid_run: Path, spark: SparkSession) -> tuple[dict[str, Any], Frames, list[str]]:
    """The verdict, the frames that it was decided on, and what was told meanwhile."""
    kept, said = list[Any](), list[str]()
    return verdict_of(valid_run, spark, lambda *told: kept.extend(told), said.append), kept[-1], said


@pytest.fixture(scope="module")
def valid(judgement: tuple[dict[str, Any], Frames, list[str]]) -> dict[str, Any]:
    return judgement[0]


def test_a_good_run_is_valid_in_every_check(valid: dict[str, Any]) -> None:
    assert [(entry["id"], entry["verdict"], entry["why"]) for entry in valid["checks"]] == [(c.id, "valid", "") for c in GENERAL]
    assert valid["verdict"] == "valid" and valid["reasons"] == []


def test_the_verdict_is_written_with_the_spec(valid: dict[str, Any], valid_run: Path) -> None:
    assert json.loads((valid_run / "verdict.json").read_text()) == valid
    suite = ElementTree.parse(valid_run / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(GENERAL)), "0", "0")
    assert valid["schema"] == 1 and valid["spec"] == json.loads((valid_run / "spec.json").read_text())


def test_what_lies_between_a_latency_and_one_without_end_has_no_end(spark: SparkSession) -> None:
    """33 of 33,000 jobs never end: the p99.9 is a thousandth of the way from the last that does to the first that does not."""
    value = F.when(F.col("id") < 32_967, 5.0).otherwise(NEVER_MS)
    ranks = [rank / 1_000 for rank in RANKS.values()]
    found = spark.range(33_000).agg(F.percentile(value, ranks).alias("values_ms")).collect()[0]["values_ms"]
    assert stated(33_000, found) == {"p50_ms": 5.0, "p90_ms": 5.0, "p99_ms": 5.0, "p99_9_ms": None, "max_ms": None}


@pytest.mark.parametrize(("direct", "connected"), [(["worker-2"], "direct"), ([], "proxied"), (None, "")])
def test_the_spec_says_how_a_process_was_connected(direct: list[str] | None, connected: str) -> None:
    assert Run({"direct": direct}, {}).connected("worker-2") == connected
    assert Run({}, {}).connected("worker-2") == ""


def test_tables_are_written(valid: dict[str, Any], valid_run: Path, spark: SparkSession) -> None:
    """Events: one row per job of an operation, invocations only where there is no completion."""
    events = spark.read.parquet(*map(str, sorted((valid_run / "parquet").glob("*.events.parquet"))))
    found = sorted((row["f"], row["type"]) for row in events.where("item.job = 'k1' and kind = 'operation'").collect())
    answered = [("claim", "ok"), ("claim", "ok"), ("enqueue", "ok"), ("finish", "ok"), ("handle", "invoke"), ("handle", "ok")]
    assert found == [*answered, ("reap", "ok")]


def test_the_whole_page_of_a_run(judgement: tuple[dict[str, Any], Frames, list[str]], valid_run: Path, tmp_path: Path) -> None:
    """With a violation that is made up, objectives, and faults; the head of the valid one; what is told, printed and measured.

    k1 starts elsewhere 9.21 s after the kill at 10 s, z1 9.402 s after the freeze at 25 s; the zombie's finish was refused.
    `slow` was meant for 10.9 s with 2 s delay, was sent 100 ms late, and its finish was answered at 13.061 s. The lead-in has
    three jobs of 71 ms, and k1, killed and run again, of 9,469 ms. The dead job has no end: the p99 of its phase is null.
    """
    decided, frames, said = judgement
    (tmp_path / "slo.toml").write_text(OBJECTIVES)
    objectives = slo_file.objectives_of(valid_run, tmp_path / "slo.toml", channels=False)
    made_up = {"verdict": "violated", "violations": 3, "subjects": ["k1", "z1"], "why": "3 found, the first: k1 overlaps"}
    made_up |= {"examples": ["k1 overlaps with slow of worker-1", "z1 was lost"], "possible": 1}
    broken = {**decided, "verdict": "violated", "reasons": ["J1 violated: 3 found"], "slo": slo.judged(objectives, decided)}
    broken["checks"] = [{**check, **made_up} if check["id"] == "J1" else check for check in decided["checks"]]
    evidence.collect(valid_run, broken, frames.run, lambda line: None)
    told = (re.sub(r"in [\d.]+ s$", "in a while", line) for line in said)
    printed = (*told, head("run (one server)", decided), render(broken), render(decided))
    measured = json.dumps(decided["measures"], indent=1)
    same("reports/page_of_jobs.html", "\n".join([page_of(valid_run, broken, frames), *printed, measured]))
