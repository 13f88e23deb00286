"""A valid run, its verdict and its measures, checked against numbers worked out by hand."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reports.facts import RANKS, Run
from reports.measure import NEVER_MS, stated
from tests.reports.conftest import Judge
from tests.reports.good_run import GENERAL, healthy
from tests.reports.story import ns, srv_ms


@pytest.fixture(scope="module")
def valid_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = healthy(tmp_path_factory.mktemp("valid") / "run")
    story.enqueue("slow", 11.0, delay_ms=2_000, intended_ns=ns(10.5), own_intended_ns=ns(10.9))
    story.run("worker-1", "slow", 13.0)
    token = story.handled("worker-1", "hopeless", 39.1, enqueued=39.0, took=0.1, end="fail")
    story.end("bury", token, at=39.3)
    story.at_end["dead"].append(("hopeless", srv_ms(39.3)))
    story.row("producer-1", "drop", 40, intended_ns=ns(39.9), count=3, detail="too late to send")
    return story.write()


@pytest.fixture(scope="module")
def valid(valid_run: Path, judged: Judge) -> dict[str, Any]:
    return judged(valid_run)


def test_a_good_run_is_valid_in_every_check(valid: dict[str, Any]) -> None:
    assert [(entry["id"], entry["verdict"], entry["why"]) for entry in valid["checks"]] == [(c.id, "valid", "") for c in GENERAL]
    assert valid["verdict"] == "valid" and valid["reasons"] == []


def test_the_verdict_is_written_with_the_spec(valid: dict[str, Any], valid_run: Path) -> None:
    assert json.loads((valid_run / "verdict.json").read_text()) == valid
    suite = ElementTree.parse(valid_run / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(GENERAL)), "0", "0")
    assert valid["schema"] == 1 and valid["spec"] == json.loads((valid_run / "spec.json").read_text())


def test_jobs_are_counted(valid: dict[str, Any]) -> None:
    counted = {
        name: valid["measures"][name] for name in ("enqueued", "finished", "lost", "doubled", "refused_stale", "dead", "dropped")
    }
    assert counted == {"enqueued": 44, "finished": 43, "lost": 0, "doubled": 0, "refused_stale": 1, "dead": 1, "dropped": 3}


def test_each_fault_has_its_own_counts_and_recovery(valid: dict[str, Any]) -> None:
    """k1 starts elsewhere 9.21 s after the kill at 10 s, z1 9.402 s after the freeze at 25 s; the zombie's finish was refused."""
    none = {"lost": 0, "doubled": 0}
    assert valid["measures"]["by_fault"] == [
        {"fault": "1-worker-kill", "name": "worker-kill", **none, "stale": 0, "recovery_ms": 9_210.0},
        {"fault": "2-worker-freeze", "name": "worker-freeze", **none, "stale": 1, "recovery_ms": 9_402.0},
    ]


def test_latency_counts_from_the_intended_enqueue_and_its_delay(valid: dict[str, Any]) -> None:
    """`slow` was meant for 10.9 s with 2 s delay, and its finish was answered at 13.061 s."""
    phases = {line["phase"]: line for line in valid["measures"]["latency"]}
    assert list(phases) == ["lead-in", "kill", "recover-kill", "recover-freeze", "settle"]
    assert phases["kill"] == {"phase": "kill", "n": 1, "unfinished": 0, "p50_ms": 161.0, "p99_ms": 161.0}
    assert phases["recover-freeze"]["p50_ms"] == 71.0


def test_percentiles_are_exact(valid: dict[str, Any]) -> None:
    """lead-in: three jobs of 71 ms, and k1, killed and run again, of 9,469 ms."""
    lead_in = valid["measures"]["latency"][0]
    assert (lead_in["p50_ms"], lead_in["p99_ms"]) == (71.0, pytest.approx(71 + 0.97 * (9_469 - 71), abs=0.01))


def test_an_unfinished_job_has_no_end(valid: dict[str, Any]) -> None:
    """The dead job makes the p99 of its phase infinite, shown as null."""
    settle = next(line for line in valid["measures"]["latency"] if line["phase"] == "settle")
    assert (settle["unfinished"], settle["p50_ms"], settle["p99_ms"]) == (1, 71.0, None)


def test_percentiles_are_stated_for_each_series_and_phase_and_over_all(valid: dict[str, Any]) -> None:
    """44 jobs: enough for a p50 (22 above it), not for a p90 (4). `slow` was sent 100 ms late, and each answer took 1 ms."""
    lines = valid["measures"]["percentiles"]
    phases = [line["phase"] for line in valid["measures"]["latency"]]
    assert [(line["phase"], line["series"]) for line in lines] == [
        (phase, series) for phase in [*phases, "all"] for series in ("service", "intended", "queue_delay", "end_to_end")
    ]
    assert all(set(line) == {"phase", "series", "n", "p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "max_ms"} for line in lines)
    service, intended, queue_delay, end_to_end = (line for line in lines if line["phase"] == "all")
    rest = {"phase": "all", "n": 44, "p90_ms": None, "p99_ms": None, "p99_9_ms": None}
    assert service == {**rest, "series": "service", "p50_ms": 1.0, "max_ms": 1.0}
    assert intended == {**rest, "series": "intended", "p50_ms": 1.0, "max_ms": 101.0}
    assert queue_delay == {**rest, "series": "queue_delay", "p50_ms": 10.0, "max_ms": 100.0}
    assert end_to_end == {**rest, "series": "end_to_end", "p50_ms": 71.0, "max_ms": None}


@pytest.mark.parametrize(
    ("count", "most"), [(19, 0), (20, 1), (99, 1), (100, 2), (999, 2), (1_000, 3), (9_999, 3), (10_000, 4)], ids=str
)
def test_a_percentile_with_too_few_samples_above_it_is_not_stated(count: int, most: int) -> None:
    """At least ten; the greatest value is always one of them."""
    found = stated(count, [1.0] * len(RANKS))
    assert [name for name, value in found.items() if value is not None] == [*list(RANKS)[:most], "max_ms"]


def test_what_lies_between_a_latency_and_one_without_end_has_no_end(spark: SparkSession) -> None:
    """33 of 33,000 jobs never end: the p99.9 is a thousandth of the way from the last that does to the first that does not."""
    value = F.when(F.col("id") < 32_967, 5.0).otherwise(NEVER_MS)
    ranks = [rank / 1_000 for rank in RANKS.values()]
    found = spark.range(33_000).agg(F.percentile(value, ranks).alias("values_ms")).collect()[0]["values_ms"]
    assert stated(33_000, found) == {"p50_ms": 5.0, "p90_ms": 5.0, "p99_ms": 5.0, "p99_9_ms": None, "max_ms": None}


def test_what_never_came_is_infinite() -> None:
    assert stated(10_000, [1.0, 2.0, 3.0, NEVER_MS / 2, NEVER_MS]) == {
        **{"p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": 3.0},
        **{"p99_9_ms": None, "max_ms": None},
    }


def test_recovery_counts_from_waitpid_to_the_next_handler_start(valid: dict[str, Any]) -> None:
    expected = {"fault": "1-worker-kill", "target": "worker-2", "jobs": 1, "recovery_ms": 9_200.0, "bound_ms": 11_000}
    assert valid["measures"]["recovery"] == [{**expected, "connected": "proxied"}]


@pytest.mark.parametrize(("direct", "connected"), [(["worker-2"], "direct"), ([], "proxied"), (None, "")])
def test_the_spec_says_how_a_process_was_connected(direct: list[str] | None, connected: str) -> None:
    assert Run({"direct": direct}, {}).connected("worker-2") == connected
    assert Run({}, {}).connected("worker-2") == ""


def test_faults_are_listed_with_their_witness(valid: dict[str, Any]) -> None:
    kill_line, freeze_line = valid["measures"]["faults"]
    assert (kill_line["fault"], kill_line["target"], kill_line["detail"]) == ("1-worker-kill", "worker-2", "witness seen")
    assert all(line["witnessed"] and line["healed"] for line in (kill_line, freeze_line))


def test_rates_and_send_lag(valid: dict[str, Any]) -> None:
    """44 jobs and 3 that were not sent, between 1.0 s and 42.5 s; `slow` was sent 100 ms late."""
    measures = valid["measures"]
    assert measures["rates"]["offered_per_s"] == pytest.approx(47 / 41.5, abs=0.01)
    assert measures["rates"]["finished_per_s"] == pytest.approx(43 / 41.571, abs=0.01)
    assert measures["send_lag"]["p50_ms"] == 0.0
    assert measures["send_lag"]["p99_ms"] == pytest.approx(57.0, abs=0.5)
    assert measures["recorder_share"] is not None


def test_tables_are_written(valid: dict[str, Any], valid_run: Path, spark: SparkSession) -> None:
    """Events: one row per job of an operation, invocations only where there is no completion."""
    events = spark.read.parquet(*map(str, sorted((valid_run / "parquet").glob("*.events.parquet"))))
    operations = events.where("item.job = 'k1' and kind = 'operation'")
    found = sorted((row["f"], row["type"]) for row in operations.collect())
    answered = [("claim", "ok"), ("claim", "ok"), ("enqueue", "ok"), ("finish", "ok"), ("handle", "invoke"), ("handle", "ok")]
    assert found == [*answered, ("reap", "ok")]
