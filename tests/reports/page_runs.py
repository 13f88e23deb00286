"""Runs for the tests of the page, and a reader of the page's tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reports.judge import judge
from tests.reports.good_run import healthy
from tests.reports.story import Story, ns, srv_ms

#: A job id that is markup, a formula, a text that runs backwards, and no text at all.
HOSTILE = "<img/src=x/onerror=alert(1)>$\\frac{1}$\"'&\u202e\0" + "x" * 60


def judge_aloud(run: Path, spark: SparkSession) -> dict[str, Any]:
    """Judge a run with its page; whatever the judge complains of fails the test."""
    said: list[str] = []
    decided = judge(run, spark=spark, say=said.append)
    assert not [line for line in said if "page" in line], said
    return decided


def written(story: Story) -> Path:
    """The run with everything that the sampler of the harness writes, each file cut off in mid-line."""
    story.cpu |= {"server": 0.1, "worker-1": 0.2, "worker-3": 0.1, "toxiproxy": 0.05}
    run = story.write()
    lines: dict[str, list[dict[str, Any]]] = {"queue": [], "server": []}
    for second in range(60):
        at: dict[str, Any] = {"t_ns": ns(second), "wall_ns": 0}
        counts = {"waiting": 3, "delayed": 2, "active": 1} if second == 5 else {"waiting": 0, "delayed": 0, "active": 1}
        lines["queue"].append({**at, "error": "timeout"} if second == 7 else {**at, "srv_us": srv_ms(second) * 1_000, **counts})
        lines["server"].append({**at, "used_memory": 2_000_000 + 1_000 * second})
    for name, rows in lines.items():
        (run / "samples" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"t_ns":1')
    return run


def hostile_run(folder: Path) -> Path:
    """A job with a hostile id is finished twice, in a run whose phases and spec are hostile, too."""
    story = healthy(folder)
    story.enqueue(HOSTILE, 39.0)
    story.reap("worker-3", story.run("worker-1", HOSTILE, 39.1), 39.3)
    story.run("worker-3", HOSTILE, 39.4)
    story.row("harness", "phase", 39.5, name="</title><script>alert(1)</script>" + "y" * 200)
    story.spec |= {
        **{"id": "</title><script>alert(2)</script>", "mutant": "<b>'; rm -rf /"},
        "machine": {"<i>": ["<u>"], "cores": "many", "memory_bytes": True},
        **{"versions": {"<s>": 1}, "harness_errors": ["<script>alert(3)</script>"]},
    }
    run = written(story)
    (run / "slo.toml").write_text(OBJECTIVES)
    return run


#: One that a job finished twice misses, one that a dead job misses, and one that no history can show: it has no such phase.
OBJECTIVES = """
errors.doubled = 0
errors.dead = 0
recovery.slowest_ms = 11_000
latency.recover-oom.end_to_end.p50_ms = 1
"""


def hostile_page(spark: SparkSession, folders: pytest.TempPathFactory) -> Path:
    """The hostile run with its page, drawn once for all tests of a process."""
    run = folders.getbasetemp() / "hostile-page"
    if not run.exists():
        hostile_run(run)
        assert judge_aloud(run, spark)["verdict"] == "violated"
    return run
