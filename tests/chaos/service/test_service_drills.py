"""Whole drills of services, judged: what at-least-once costs without `effects.once`, and handlers that keep all places."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.service.service import asked

ROOT = Path(__file__).resolve().parents[3]
SHOP = ROOT / "docs" / "examples" / "shop"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200), pytest.mark.usefixtures("nothing_left")]

#: A machine that was busy may leave a drill unknown; it is drilled again.
TRIES = 3

HANGING = """
import time
from engine import Job, Queue
queue = Queue("hanging")
@queue.job("quick")
def quick(job: Job) -> None:
    time.sleep(0.01)
@queue.job("hang")
def hang(job: Job) -> None:
    time.sleep(600)
def load(seed):
    queue.set_limit(name="hang", concurrency=2)
    for number in range(10**9):
        yield (hang if 100 <= number < 104 else quick), {}
"""


def drilled(file: Path, wanted: str) -> dict[str, Any]:
    """The verdict of a drill, the first of some that is not in the way of another reason."""
    found: dict[str, Any] = {}
    for seed in range(1, TRIES + 1):
        done = asked("run", file, "--seed", seed, "--runs", file.parent / "runs", timeout_s=400)
        verdict = file.parent / "runs" / "latest" / "verdict.json"
        assert verdict.exists(), done.stdout + done.stderr
        found = json.loads(verdict.read_text())
        assert found["verdict"] != "violated", found["reasons"]
        if {one["id"]: one["verdict"] for one in found["checks"]}[wanted] != "unknown" or wanted == "J13":
            return found
    return found


def test_without_effects_once_a_second_effect_is_a_declared_cost_and_no_violation(tmp_path: Path) -> None:
    shop = shutil.copytree(SHOP, tmp_path / "shop")
    jobs, file = shop / "shop" / "jobs.py", shop / "chaos.toml"
    text = jobs.read_text()
    assert "if effects.once(connection, job):" in text
    jobs.write_text(text.replace("if effects.once(connection, job):", "if True:"))
    # Handlers that are frozen here go on when another worker has run their job.
    jobs.write_text(jobs.read_text().replace("time.sleep(0.05)", "time.sleep(0.4)"))
    file.write_text(file.read_text().replace('["worker-kill", "worker-freeze", "net-reply-lost"]', '["worker-freeze"]'))
    found = drilled(file, "J25")
    (cost,) = [one for one in found["checks"] if one["id"] == "J25"]
    assert (cost["verdict"], cost["violations"]) == ("valid", 0) and cost["declared"] > 0
    assert [one["name"] for one in found["findings"] if one["rows"]] == ["at-least-once"]


def test_jobs_that_wait_for_a_limit_whose_places_hang_are_unknown_and_none_is_violated(tmp_path: Path) -> None:
    (tmp_path / "hang.py").write_text(HANGING)
    file = tmp_path / "chaos.toml"
    file.write_text('queue = "hang:queue"\nload = "hang:load"\nrate = 20\nfaults = ["worker-kill"]\n')
    found = drilled(file, "J13")
    assert {one["id"]: one["verdict"] for one in found["checks"]}["J13"] == "unknown"
    assert found["spec"]["full"]["give-up"] == "the limit of name hang was full"
    assert any("while the limit of name hang was full" in reason for reason in found["reasons"])
    assert "J13" in found["causes"]["full"] and "J13" not in found["causes"].get("open", ())
