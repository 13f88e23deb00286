"""The comparison of two variants on planted data: what it must find, what it must not claim, and what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reports.command import main
from reports.compare.command import FILE, PAGE_FILE
from reports.compare.decide import NOT_INTERLEAVED, Comparison, decide
from reports.compare.metrics import MAIN
from reports.compare.page import tone
from reports.compare.sides import interleaved, obstacles, read_side
from reports.compare.words import NO_DIFFERENCE, answer, render
from tests.given import Output
from tests.golden import same
from tests.reports.conftest import steady
from tests.reports.repetitions import SPEC, TYPICAL, judged, sides

#: The first value of each planted run, without noise.
LATENCIES = ("end_to_end.p50.calm", "end_to_end.p99.calm", "end_to_end.p99.all")


def outcomes(a: list[Path], b: list[Path], *names: str) -> dict[str, str]:
    """The outcome of each tested metric."""
    return {line.metric.name: line.outcome for line in decide(read_side(a), read_side(b), names).tested}


def edit(run: Path, **fields: Any) -> None:
    """Change fields of the spec that a run's verdict has."""
    decided = json.loads((run / "verdict.json").read_text())
    decided["spec"] |= fields
    (run / "verdict.json").write_text(json.dumps(decided))


def call(a: list[Path], b: list[Path], out: Path, *more: str) -> int:
    """Run the command."""
    return main(["compare", "--a", *map(str, a), "--b", *map(str, b), "--out", str(out), *more])


def test_runs_of_one_variant_say_nothing_in_nineteen_of_twenty_seeds(tmp_path: Path) -> None:
    claims = 0
    for seed in range(20):
        found = outcomes(*sides(tmp_path / str(seed), 6, noise=0.05, seed=seed))
        assert set(found) == set(MAIN)
        claims += not {"faster", "slower"}.isdisjoint(found.values())
    assert claims <= 1


@pytest.mark.slow
def test_ten_percent_among_three_percent_of_noise_are_found(tmp_path: Path) -> None:
    missed = 0
    for seed in range(20):
        found = outcomes(*sides(tmp_path / str(seed), 8, noise=0.03, factor=1.1, only=LATENCIES, seed=seed))
        assert {name for name, outcome in found.items() if outcome in ("faster", "slower")} <= set(LATENCIES), found
        missed += sum(found[name] != "slower" for name in LATENCIES)
    assert missed <= 3


@pytest.mark.slow
def test_two_percent_among_five_percent_of_noise_cannot_be_shown(tmp_path: Path) -> None:
    """The shift is there, so that a lucky seed may find it: none may find its opposite."""
    found: list[Comparison] = []
    for seed in range(20):
        a, b = sides(tmp_path / str(seed), 6, noise=0.05, factor=1.02, seed=seed)
        found.append(decide(read_side(a), read_side(b)))
    assert sum(answer(one) == NO_DIFFERENCE for one in found) >= 18
    outcomes = [line.outcome for one in found for line in one.tested if line.metric.name != "finished_per_s"]
    assert outcomes.count("cannot_show") >= len(outcomes) - 3 and "faster" not in outcomes


def test_more_a_second_is_faster_and_more_milliseconds_are_slower(tmp_path: Path) -> None:
    found = outcomes(*sides(tmp_path, 6, noise=0.01, factor=1.3))
    assert found == {name: "faster" if name == "finished_per_s" else "slower" for name in MAIN}


def test_what_lies_surely_within_the_margin_is_the_same(tmp_path: Path) -> None:
    a, b = sides(tmp_path, 6, noise=0.005)
    found = decide(read_side(a), read_side(b))
    assert set(outcomes(a, b).values()) == {"same"}
    assert answer(found) == "B is as fast as A: no metric differs by more than 5%"
    assert tone(found) == "plain"


def test_a_difference_inside_of_what_halves_of_a_differ_by_is_no_difference(tmp_path: Path) -> None:
    """A test of ranks alone would claim it: all values of B lie above all of A."""
    a, b = sides(tmp_path, 6, noise=0.0)
    for place, run in enumerate([*a, *b]):
        replaced = (run / "verdict.json").read_text()
        value = 1_000 * 1.1 ** (place if place < 6 else 5.1 + place / 100)
        (run / "verdict.json").write_text(replaced.replace(str(TYPICAL["end_to_end.p99.all"]), str(value)))
    line = next(line for line in decide(read_side(a), read_side(b), ["end_to_end.p99.all"]).tested)
    assert line.p is not None and line.p < 0.01
    assert line.ratio is not None and line.floor is not None and 1 < line.ratio < line.floor
    assert line.outcome == "cannot_show"


TOO_FEW = [
    (3, ["end_to_end.p99.all"], "the smallest p that they can give is 0.1; 4 of each are needed"),
    (4, [], "0.029, 0.17 when corrected for 6 metrics; 5 of each are needed, 4 for one metric alone"),
    (5, ["all"], "6 of each are needed"),
]


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize(("count", "names", "needed"), TOO_FEW)
def test_too_few_runs_say_so(count: int, names: list[str], needed: str, factor: float, tmp_path: Path, capsys: Output) -> None:
    a, b = sides(tmp_path / "runs", count, noise=0.001, factor=factor)
    assert call(a, b, tmp_path / "out", *(word for name in names for word in ("--metric", name))) == 2
    text = capsys.readouterr().out
    assert needed in text
    assert re.search(rf"^compare: A={count} B={count} faster=0 slower=0 same=0 cannot_show=\d+$", text.splitlines()[-1])


def test_no_difference_is_claimed_of_runs_that_took_no_turns_without_that_warning(tmp_path: Path) -> None:
    a, b = sides(tmp_path, 6, noise=0.01, factor=1.3)
    for place, run in enumerate([*a, *b]):
        edit(run, started_utc=f"2026-01-01T00:{place:02d}:00Z")
    found = decide(read_side(a), read_side(b))
    assert found.counts["slower"] == 5 and tone(found) == "plain violated"
    faster = decide(read_side(b), read_side(a), ("end_to_end.p50.calm",))
    assert faster.counts == {"faster": 1, "slower": 0, "same": 0, "cannot_show": 0} and tone(faster) == "plain valid"
    assert NOT_INTERLEAVED in answer(found) and NOT_INTERLEAVED in found.warnings
    claims = [line for line in render(found).splitlines() if "slower: " in line or "faster: " in line]
    assert len(claims) == 6 and all(NOT_INTERLEAVED in line for line in claims)
    assert render(found).endswith("interleaved=no")


ORDERS = [
    ("ABAB", True), ("ABBA", True), ("BAABABBA", True), ("ABABA", True), ("AABB", False), ("ABBBAA", False),
    ("AAABB", False), ("ABBAABABABB", True), ("ABBBB", True), ("AABBBBB", False), ("AAAABABABAB", False),
]  # fmt: skip


@pytest.mark.parametrize(("order", "in_turns"), ORDERS)
def test_turns_are_taken_when_no_side_is_ahead(order: str, in_turns: bool, tmp_path: Path) -> None:
    paths: dict[str, list[Path]] = {"A": [], "B": []}
    for place, side in enumerate(order):
        paths[side].append(judged(tmp_path / f"run-{place}", TYPICAL, started_utc=f"2026-01-01T00:{place:02d}:00Z"))
    a, b = read_side(paths["A"]), read_side(paths["B"])
    assert interleaved(a, b) is in_turns
    edit(paths["A"][0], started_utc="")
    assert not interleaved(read_side(paths["A"]), b)


UNLIKE = [
    ({"rate_per_s": 60}, "rate_per_s differs: 120 in .*-a, 60 in .*-b"),
    ({"lease_ms": 2_000}, "lease_ms differs: 9000 in .*-a, 2000 in .*-b"),
    ({"limits": [{"name": "x"}]}, r"limits differs: null in .*-a, \[.*"),
    ({"machine": ["none"]}, "machine cores differs: 2 in .*, null in .*"),
    ({"machine": {**SPEC["machine"], "cores": 4}}, "machine cores differs: 2 in .*, 4 in .*"),
    ({"seed": 2}, "seed differs: seed 1 is 4 of 4 runs of A and 3 of 4 of B"),
    ({"git_commit": "c" * 40}, 'B: git_commit differs: "bbb.* in .*, "ccc.* in .*'),
]


@pytest.mark.parametrize(("fields", "complaint"), UNLIKE)
def test_unlike_runs_are_refused_with_the_field(fields: dict[str, Any], complaint: str, tmp_path: Path, capsys: Output) -> None:
    a, b = sides(tmp_path / "runs", 4, noise=0.01)
    assert obstacles(read_side(a), read_side(b)) == []
    edit(b[2], **fields)
    assert call(a, b, tmp_path / "out", "--metric", "recovery_ms") == 2
    assert re.search(complaint, capsys.readouterr().err) and not (tmp_path / "out").exists()
    assert call(a, b, tmp_path / "out", "--metric", "recovery_ms", "--any") == 0
    assert re.search(f"warnings\n  compared although {complaint}", capsys.readouterr().out)


def test_a_run_that_is_not_valid_is_refused_by_its_name(tmp_path: Path, capsys: Output) -> None:
    a, b = sides(tmp_path / "runs", 4, noise=0.01)
    (b[1] / "verdict.json").write_text((b[1] / "verdict.json").read_text().replace('"verdict": "valid"', '"verdict": "violated"'))
    assert call(a, b, tmp_path / "out") == 2
    assert f"compare: run {b[1].name} is violated, not valid (--any compares nevertheless)" in capsys.readouterr().err
    (b[1] / "verdict.json").unlink()
    assert call(a, b, tmp_path / "out", "--any") == 2
    assert f"compare: run {b[1].name} was not judged" in capsys.readouterr().err
    assert call([tmp_path / "none"], b, tmp_path / "out") == 2
    assert "none does not exist; each drill makes one" in capsys.readouterr().err


BROKEN = [
    *(("{", "cannot be read"), ("[]", "has no usable measures"), ('{"verdict": "valid", "spec": {}, "measures": {}}', "usable")),
    ('{"verdict": "valid", "spec": 7, "measures": {"percentiles": [], "rates": {}, "recovery": []}}', "usable"),
]


@pytest.mark.parametrize(("broken", "complaint"), BROKEN)
def test_a_verdict_without_measures_is_one_line(broken: str, complaint: str, tmp_path: Path, capsys: Output) -> None:
    a, b = sides(tmp_path / "runs", 4, noise=0.01)
    (a[0] / "verdict.json").write_text(broken)
    assert call(a, b, tmp_path / "out") == 2
    assert re.fullmatch(f"compare: verdict.json of {a[0].name} .*{complaint}.*\n", capsys.readouterr().err)


def test_a_run_counts_once(tmp_path: Path, capsys: Output) -> None:
    a, b = sides(tmp_path / "runs", 4, noise=0.01)
    assert call([*a, a[0]], b, tmp_path / "out", "--any") == 2
    assert call(a, [*b, a[0]], tmp_path / "out", "--any") == 2
    assert call(a, b, tmp_path / "out", "--metric", "nonsense") == 2
    complaints = capsys.readouterr().err.splitlines()
    assert complaints[0].endswith("is named twice") and complaints[1].endswith("is on both sides")
    assert complaints[2].startswith("compare: no run has the metric 'nonsense'; choose from all, service.p99.all")


def test_a_metric_that_one_run_lacks_is_not_compared(tmp_path: Path) -> None:
    a, b = sides(tmp_path, 6, noise=0.01, factor=1.3)
    decided = json.loads((b[3] / "verdict.json").read_text())
    decided["measures"]["recovery"][0]["recovery_ms"] = None
    next(line for line in decided["measures"]["percentiles"] if line["series"] == "end_to_end")["p99_ms"] = None
    (b[3] / "verdict.json").write_text(json.dumps(decided))
    (a[0] / "samples/processes.jsonl").unlink()
    found = {line.metric.name: line for line in decide(read_side(a), read_side(b)).tested}
    assert found["recovery_ms"].lacks == f"not measured in {b[3].name}"
    assert found["cpu_ms_per_job"].lacks == f"not measured in {a[0].name}"
    lacking = [name for name, line in found.items() if line.outcome == "cannot_show"]
    assert lacking == ["end_to_end.p99.calm", "recovery_ms", "cpu_ms_per_job"]


def test_values_are_those_of_the_run(tmp_path: Path) -> None:
    [run] = read_side([judged(tmp_path / "run", TYPICAL)])
    found = {metric.name: value for metric, value in run.values.items()}
    assert {name: found[name] for name in TYPICAL} == pytest.approx(TYPICAL) and "offered_per_s" not in found


def test_folders_of_runs_the_page_and_the_json_file(tmp_path: Path, capsys: Output) -> None:
    a, b = sides(tmp_path / "runs", 6, noise=0.01, factor=0.8)
    for side, runs in (("a", a), ("b", b)):
        (tmp_path / side).mkdir()
        for run in runs:
            run.rename(tmp_path / side / run.name)
        (tmp_path / side / "latest").symlink_to(runs[0].name)
    (tmp_path / "a" / a[0].name / "report.html").write_text("")
    assert call([tmp_path / "a"], [tmp_path / "b"], tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "compare: A=6 B=6 faster=5 slower=1 same=0 cannot_show=0"
    found = json.loads((tmp_path / "out" / FILE).read_text())
    p99 = next(metric for metric in found["metrics"] if metric["name"] == "end_to_end.p99.all")
    assert p99["low"] < p99["ratio"] < p99["high"] and p99["ratio"] == pytest.approx(0.8, abs=0.02)
    assert len(p99["a"]["values"]) == len(p99["b"]["values"]) == 6
    page = (tmp_path / "out" / PAGE_FILE).read_text()
    assert f'href="../a/{a[0].name}/report.html"' in page and f'href="../b/{b[0].name}' not in page
    same("reports/compared.html", steady(f"{printed}\n{page}", tmp_path))
