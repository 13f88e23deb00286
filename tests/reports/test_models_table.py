"""The table of a comparison: every number where it belongs, and a question mark for what could not be had."""

import json
from pathlib import Path
from typing import Any

import pytest

from reports import command, errors
from reports.models_table import FILE, PAGE_FILE, render, side_by_side
from tests.golden import same
from tests.reports.conftest import steady

FAULT = {"fault": "1-worker-kill", "name": "worker-kill", "lost": 0, "doubled": 1, "stale": 2, "recovery_ms": 2_040.5}
MEASURES: dict[str, Any] = {
    **{"enqueued": 2951, "finished": 2947, "lost": 0, "doubled": 1, "refused_stale": 2, "dead": 4},
    "rates": {"finished_per_s": 100.12},
    "by_fault": [FAULT],
}
COSTS: dict[str, Any] = {
    "throughput": {"enqueue_per_s": 2386.2, "drain_per_s": 11156.4},
    "per_job": {"enqueue": {"commands": 24.0, "redis_us": 37.8}, "claim_and_finish": {"commands": 7.5, "redis_us": 23.94}},
    "bytes": {"waiting": 432.4, "delayed": 633.0, "active": 743.1, "finished": 386.0, "dead": 1161.2},
    "claim_us": {"100 waiting": 21.71, "10,000 unmatchable in front": 22.6},
}
FINDING = {"name": "no-token", "text": "Completion carries <b>no</b> token.", "checks": ["J6"], "rows": 3, "examples": []}
FOUND: dict[str, Any] = {
    "schema": 1,
    "id": "20261122-034545-compare-seed1-all",
    "seed": 1,
    "quick": False,
    "started_utc": "2026-11-22T03:45:45Z",
    "versions": {"server": "Valkey server v=9.1.2", "python": "3.11.2"},
    "git_commit": "abc",
    "machine": {"cores": 2, "memory_bytes": 2**33, "kernel": "Linux 6", "load": [0.1, 0.2, 0.3]},
    "models": [
        {
            "model": "lanes",
            "verdict": {"verdict": "valid", "reasons": [], "findings": [FINDING], "measures": MEASURES},
            "costs": COSTS,
            "trouble": [],
        },
        {"model": "bull", "verdict": None, "costs": None, "trouble": ["there was no time for it"]},
    ],
}

TABLE = """\
comparison 20261122-034545-compare-seed1-all  seed 1
                                     lanes  bull
  drill
    verdict                          valid     ?
    rows of declared findings            3     ?
    enqueued                         2,951     ?
    finished                         2,947     ?
    lost                                 0     ?
    doubled                              1     ?
    refused stale                        2     ?
    dead                                 4     ?
    finished a second                100.1     ?
  throughput, jobs/s
    enqueued one by one              2,386     ?
    drained by one worker           11,156     ?
  claim, us of Redis a job
    100 waiting                       21.7     ?
    10,000 unmatchable in front       22.6     ?
  commands of Redis a job
    enqueue                           24.0     ?
    claim and finish                   7.5     ?
  us of Redis a job
    enqueue                           37.8     ?
    claim and finish                  23.9     ?
  bytes a job
    waiting                            432     ?
    delayed                            633     ?
    active                             743     ?
    finished                           386     ?
    dead                             1,161     ?
  lost / doubled / stale
    worker-kill                  0 / 1 / 2     ?
  recovery, s
    worker-kill                        2.0     ?

remarks
  lanes: declared, 3 rows: no-token: Completion carries <b>no</b> token.
  bull: there was no time for it"""


def test_the_table_has_a_row_for_each_measure_and_a_column_for_each_model() -> None:
    assert render(FOUND) == TABLE


def test_the_page_has_the_same_table_and_no_markup_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FILE).write_text(json.dumps(FOUND))
    assert (command.main(["models", str(tmp_path)]), capsys.readouterr().out.rstrip("\n")) == (0, TABLE)
    page = (tmp_path / PAGE_FILE).read_text()
    assert page.count("<tr>") == len(TABLE.split("\n\n")[0].splitlines()) - 1
    for words in ("11,156", "0 / 1 / 2", '<th scope="row">10,000 unmatchable in front</th>', "Completion carries &lt;b&gt;no"):
        assert words in page
    assert "http" not in page.replace("http-equiv", "") and "<b>no" not in page
    same("reports/models.html", steady(page, tmp_path))


NO_COMPARISONS = [
    (None, "models.json of .*: No such file or directory"),
    ("{", "models.json of .* is not JSON"),
    ("[]", "models.json of .* is not of schema 1"),
    ('{"schema": 2}', "models.json of .* is not of schema 1"),
]


@pytest.mark.parametrize(("content", "complaint"), NO_COMPARISONS)
def test_a_folder_that_is_no_comparison_is_one_line(content: str | None, complaint: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(errors.JudgeError, match=complaint):
        side_by_side(tmp_path)
    assert command.main(["models", str(tmp_path)]) == 2
