"""Merging, writing, and the lines that people read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from record.history import ITEM_FIELDS, ROW_FIELDS
from reports.checks import CHECKS
from reports.checks.h1_faults_bit import doubts
from reports.errors import JudgeError, one_line
from reports.facts import Process, Run, Stage
from reports.lines import item_type, line_schema
from reports.table import render
from reports.verdict import NO_MEASURES, merge, undecided, withdraw, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("verdicts", "merged"),
    [
        (["valid", "valid"], "valid"),
        (["valid", "unknown"], "unknown"),
        (["unknown", "violated", "valid"], "violated"),
        ([], "unknown"),
    ],
)
def test_false_beats_unknown_beats_true(verdicts: list[str], merged: str) -> None:
    assert merge(verdicts) == merged


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "verdict.json.new").symlink_to("/dev/full")
    with pytest.raises(JudgeError, match=r"^verdict\.json of .* cannot be written: No space left on device$"):
        write(tmp_path, undecided("why", {}))


def test_an_older_verdict_that_cannot_be_removed_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").mkdir()
    with pytest.raises(JudgeError, match=r"^the older verdict\.json of .* cannot be removed: Is a directory$"):
        withdraw(tmp_path)


def test_the_schema_has_every_field_and_no_narrow_integer() -> None:
    schema, item = line_schema(), item_type()
    assert schema.names == [field.name for field in ROW_FIELDS]
    assert [field.name for field in item] == [field.name for field in ITEM_FIELDS]
    types = {str(field.type) for fields in (schema, item) for field in fields if field.name != "items"}
    assert types == {"int64", "string", "list<item: string>"}
    assert (str(item.field("fence").type), str(item.field("nonce").type)) == ("int64", "string")


def test_errors_become_one_line() -> None:
    spark_error = ValueError("Job aborted\n\tat x\nCaused by: [ARITHMETIC_OVERFLOW] long overflow\n\tat y")
    assert one_line(spark_error) == "ValueError: [ARITHMETIC_OVERFLOW] long overflow"
    assert one_line(KeyError()) == "KeyError"
    java = "An error occurred while calling o7.parquet.\n: org.apache.X: failed\n\tat a\n"
    assert one_line(ValueError(f"{java}Caused by: java.io.IOException: disk full\n\tat b")) == "java.io.IOException: disk full"
    assert one_line(ValueError("An error occurred while calling o7.x.\n: org.apache.X: failed\n\tat a")) == "org.apache.X: failed"


PLAN = [{"fault": "1-worker-kill", "name": "worker-kill", "target": "worker-2"}]
VICTIM = (Process("worker-2", "worker", "worker-2.jsonl"),)
ALL = ("inject", "witness", "heal", "healed")


def stages(*seen: str, ok: bool = True) -> tuple[Stage, ...]:
    return tuple(Stage("1-worker-kill", "worker-kill", stage, "worker-2", ok, "", 10 * ALL.index(stage)) for stage in seen)


def test_a_control_run_without_planned_faults_needs_none() -> None:
    assert doubts(Run(spec={"plan": []}, files={})) == []


@pytest.mark.parametrize("stage", ["inject", "witness", "heal", "healed"])
def test_every_stage_of_a_fault_must_have_been_seen(stage: str) -> None:
    seen = [name for name in ("inject", "witness", "heal", "healed") if name != stage]
    run = Run(spec={"plan": PLAN}, files={}, processes=VICTIM, stages=stages(*seen))
    assert len(doubts(run)) == 1 and "fault 1-worker-kill was not" in doubts(run)[0]
    assert doubts(Run(spec={"plan": PLAN}, files={}, processes=VICTIM, stages=stages(*ALL))) == []


def test_a_planned_fault_that_never_came_is_in_doubt() -> None:
    run = Run(
        spec={"plan": [*PLAN, {"fault": "2-worker-freeze", "name": "worker-freeze", "target": "worker-3"}]},
        files={},
        stages=stages("inject", "witness", "heal", "healed"),
    )
    assert doubts(run)[0] == "fault 2-worker-freeze was not injected"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "power-loss"}, "fault 1-worker-kill has name worker-kill, planned was power-loss"),
        ({"target": "worker-3"}, "fault 1-worker-kill has target worker-2, planned was worker-3"),
        ({"fault": "9-worker-kill"}, "fault 1-worker-kill was not planned"),
    ],
)
def test_a_fault_must_be_the_planned_one(change: dict[str, str], words: str) -> None:
    assert words in doubts(Run(spec={"plan": [{**PLAN[0], **change}]}, files={}, processes=VICTIM, stages=stages(*ALL)))


def test_a_stage_that_is_there_twice_is_in_doubt_and_missing_wins() -> None:
    twice = (*stages(*ALL), *stages("witness", ok=False))
    found = doubts(Run(spec={"plan": PLAN}, files={}, processes=VICTIM, stages=twice))
    assert found == ["fault 1-worker-kill was not seen to bite", "fault 1-worker-kill has 2 rows of stage witness"]


def test_stages_come_in_their_order() -> None:
    inject, witness, heal, healed = stages(*ALL)
    late = replace(witness, t_ns=heal.t_ns + 5_000_000)
    found = doubts(Run(spec={"plan": PLAN}, files={}, processes=VICTIM, stages=(inject, heal, healed, late)))
    assert found == ["stage heal of fault 1-worker-kill came 5.0 ms before its witness"]


def test_a_spec_with_a_character_that_has_no_bytes_is_written(tmp_path: Path) -> None:
    write(tmp_path, undecided("why", {"id": "\ud800"}))
    assert json.loads((tmp_path / "verdict.json").read_text())["spec"]["id"] == "\ud800"


MEASURES = {
    **NO_MEASURES,
    **{"enqueued": 7200, "finished": 7190, "lost": None, "doubled": 0, "refused_stale": 3, "dead": 10, "dropped": 0},
    "latency": [{"phase": "lead-in", "n": 1200, "unfinished": 10, "p50_ms": 12.34, "p99_ms": None}],
    "recovery": [
        {
            "fault": "1-worker-kill",
            "target": "worker-2",
            "connected": "proxied",
            "jobs": 8,
            "recovery_ms": 9_640.0,
            "bound_ms": 11_000,
        }
    ],
    "faults": [
        {
            "fault": "1-worker-kill",
            "name": "worker-kill",
            "target": "worker-2",
            "witnessed": True,
            "healed": False,
            "detail": "waitpid -9",
        }
    ],
    "rates": {"offered_per_s": 120.0, "finished_per_s": 119.6},
    "send_lag": {"p50_ms": 0.21, "p99_ms": 1.9},
    "recorder_share": 0.0123,
}

TABLE = """\
run x  scenario bench  seed 1

jobs
  enqueued  finished  lost  doubled  refused stale  dead  not sent
      7200      7190     ?        0              3    10         0

latency in ms, from the intended enqueue (plus its delay) to the accepted finish
  phase    jobs  unfinished   p50  p99
  lead-in  1200          10  12.3  inf

recovery, from waitpid to the next handler start, slowest of the jobs in hand
  kill           worker    connected  in hand  recovery   bound
  1-worker-kill  worker-2  proxied          8     9.6 s  11.0 s

faults
  fault          target    witnessed  healed  witness
  1-worker-kill  worker-2  yes        NO      waitpid -9

rates
  offered 120.0/s, finished 119.6/s; send lag p50 0.2 ms, p99 1.9 ms; recorder 1.23% of the processes' time

checks
  id  check           verdict  violations  declared  possible
  J4  no job is lost  unknown           0         1         2

not judged
  J4: the end

declared findings
  finding   checks    rows  what it is
  no token  J4, J6:x     1  The wire has none.

reasons
  J4 unknown: there is no snapshot at the end

verdict: unknown"""


def test_the_table_is_plain_and_aligned_and_ends_with_the_verdict() -> None:
    entry = {
        "id": "J4",
        "name": "no job is lost",
        "verdict": "unknown",
        "violations": 0,
        "declared": 1,
        "possible": 2,
        "examples": [],
        "why": "",
        "not_judged": ["the end"],
    }
    head = {"verdict": "unknown", "reasons": ["J4 unknown: there is no snapshot at the end"], "checks": [entry]}
    spec = {"id": "x", "scenario": "bench", "seed": 1, "mutant": ""}
    finding = {"name": "no token", "checks": ["J4", "J6:x"], "text": "The wire has none.", "rows": 1, "examples": []}
    assert render({**head, "findings": [finding], "measures": MEASURES, "spec": spec}) == TABLE


def test_the_samples_of_the_pages_are_what_a_bench_prints() -> None:
    """When a check or a column comes or goes: `make bench`, its verdict.json here, and what it prints into the pages."""
    decided = json.loads(Path(__file__).with_name("bench_verdict.json").read_text())
    judging = [check for check in CHECKS if check.judges(Run(spec=decided["spec"], files={}))]
    assert [(entry["id"], entry["name"]) for entry in decided["checks"]] == [(check.id, check.name) for check in judging]
    printed = render(decided)
    assert f"\n...\n{printed}\n```" in (ROOT / "docs" / "verification.md").read_text()
    (sample,) = [block for block in (ROOT / "README.md").read_text().split("```") if "verdict: valid" in block]
    assert {*sample.splitlines()} <= {*printed.splitlines(), "...", "  ..."}


def test_a_run_that_could_not_be_looked_at_shows_why_and_the_verdict() -> None:
    decided = undecided("the history of x is empty", {})
    assert render(decided).splitlines() == ["reasons", "  the history of x is empty", "", "verdict: unknown"]
    assert json.loads(json.dumps(decided))["measures"]["lost"] is None


def test_a_violated_check_shows_the_rows_of_its_first_violation_below_it() -> None:
    entries = [
        {"id": id, "name": "x", "verdict": verdict, "violations": 1, "declared": 0, "possible": 0, "why": "", "not_judged": []}
        for id, verdict in (("J1", "violated"), ("J2", "valid"))
    ]
    entries[0] |= {"examples": ["a broke", "b broke"], "evidence": ["worker-1.jsonl:7   1.000 s", "worker-1.jsonl:12  1.500 s"]}
    head = {"verdict": "violated", "reasons": [], "findings": [], "measures": MEASURES, "spec": {}}
    printed = render({**head, "checks": entries}).splitlines()
    first = next(place for place, line in enumerate(printed) if line.startswith("  J1"))
    assert printed[first + 1 : first + 5] == [
        "      a broke",
        "        worker-1.jsonl:7   1.000 s",
        "        worker-1.jsonl:12  1.500 s",
        "  J2  x      valid              1         0         0",
    ]


def test_objectives_are_a_table_and_a_line_before_the_verdict() -> None:
    line = {"objective": "errors.lost", "bound": 0.01, "at_least": False, "unit": "share", "value": 0.05, "result": "missed"}
    head = {"verdict": "valid", "reasons": [], "checks": [], "findings": [], "measures": MEASURES, "spec": {}}
    assert render({**head, "slo": [{**line, "note": "5 of 100"}]}).splitlines() == [
        "service level objectives",
        "  objective    wanted       measured  result  rests on",
        "  errors.lost  at most 1 %  5 %       missed  5 of 100",
        "",
        "slo: missed 1 of 1",
        "verdict: valid",
    ]
