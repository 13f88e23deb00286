"""A load of several processes is that of one. Real histories of which some files are moved to another host: a clock that stands
elsewhere does no harm, one that does not run evenly, or that nobody measured, makes the verdict unknown."""

import json
import random
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.drill import Drill
from chaos.plan import PRODUCER
from reports.corrupt.command import KINDS
from reports.corrupt.history import OTHER_HOST, History
from reports.page.facts import clock_of
from tests.chaos import drills, judged
from tests.chaos.drills import history as rows_of
from tests.chaos.judged import TIMEOUT, Verdict
from tests.reports.conftest import verdict_of

pytestmark = [pytest.mark.slow, TIMEOUT]

S, AHEAD_S = 1_000_000_000, 2


def make(folder: Path, *, kinds: tuple[str, ...] = ("worker-kill",), producers: int = 1) -> Drill:
    """Carry out a short drill in which a worker is killed, unless other faults are named."""
    folder.mkdir()
    drill, plan = drills.make_drill(folder, seed=1, kinds=kinds)
    drill.spec = replace(drill.spec, plan=tuple(map(asdict, plan.faults)), liveness_slack_ms=3_000, producers=producers)
    return drills.carried_out(drill)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Drill, Verdict]:
    """One drill for all tests, and its verdict."""
    made, verdict = judged.drilled(make, lambda drill: drill.folder.path, tmp_path_factory.mktemp("runs"), spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    return made, verdict


def test_every_process_measures_its_clock_at_its_start_and_at_its_end(recorded: tuple[Drill, Verdict]) -> None:
    drill, verdict = recorded
    history = History(drill.folder.path, random.Random(1))
    assert verdict["measures"]["hosts"] == []
    for proc in (PRODUCER, *history.workers()):
        rows = history.files[f"{proc}.jsonl"]
        measures = [row for row in rows if row["kind"] == "offset"]
        assert len(measures) >= 2 and measures[-1] is rows[-2]
        offsets_us = [row["srv_us"] - row["done_ns"] / 1_000 for row in measures]
        # One machine: server and process differ by what the boot is after 1970, and by a round trip.
        assert max(offsets_us) - min(offsets_us) < 1_000_000


def test_a_clock_ahead_is_found_and_does_no_harm(recorded: tuple[Drill, Verdict], tmp_path: Path, spark: SparkSession) -> None:
    drill, plain = recorded
    history = History(drill.folder.path, random.Random(1))
    for proc in (PRODUCER, history.workers()[0]):
        history.on_another_host(proc, lambda at_ns: at_ns + AHEAD_S * S)
    history.write(tmp_path / "run")
    verdict = verdict_of(tmp_path / "run", spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    assert judged.check_verdicts(verdict) == judged.check_verdicts(plain)
    (line,) = verdict["measures"]["hosts"]
    assert line["host"] == OTHER_HOST and f"{PRODUCER}.jsonl" in line["files"]
    assert abs(line["ahead_ms"] - AHEAD_S * 1_000) <= line["error_ms"] < 50
    assert "ms ahead of the harness's, to" in clock_of(line)
    for name in ("enqueued", "finished", "lost", "doubled", "dead"):
        assert verdict["measures"][name] == plain["measures"][name], name


def test_a_violation_is_seen_across_two_clocks(recorded: tuple[Drill, Verdict], tmp_path: Path, spark: SparkSession) -> None:
    history = History(recorded[0].folder.path, random.Random(1))
    kinds = [KINDS["claimed-by-two-workers"], KINDS["stale-finish-accepted"]]
    subjects = {kind.check: kind.edit(history) for kind in kinds}
    for proc in history.workers()[::2]:
        history.on_another_host(proc, lambda at_ns: at_ns - AHEAD_S * S)
    history.write(tmp_path / "run")
    verdict = verdict_of(tmp_path / "run", spark)
    found = {check["id"]: check for check in verdict["checks"] if check["verdict"] == "violated"}
    assert all(subject in found[check]["subjects"] for check, subject in subjects.items())


UNKNOWN_CLOCKS = [
    ("clock-of-a-host-jumps", "ahead of the harness's between"),
    ("clock-of-a-host-runs-fast", "ahead of the harness's between"),
    ("clock-of-a-host-never-measured", "nothing bounds the clock"),
]


@pytest.mark.parametrize(("name", "words"), UNKNOWN_CLOCKS)
def test_a_clock_that_is_not_known_makes_the_verdict_unknown(
    recorded: tuple[Drill, Verdict], tmp_path: Path, spark: SparkSession, name: str, words: str
) -> None:
    drill, _ = recorded
    history = History(drill.folder.path, random.Random(1))
    KINDS[name].edit(history)
    history.write(tmp_path / "run")
    verdict = verdict_of(tmp_path / "run", spark)
    assert verdict["verdict"] == "unknown", json.dumps(verdict["reasons"], indent=1)
    assert any(OTHER_HOST in reason and words in reason for reason in verdict["reasons"])


def number_of(job: str) -> int:
    """The number of a job of the schedule."""
    return int(job.rpartition("-")[2])


def sent(drill: Drill) -> dict[str, dict[str, tuple[str, int]]]:
    """The jobs that each process has sent, with their names and the crc32 of their payloads."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for stem in sorted(files := rows_of(drill)):
        if stem.startswith(PRODUCER):
            rows = [row for row in files[stem] if (row["f"], row["type"]) == ("enqueue", "invoke")]
            found[stem] = {item["job"]: (item["name"], item["crc"]) for row in rows for item in row["items"]}
    return found


def test_a_locust_master_with_two_workers_does_what_one_process_does(tmp_path: Path, spark: SparkSession) -> None:
    def drilled(count: int) -> tuple[Drill, Verdict]:
        (folder := tmp_path / str(count)).mkdir()
        return judged.drilled(partial(make, kinds=(), producers=count), lambda drill: drill.folder.path, folder, spark)

    (one, of_one), (two, of_two) = drilled(1), drilled(2)
    assert two.errors == [] and of_two["verdict"] == of_one["verdict"] == "valid", of_two["reasons"]
    assert judged.check_verdicts(of_two) == judged.check_verdicts(of_one)
    (jobs,), parts = sent(one).values(), sent(two)
    assert list(parts) == [PRODUCER, f"{PRODUCER}-2"] and all(len(part) > 10 for part in parts.values())
    # Each sent its part of one schedule, without gaps, and the jobs are those of one process.
    for number, part in enumerate(parts.values()):
        numbers = sorted(map(number_of, part))
        assert numbers == list(range(number, numbers[-1] + 1, 2))
        assert all(jobs[job] == part[job] for job in jobs.keys() & part.keys())
    for verdict in (of_one, of_two):
        counts = verdict["measures"]
        assert (counts["lost"], counts["doubled"], counts["dropped"]) == (0, 0, 0)
        assert counts["finished"] + counts["dead"] == counts["enqueued"] > 20
