"""Declared findings: told apart from violations, and never more than they describe."""

from pathlib import Path

import pytest

from reports.folder import spec_faults
from reports.page import facts, words
from tests.reports.conftest import Checked, Judge
from tests.reports.good_run import healthy
from tests.reports.story import SPEC, Story

TWICE = {"name": "no-token", "checks": ["J6:doubled", "J3"], "procs": ["node-"], "text": "Completion carries no token."}

LOST = {"name": "lost", "checks": ["J4:lost"], "text": "A job can vanish."}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A valid run with a worker of the foreign kind."""
    made = healthy(tmp_path / "run")
    made.process("node-1", "worker")
    made.life("node-1", "fine", 37.2)
    for number in range(12):
        made.life("node-1", f"more-{number}", 37.25 + number / 2)
    return made


def finished_twice(story: Story, job: str, second: str) -> None:
    """A job that one worker finishes after its lease, while another has it, which finishes it again."""
    story.enqueue(job, 38.0)
    tokens = [story.claim("worker-1", job, 38.1), story.claim(second, job, 47.2)]
    for token, at in zip(tokens, (47.5, 47.52), strict=True):
        story.finish(token, at, start=at - 0.1, took=0.05, effect=at - 0.01)


@pytest.mark.slow
def test_what_a_finding_describes_is_no_violation_and_is_counted(story: Story, judged: Judge) -> None:
    story.spec |= {"findings": [TWICE, LOST], "workers": 4}
    finished_twice(story, "both", "node-1")
    story.enqueue("gone", 20.5)
    decided = judged(story.write())
    assert (decided["verdict"], decided["reasons"]) == ("valid", [])
    finding, lost = decided["findings"]
    assert (lost["rows"], lost["examples"]) == (1, ["J4 gone was enqueued, has not finished, and is in no state at the end"])
    checks = {one["id"]: one for one in decided["checks"]}
    assert finding["rows"] == checks["J6"]["declared"] + checks["J3"]["declared"] >= 2
    assert any(example.startswith("J6 both was finished 2 times") for example in finding["examples"])
    assert checks["J6"]["violations"] == 0
    # As measured: a declared loss is a loss all the same.
    assert (decided["measures"]["lost"], decided["measures"]["doubled"]) == (1, 1)
    # Each belongs to the fault before it: lost after the kill at 10 s, doubled after the freeze at 25 s.
    assert [(line["lost"], line["doubled"]) for line in decided["measures"]["by_fault"]] == [(1, 0), (0, 1)]
    assert "apart from what the model declares" in words.headline(decided)
    assert "J6 both was finished 2 times" in facts.declared(decided["findings"])


UNDESCRIBED = [
    # Its job was never in the hands of a foreign worker.
    (TWICE, "worker-3"),
    # Another kind of violation of the same check.
    ({**TWICE, "checks": ["J6:run again", "J3"]}, "node-1"),
    # Another process.
    ({**TWICE, "procs": ["ruby-"]}, "node-1"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("finding", "second"), UNDESCRIBED)
def test_what_no_finding_describes_is_a_violation(finding: dict, second: str, story: Story, checked: Checked) -> None:
    story.spec |= {"findings": [finding], "workers": 4}
    finished_twice(story, "both", second)
    verdict, why = checked(story.write(), "J6")["J6"]
    assert verdict == "violated" and why.startswith("both was finished 2 times")


@pytest.mark.slow
def test_a_finding_hides_no_unknown(story: Story, checked: Checked) -> None:
    """A lost file leaves a loss in doubt, whatever is declared of losses."""
    story.spec |= {"findings": [{**TWICE, "checks": ["J4"], "procs": []}], "workers": 4}
    story.enqueue("gone", 41.0)
    run = story.write()
    assert checked(run, "J4") == {"J4": ("valid", "")}
    (run / "history" / "worker-3.jsonl").unlink()
    verdict, why = checked(run, "J4")["J4"]
    assert verdict == "unknown" and "missing rows may explain it" in why


def test_a_finding_that_no_check_can_show_covers_nothing() -> None:
    assert spec_faults({**SPEC, "findings": [TWICE, {**TWICE, "checks": []}]}) == []
