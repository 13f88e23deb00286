"""Service level objectives: what the file may say, what a run is measured by, and the exit code."""

from pathlib import Path
from typing import Any

import pytest

from chaos import catalogue, plan
from chaos.channels.faults import FAULTS as CHANNEL_FAULTS
from chaos.faults import FAULTS
from chaos.scaling import ScaleDrill
from reports import command, slo_file
from reports.errors import JudgeError
from reports.slo import judged, measured, summary, wanted
from reports.slo_file import Objective, objectives_of, read
from reports.verdict import NO_MEASURES, undecided
from tests.golden import Told, outcome, same, tells

ROOT = Path(__file__).parents[2]

KILL = {"fault": "1-worker-kill", "name": "worker-kill", "target": "worker-2"}
GROUNDS = [{"id": "H0", "verdict": "valid", "why": ""}, {"id": "H3", "verdict": "valid", "why": ""}]
LINE = {"phase": "all", "series": "end_to_end", "n": 2_000, "p50_ms": 30.0, "p90_ms": None, "p99_ms": 800.0, "p99_9_ms": None}
MEASURES: dict[str, Any] = {
    **NO_MEASURES,
    **{"enqueued": 2_000, "finished": 1_990, "lost": 1, "doubled": 0, "dead": 9, "dropped": 10},
    "percentiles": [{**LINE, "max_ms": None}, {**LINE, "phase": "kill", "n": 999, "p99_ms": None, "max_ms": 9_000.0}],
    "recovery": [{"fault": "1-worker-kill", "jobs": 5, "recovery_ms": 9_000.0}],
    "rates": {"offered_per_s": 120.0, "finished_per_s": 119.5},
}


def run(**changes: Any) -> dict[str, Any]:
    """A verdict of a valid job run, with other measures; `checks`, `spec` and `verdict` are replaced."""
    head = {name: changes.pop(name) for name in ("checks", "spec", "verdict") if name in changes}
    return {"verdict": "valid", "checks": GROUNDS, "spec": {"plan": [KILL]}, "measures": {**MEASURES, **changes}, **head}


def one(place: str, bound: float, decided: dict[str, Any]) -> dict[str, Any]:
    """The line of one objective."""
    (line,) = judged([Objective(tuple(place.split(".")), bound)], decided)
    assert (line["objective"], line["bound"]) == (place, bound)
    return line


def write(folder: Path, text: str) -> Path:
    file = folder / "my.toml"
    file.write_text(text)
    return file


WHOLE = Path(__file__).with_name("whole_slo.toml").read_text()


def test_a_file_names_objectives_with_their_bounds(tmp_path: Path) -> None:
    found = {line.name: (line.bound, line.unit, line.at_least) for line in read(write(tmp_path, WHOLE), channels=False)}
    assert found == {
        **{"latency.all.end_to_end.p50_ms": (40, "ms", False), "latency.all.end_to_end.p99_ms": (1_000.5, "ms", False)},
        "latency.recover-kill.queue_delay.max_ms": (12_000, "ms", False),
        **{"recovery.slowest_ms": (11_000, "ms", False), "errors.lost": (0, "share", False)},
        **{"errors.unfinished": (0.001, "share", False), "rates.finished_per_s": (100, "per_s", True)},
    }


#: Files; the line that says what is wrong with each stands in a text.
WRONG = [
    *("", "[", "latncy = 1", "[recovery]\nslowest = 1", "errors = 3", "[errors]", "[errors]\nlost = { most = 0 }"),
    *(f"[recovery]\nslowest_ms = {value}" for value in ("0", "true", "inf", "2026-01-01")),
    *("[errors]\nlost = 1.5", "[errors]\nlost = '0'", "[latency.all]\nend_to_end = 3", "[latency.all.end_to_ned]\np99_ms=3"),
    *("[latency.all.service]\np98_ms = 3", "[latency.settl]\np99_ms = 3", "[latency.all.service]\np99_ms = -3"),
    *(
        f"[latency.{phase}.service]\np99_ms = 3"
        for phase in ("settl", "recover-kil", "kill-in-", "settle-2", "recover-settle", "'a b'")
    ),
]


def test_what_is_wrong_with_a_file_is_one_line_with_field_value_and_bound(tmp_path: Path) -> None:
    told = [f"{text!r}: {outcome(read, write(tmp_path, text), channels=False)}\n" for text in WRONG]
    assert all(": JudgeError: my.toml" in line and line.count("\n") == 1 for line in told)
    same("reports/wrong_objectives.txt", "".join(told))


def test_every_phase_that_the_harness_can_begin_is_known() -> None:
    faults = {
        plan.PlannedFault(f"1-{name}", name, "worker-1", 0, during=during).phase
        for name in {*FAULTS, *CHANNEL_FAULTS, *catalogue.KINDS}
        for during in ("", "2-worker-freeze", "3-net-down")
    }
    second = plan.draw(1, workers=["worker-1", "worker-2"], direct=["worker-1"]).phases()
    assert {"kill", "kill-2", "recover-kill-2"} <= {*second} and all(map(slo_file.known, second))
    of_plan = plan.Plan(1, plan.Pace(), ()).phases()
    assert not [name for name in {*faults, *of_plan, *ScaleDrill.PHASES, "all"} if not slo_file.known(name)]
    assert not [name for name in faults if not slo_file.known(f"recover-{name}")]
    # And no more than those.
    assert {name for name in faults if "-in-" not in name} == set(slo_file.FAULTS)
    assert {*of_plan, *ScaleDrill.PHASES, "all"} == set(slo_file.QUIET)


def test_an_objective_of_a_kill_is_of_the_worst_of_all_kills_and_one_with_a_number_of_that_kill() -> None:
    lines = [{**LINE, "phase": phase, "max_ms": ms} for phase, ms in (("kill", 50.0), ("kill-2", 90.0), ("recover-kill", 99.0))]
    found = [one(f"latency.{phase}.end_to_end.max_ms", 60, run(percentiles=lines)) for phase in ("kill", "kill-2")]
    assert [(line["value"], line["result"]) for line in found] == [(90.0, "missed")] * 2
    assert one("latency.kill.end_to_end.max_ms", 60, run(percentiles=lines[:1]))["value"] == 50.0
    lines[1]["max_ms"] = None
    endless = one("latency.kill.end_to_end.max_ms", 60, run(percentiles=lines))
    assert endless["result"] == "missed" and "in kill-2 never got there" in endless["note"]
    few = one("latency.kill.end_to_end.p99_ms", 60, run(percentiles=[lines[0], {**lines[1], "n": 9}]))
    assert few["result"] == "unknown" and few["note"].startswith("it rests on 9 samples")


def test_every_fault_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=r"^my\.toml: errors\.lost is 2, .*; errors\.none is not known, .*; rates\.x is not"):
        read(write(tmp_path, "[errors]\nlost = 2\nnone = 0\ndead = 0\n[rates]\nx = 1"), channels=False)


def test_series_of_channel_runs_have_any_name(tmp_path: Path) -> None:
    (line,) = read(write(tmp_path, "[latency.all.'fan-out 10']\np99_ms = 50"), channels=True)
    assert (line.path[2], line.name) == ("fan-out 10", 'latency.all."fan-out 10".p99_ms')


def test_a_run_brings_its_objectives_and_another_file_replaces_them(tmp_path: Path) -> None:
    assert objectives_of(tmp_path, None, channels=False) == []
    (tmp_path / "slo.toml").write_text("[errors]\nlost = 0")
    assert [line.name for line in objectives_of(tmp_path, None, channels=False)] == ["errors.lost"]
    other = write(tmp_path, "[errors]\ndead = 0.5")
    assert [line.name for line in objectives_of(tmp_path, other, channels=False)] == ["errors.dead"]
    with pytest.raises(JudgeError, match=r"^none\.toml: No such file or directory$"):
        objectives_of(tmp_path, tmp_path / "none.toml", channels=False)


#: Objectives and their bounds; what comes of each stands in a text, as that of the next ones does.
OF_OBJECTIVES: dict[str, list[float]] = {
    **{"latency.all.end_to_end.p99_ms": [800, 799.9], "latency.all.end_to_end.p90_ms": [10**9]},
    **{f"latency.all.end_to_end.{last}": [10**9] for last in ("max_ms", "p99_9_ms")},
    **{"latency.kill.end_to_end.p99_ms": [10**9], "latency.kill.end_to_end.max_ms": [8_000]},
    **{"latency.freeze.end_to_end.p50_ms": [1], "latency.all.service.p50_ms": [1], "recovery.slowest_ms": [9_000, 8_999]},
    **{"errors.lost": [0, 0.0005], "errors.doubled": [0], "errors.dead": [0.01], "errors.unfinished": [0.001]},
    **{"errors.not_sent": [0.01], "rates.finished_per_s": [119.5, 119.6], "rates.delivered_per_s": [1]},
}
ENDLESS = {"fault": "1-worker-kill", "jobs": 5, "recovery_ms": None}
OF_KILLS: list[dict[str, Any]] = [
    *({"recovery": [ENDLESS]}, {"recovery": [{**ENDLESS, "jobs": 0}]}, {"recovery": ()}, {"recovery": (), "spec": {"plan": []}}),
    {"recovery": (), "spec": {"plan": [{**KILL, "name": "subscriber-kill"}], "model": "dsps"}},
]
DIRECT = {"fault": "1-worker-kill", "jobs": 5, "recovery_ms": 1_900.0, "connected": "direct"}
PROXIED = {"fault": "2-worker-kill", "jobs": 3, "recovery_ms": 9_000.0, "connected": "proxied"}
OF_CONNECTIONS: list[tuple[str, list[dict[str, Any]]]] = [
    *[(f"{way}slowest_ms", [DIRECT, PROXIED]) for way in ("direct_", "proxied_", "")],
    *[("direct_slowest_ms", [{**DIRECT, **more}, PROXIED]) for more in ({"recovery_ms": None}, {"jobs": 0}, {"connected": ""})],
    *(("direct_slowest_ms", [PROXIED, PROXIED]), ("direct_slowest_ms", [PROXIED])),
]


def results() -> Told:
    """An objective is met, missed or unknown; recovery is that of all kills, and has bounds of each way of connection."""
    asked = [(place, bound, {}) for place, bounds in OF_OBJECTIVES.items() for bound in bounds]
    asked += [("recovery.slowest_ms", 11_000, changes) for changes in OF_KILLS]
    ways = [(f"recovery.{name}", 5_000, {"recovery": lines, "spec": {"plan": [KILL, KILL]}}) for name, lines in OF_CONNECTIONS]
    for place, bound, changes in [*asked, *ways]:
        line = one(place, bound, run(**changes))
        yield f"{place} {bound} {changes or ''}", (line["value"], line["result"], line["note"])


def test_an_objective_is_met_missed_or_unknown() -> None:
    tells("reports/objectives.txt", results)


@pytest.mark.parametrize(("name", "value"), [("lost", 0.01), ("not_sent", 0.0), ("doubled", None), ("unfinished", None)])
def test_errors_of_a_channel_run_are_those_of_messages(name: str, value: float | None) -> None:
    decided = run(spec={"model": "dsps", "plan": []}, lost=10, deliveries=990, offered=500, dropped=0)
    assert one(f"errors.{name}", 1, decided)["value"] == value


@pytest.mark.parametrize("check", ["H0", "H3"])
def test_a_history_that_cannot_be_trusted_leaves_every_objective_unknown(check: str) -> None:
    doubted = [{"id": check, "verdict": "unknown", "why": "rows are missing"}, *GROUNDS]
    line = one("errors.doubled", 0, run(checks=doubted))
    assert (line["result"], line["value"], line["note"]) == ("unknown", None, f"{check} is unknown: rows are missing")


def test_measures_that_crashed_and_runs_that_cannot_be_judged_leave_them_unknown() -> None:
    assert one("errors.lost", 0, {**run(), "measures": NO_MEASURES})["result"] == "unknown"
    line = one("errors.lost", 0, undecided("the history of x is empty", {}))
    assert (line["result"], line["note"]) == ("unknown", "the history of x is empty")


def test_bounds_and_values_are_written_with_their_units() -> None:
    decided = run()
    bounds = {"errors.lost": 0.001, "rates.finished_per_s": 100, "recovery.slowest_ms": 1, "latency.all.end_to_end.max_ms": 5_000}
    lines = [one(place, bound, decided) for place, bound in bounds.items()]
    assert [wanted(line) for line in lines] == ["at most 0.1 %", "at least 100/s", "at most 1 ms", "at most 5,000 ms"]
    assert [measured(line) for line in lines] == ["0.05 %", "119.5/s", "9,000 ms", "endless"]
    assert (summary(lines), summary([])) == ("slo: missed 2, met 2 of 4", "")


def test_the_objectives_of_make_bench_are_of_recovery_and_errors_only() -> None:
    assert {line.section for line in read(ROOT / "bench" / "slo.toml", channels=False)} == {"recovery", "errors"}


def test_the_file_that_the_guide_explains_is_one(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "objectives.md").read_text()
    found = read(write(tmp_path, guide.split("```toml\n")[1].split("```")[0]), channels=False)
    assert {line.section for line in found} == {"latency", "recovery", "errors", "rates"}


def test_a_file_can_be_validated_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["slo", str(write(tmp_path, WHOLE))]) == 0
    assert "latency.all.end_to_end.p99_ms: at most 1,000.5 ms" in capsys.readouterr().out.splitlines()
    assert command.main(["slo", str(write(tmp_path, "[errors]\nlost = 2"))]) == 2
    assert capsys.readouterr().err == "slo: my.toml: errors.lost is 2, it must be a share from 0 to 1\n"
