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
from reports.verdict import NO_MEASURES, exit_code, undecided

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


WHOLE = """
[latency.all.end_to_end]
p50_ms = 40
p99_ms = 1_000.5
[latency.recover-kill]
queue_delay.max_ms = 12_000
[recovery]
slowest_ms = 11_000
[errors]
lost = 0
unfinished = 0.001
[rates]
finished_per_s = 100
"""


def test_a_file_names_objectives_with_their_bounds(tmp_path: Path) -> None:
    found = {line.name: (line.bound, line.unit, line.at_least) for line in read(write(tmp_path, WHOLE), channels=False)}
    assert found == {
        **{"latency.all.end_to_end.p50_ms": (40, "ms", False), "latency.all.end_to_end.p99_ms": (1_000.5, "ms", False)},
        "latency.recover-kill.queue_delay.max_ms": (12_000, "ms", False),
        **{"recovery.slowest_ms": (11_000, "ms", False), "errors.lost": (0, "share", False)},
        **{"errors.unfinished": (0.001, "share", False), "rates.finished_per_s": (100, "per_s", True)},
    }


GUESS = "is not known, perhaps"
WRONG = [
    ("latncy = 1", "latncy is not known, perhaps latency; it must be latency, recovery, errors or rates"),
    ("[recovery]\nslowest = 1", "recovery.slowest is not known, perhaps slowest_ms; the last part must be slowest_ms, "),
    ("[recovery]\nslowest_ms = 0", "recovery.slowest_ms is 0, it must be a number above 0"),
    ("[recovery]\nslowest_ms = true", "recovery.slowest_ms is true, it must be a number above 0"),
    ("[recovery]\nslowest_ms = inf", "recovery.slowest_ms is Infinity, it must be a number above 0"),
    ("[recovery]\nslowest_ms = 2026-01-01", 'recovery.slowest_ms is "2026-01-01", it must be a number above 0'),
    ("[errors]\nlost = 1.5", "errors.lost is 1.5, it must be a share from 0 to 1"),
    ("[errors]\nlost = '0'", 'errors.lost is "0", it must be a share from 0 to 1'),
    ("[errors]\nlost = { most = 0 }", "errors.lost.most is 0, an objective of this section must be at errors.NAME"),
    ("errors = 3", "errors is 3, an objective of this section must be at errors.NAME"),
    ("[errors]", "errors is {}, an objective of this section must be at errors.NAME"),
    ("[latency.all]\nend_to_end = 3", "latency.all.end_to_end is 3, an objective of this section must be at latency.PHASE.SERI"),
    ("[latency.all.end_to_ned]\np99_ms=3", f"latency.all.end_to_ned {GUESS} end_to_end; the series must be service, intended, "),
    ("[latency.all.service]\np98_ms = 3", f"latency.all.service.p98_ms {GUESS} p99_ms; the last part must be p50_ms, p90_ms, "),
    ("[latency.settl.service]\np99_ms = 3", "latency.settl is not known, perhaps settle; the phase must be all, lead-in, "),
    ("[latency.settl]\np99_ms = 3", "latency.settl is not known, perhaps settle; the phase must be all, lead-in, "),
    ("[latency.recover-kil.service]\np99_ms = 3", "latency.recover-kil is not known, perhaps recover-kill; "),
    ("[latency.kill-in-.service]\np99_ms = 3", "latency.kill-in- is not known, "),
    ("[latency.settle-2.service]\np99_ms = 3", "latency.settle-2 is not known, perhaps settle; "),
    ("[latency.recover-settle.service]\np99_ms = 3", "latency.recover-settle is not known, "),
    ("[latency.'a b'.service]\np99_ms = 3", 'latency."a b" is not known, the phase must be all, lead-in, '),
    ("[latency.all.service]\np99_ms = -3", "latency.all.service.p99_ms is -3, it must be a number above 0"),
    ("", "no objective is set, one must be, in latency, recovery, errors or rates"),
    ("[", "is not TOML: "),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_wrong_with_a_file_is_one_line_with_field_value_and_bound(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(JudgeError) as refused:
        read(write(tmp_path, text), channels=False)
    assert words in str(refused.value) and str(refused.value).startswith("my.toml")
    assert "\n" not in str(refused.value)


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


OF_OBJECTIVES = [
    ("latency.all.end_to_end.p99_ms", 800, 800.0, "met", "of 2,000"),
    ("latency.all.end_to_end.p99_ms", 799.9, 800.0, "missed", "of 2,000"),
    ("latency.all.end_to_end.p90_ms", 10**9, None, "missed", "endless: too many of 2,000 never got there"),
    ("latency.all.end_to_end.max_ms", 10**9, None, "missed", "endless"),
    ("latency.all.end_to_end.p99_9_ms", 10**9, None, "unknown", "it rests on 2,000 samples, and needs 10,000"),
    ("latency.kill.end_to_end.p99_ms", 10**9, None, "unknown", "it rests on 999 samples, and needs 1,000"),
    ("latency.kill.end_to_end.max_ms", 8_000, 9_000.0, "missed", "of 999"),
    ("latency.freeze.end_to_end.p50_ms", 1, None, "unknown", "no job was due in a phase freeze"),
    ("latency.all.service.p50_ms", 1, None, "unknown", "not measured: the series are end_to_end"),
    ("recovery.slowest_ms", 9_000, 9_000.0, "met", "1-worker-kill, 5 jobs in hand"),
    ("recovery.slowest_ms", 8_999, 9_000.0, "missed", "1-worker-kill"),
    ("errors.lost", 0, 0.0005, "missed", "1 of 2,000"),
    ("errors.lost", 0.0005, 0.0005, "met", "1 of 2,000"),
    ("errors.doubled", 0, 0.0, "met", "0 of 2,000"),
    ("errors.dead", 0.01, 0.0045, "met", "9 of 2,000"),
    ("errors.unfinished", 0.001, 0.005, "missed", "10 of 2,000"),
    ("errors.not_sent", 0.01, 0.004975124, "met", "10 of 2,010"),
    ("rates.finished_per_s", 119.5, 119.5, "met", ""),
    ("rates.finished_per_s", 119.6, 119.5, "missed", ""),
    ("rates.delivered_per_s", 1, None, "unknown", "this run has no measure of it"),
]


@pytest.mark.parametrize(("place", "bound", "value", "result", "note"), OF_OBJECTIVES)
def test_an_objective_is_met_missed_or_unknown(place: str, bound: float, value: float | None, result: str, note: str) -> None:
    line = one(place, bound, run())
    assert (line["value"], line["result"]) == (value, result)
    assert line["note"].startswith(note) and (note or not line["note"])


ENDLESS = {"fault": "1-worker-kill", "jobs": 5, "recovery_ms": None}
OF_KILLS = [
    ({"recovery": [ENDLESS]}, "missed", "endless: not every job ran again"),
    ({"recovery": [{**ENDLESS, "jobs": 0}]}, "unknown", "1 kills were planned, 1 seen, and 0"),
    ({"recovery": ()}, "unknown", "1 kills were planned, 0 seen, and 0 hit"),
    ({"recovery": (), "spec": {"plan": []}}, "met", "no kill was planned"),
    ({"recovery": (), "spec": {"plan": [{**KILL, "name": "subscriber-kill"}], "model": "dsps"}}, "unknown", "runs of channels"),
]


@pytest.mark.parametrize(("changes", "result", "note"), OF_KILLS)
def test_the_recovery_of_a_run_is_that_of_all_its_kills(changes: dict[str, Any], result: str, note: str) -> None:
    line = one("recovery.slowest_ms", 11_000, run(**changes))
    assert (line["result"], line["value"]) == (result, None) and line["note"].startswith(note)


DIRECT_KILL = {"fault": "1-worker-kill", "jobs": 5, "recovery_ms": 1_900.0, "connected": "direct"}
PROXIED_KILL = {"fault": "2-worker-kill", "jobs": 3, "recovery_ms": 9_000.0, "connected": "proxied"}


OF_CONNECTIONS = [
    ("direct_slowest_ms", (DIRECT_KILL, PROXIED_KILL), 1_900.0, "met", "1-worker-kill, 5 jobs in hand"),
    ("proxied_slowest_ms", (DIRECT_KILL, PROXIED_KILL), 9_000.0, "missed", "2-worker-kill, 3 jobs in hand"),
    ("slowest_ms", (DIRECT_KILL, PROXIED_KILL), 9_000.0, "missed", "2-worker-kill, 3 jobs in hand"),
    ("direct_slowest_ms", ({**DIRECT_KILL, "recovery_ms": None}, PROXIED_KILL), None, "missed", "endless"),
    ("direct_slowest_ms", ({**DIRECT_KILL, "jobs": 0}, PROXIED_KILL), None, "unknown", "2 kills were planned, 2 seen, and 0"),
    ("direct_slowest_ms", (PROXIED_KILL, PROXIED_KILL), None, "met", "no killed worker was connected directly"),
    ("direct_slowest_ms", (PROXIED_KILL,), None, "unknown", "2 kills were planned, 1 seen, and 0"),
    ("direct_slowest_ms", ({**DIRECT_KILL, "connected": ""}, PROXIED_KILL), None, "unknown", "2 kills were planned"),
]


@pytest.mark.parametrize(("name", "lines", "value", "result", "note"), OF_CONNECTIONS)
def test_recovery_has_bounds_of_each_way(name: str, lines: tuple[dict, ...], value: float | None, result: str, note: str) -> None:
    line = one(f"recovery.{name}", 5_000, run(recovery=lines, spec={"plan": [KILL, KILL]}))
    assert (line["value"], line["result"]) == (value, result) and line["note"].startswith(note)


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


EXIT_CODES = [
    ("valid", [], 0), ("valid", ["met", "met"], 0), ("valid", ["met", "unknown"], 2),
    ("valid", ["missed", "unknown", "met"], 3), ("violated", ["missed"], 1), ("unknown", ["missed"], 2),
    ("unknown", ["met"], 2),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "results", "code"), EXIT_CODES)
def test_a_valid_run_that_missed_an_objective_has_an_exit_code_of_its_own(verdict: str, results: list[str], code: int) -> None:
    assert exit_code({"verdict": verdict, "slo": [{"result": result} for result in results]}) == code


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
