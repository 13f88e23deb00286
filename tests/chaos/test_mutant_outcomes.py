"""What counts as caught, what as a false alarm, and the last line and exit code that follow. Hand-written verdicts."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from chaos import catalogue, judge
from chaos.campaigns.mutants import CONTROLS, Result, alarm, chosen, drills, missed
from chaos.campaigns.short import CLEAN_CHANNELS, clean_shapes, every
from chaos.errors import HarnessError
from chaos.judge import Verdict, read_verdict
from chaos.mutants import KEPT, Mutant, lose_histories
from reports.causes import Cause, of_doubt
from reports.checks import CHECKS, h1_faults_bit
from reports.facts import Run

MUTANT = Mutant("sample", "a defect", "J3", "violated", also=frozenset({"J6"}))

ALL_VALID = {"H3": "valid", "J3": "valid", "J6": "valid", "J4": "valid"}
BOTH = {**ALL_VALID, "J3": "violated", "J6": "violated"}
CAUGHT = Verdict("violated", BOTH, ("J3 violated: one", "J6 violated: two"), why={"J3": "one", "J6": "two"})
VALID = Verdict("valid", ALL_VALID)


def with_checks(verdict: Verdict, why: str = "", causes: tuple[str, ...] = (), **checks: str) -> Verdict:
    """The verdict with other results of checks, for this reason, and where they are unknown for these causes."""
    more = {cause: tuple(checks) for cause in causes}
    return replace(verdict, checks={**verdict.checks, **checks}, why={**verdict.why, **dict.fromkeys(checks, why)}, causes=more)


def test_a_mutant_is_caught_by_its_check_with_nothing_outside_of_its_closure() -> None:
    assert missed(MUTANT, CAUGHT) == ""


def test_a_check_that_complains_of_late_work_says_something_about_the_machine_alone() -> None:
    late = with_checks(CAUGHT, "sends were late", ("slow", "recorder"), H3="unknown")
    assert missed(MUTANT, late) == "" and not late.too_slow
    assert missed(MUTANT, with_checks(CAUGHT, "delayed jobs started late", J19="violated")) == ""
    lacking = with_checks(CAUGHT, "a slow machine; a file is missing", ("slow", "holes"), H0="unknown")
    assert missed(MUTANT, lacking).startswith("H0 tripped as well: H0 unknown: a slow machine; a file is missing")


BLAMED = [
    ({"H3": "unknown"}, {"recorder": ["H3"]}, True),
    ({"H3": "unknown", "J15": "unknown", "J4": "valid"}, {"slow": ["H3", "J15"]}, True),
    ({"J19": "unknown"}, {"open": ["J19"]}, True),
    ({"H0": "unknown"}, {"holes": ["H0"]}, False),
    ({"H0": "unknown"}, {"holes": ["H0"], "slow": ["H0"]}, False),
    ({"H3": "unknown", "J4": "unknown"}, {"slow": ["H3"], "holes": ["J4"]}, False),
    # The measures crashed as well.
    ({"H3": "unknown"}, {"crashed": [], "slow": ["H3"]}, False),
    # The drill was given up: whatever else is unknown follows from that.
    ({"H1": "unknown", "J4": "unknown"}, {"slow": ["H1"], "fault": ["H1"], "holes": ["J4"]}, True),
    ({"H1": "unknown"}, {"fault": ["H1"]}, False),
    # A run that nobody could judge; one that was judged before there were causes.
    ({}, {"input": []}, False),
    ({"H3": "unknown"}, {}, False),
]


@pytest.mark.parametrize(("checks", "causes", "too_slow"), BLAMED)
def test_causes_blame_the_machine(checks: dict[str, str], causes: dict[str, list[str]], too_slow: bool, tmp_path: Path) -> None:
    """The words of the reasons decide nothing."""
    entries = [{"id": check, "verdict": found, "why": "it rained"} for check, found in checks.items()]
    written = {"verdict": "unknown", "checks": entries, "reasons": ["it rained"], "causes": causes}
    (tmp_path / "verdict.json").write_text(json.dumps(written))
    assert read_verdict(tmp_path).too_slow is too_slow


def test_what_the_harness_knows_of_causes_and_checks_is_what_the_judge_writes() -> None:
    assert (judge.SLOW, judge.RECORDER, judge.CRASHED) == (Cause.SLOW, Cause.RECORDER, Cause.CRASHED)
    assert {check.id: check.name for check in CHECKS if check.id in (judge.PUNCTUAL, judge.CARRIED_OUT)} == {
        "H1": "every fault took effect and healed",
        "J19": "delayed jobs start on time",
    }
    (doubt,) = h1_faults_bit.doubts(Run({"harness_errors": ["jobs were still worked off"], "too_slow": True}, {}))
    assert of_doubt("H1", doubt) == Cause.SLOW


def result(name: str, mutant: Mutant | None, verdict: Verdict) -> Result:
    return Result(name, "jobs", mutant, 1, "run", verdict, missed(mutant, verdict) if mutant else alarm(verdict))


UNKNOWN = Verdict("unknown", {"J12": "unknown"}, ("J12 unknown: every limit had room all the time",))


def test_each_mutant_names_checks_and_faults_that_exist() -> None:
    known = {check.id for check in CHECKS}
    for name, planted in every().items():
        mutant, shape = planted.mutant, planted.shape
        assert mutant.closure <= known and mutant.check in mutant.closure, name
        assert mutant.verdict in ("violated", "unknown"), name
        if shape.load in (catalogue.JOBS, catalogue.CHANNELS):
            load = catalogue.HTTP if shape.scenario.get("face") == catalogue.HTTP else shape.load
            assert set(shape.faults) <= set(catalogue.fitting(shape.topology, load)), name
    # Those of the reference's list (verification.md), as checks of this project.
    named = {planted.mutant.check for planted in every().values()}
    assert {"J1", "J2", "J3", "J4", "J6", "J7", "J8", "J9", "J11", "J12", "J14", "J15", "P1", "P5", "H0", "H1", "J25"} <= named


def test_clean_drills_have_the_shapes_of_the_mutants_and_seeds_of_their_own() -> None:
    planted = list(every().values())
    wanted = drills(planted, 5, controls=CONTROLS)
    clean = [one for one in wanted if one.mutant is None]
    assert len(clean) == CONTROLS and len({one.seed for one in clean}) == CONTROLS
    assert all(one.seed == 5 for one in wanted if one.mutant) and 5 not in {one.seed for one in clean}
    shapes = clean_shapes(planted)
    assert len(shapes) <= CONTROLS and all(shape in [one.shape for one in clean] for shape in shapes)
    of_jobs = [one.shape for one in planted if one.shape.load != catalogue.CHANNELS]
    assert all(shape in shapes for shape in of_jobs) and CLEAN_CHANNELS in shapes
    assert max(Counter(one.name for one in wanted).values()) == 1


def test_one_mutant_can_be_named_and_another_name_is_refused() -> None:
    assert [one.name for one in chosen("no-reap")] == ["no-reap"]
    with pytest.raises(HarnessError, match="mutant 'no-such' does not exist; choose from bananas-written-back-runs-again, "):
        chosen("no-such")


def test_histories_of_processes_are_lost_and_those_of_the_harness_stay(tmp_path: Path) -> None:
    for name in (*KEPT, "worker-1", "producer-1"):
        (tmp_path / f"{name}.jsonl").write_text("{}\n")
    lose_histories(tmp_path)
    assert {path.stem for path in tmp_path.iterdir() if path.stat().st_size} == set(KEPT)


def test_a_verdict_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert read_verdict(tmp_path).verdict == "unknown"
    (tmp_path / "verdict.json").write_text("[]")
    assert read_verdict(tmp_path).verdict == "unknown"
    (tmp_path / "verdict.json").write_text('{"verdict": "valid", "checks": [{"id": "J1", "verdict": "valid"}], "reasons": []}')
    assert read_verdict(tmp_path) == Verdict("valid", {"J1": "valid"})
