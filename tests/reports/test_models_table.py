"""The table of a comparison: every number where it belongs, and a question mark for what could not be had."""

import json
from pathlib import Path
from typing import Any

import pytest

from reports import command, errors
from reports.models_table import FILE, PAGE_FILE, side_by_side
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
LANES = {"verdict": "valid", "reasons": [], "findings": [FINDING], "measures": MEASURES}
FOUND: dict[str, Any] = {
    **{"schema": 1, "id": "20261122-034545-compare-seed1-all", "seed": 1, "quick": False, "started_utc": "2026-11-22T03:45:45Z"},
    "versions": {"server": "Valkey server v=9.1.2", "python": "3.11.2"},
    "git_commit": "abc",
    "machine": {"cores": 2, "memory_bytes": 2**33, "kernel": "Linux 6", "load": [0.1, 0.2, 0.3]},
    "models": [
        {"model": "lanes", "verdict": LANES, "costs": COSTS, "trouble": []},
        {"model": "bull", "verdict": None, "costs": None, "trouble": ["there was no time for it"]},
    ],
}


def test_text_and_page_have_a_row_for_each_measure_and_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FILE).write_text(json.dumps(FOUND))
    assert command.main(["models", str(tmp_path)]) == 0
    same("reports/models.html", steady(f"{capsys.readouterr().out}\n{(tmp_path / PAGE_FILE).read_text()}", tmp_path))


NO_COMPARISONS = [
    *((None, "models.json of .*: No such file or directory"), ("{", "models.json of .* is not JSON")),
    *(("[]", "models.json of .* is not of schema 1"), ('{"schema": 2}', "models.json of .* is not of schema 1")),
]


@pytest.mark.parametrize(("content", "complaint"), NO_COMPARISONS)
def test_a_folder_that_is_no_comparison_is_one_line(content: str | None, complaint: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(errors.JudgeError, match=complaint):
        side_by_side(tmp_path)
    assert command.main(["models", str(tmp_path)]) == 2
