"""The nightly: what a date means, what follows from the verdicts, and how a night is written and shown."""

import argparse
import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from bench.models import DSPS, NAMES
from chaos import campaign, catalogue, cli
from chaos.campaigns import cells as schedule
from chaos.campaigns import nightly as command
from chaos.campaigns.cells import CONTROL_EVERY, FAULTS_A_NIGHT, Cell, cells, faults_of, night
from chaos.campaigns.nightly import CellResult, complaint
from chaos.errors import HarnessError, TooSlow
from chaos.interrupts import Interrupts
from chaos.judge import Verdict
from chaos.topologies import CLUSTER, DURABILITIES, TOPOLOGIES
from reports.errors import JudgeError
from reports.nights import last_nights
from tests.given import Output, Patch

DAY = date(2026, 11, 27)


def test_there_is_a_cell_for_each_model_on_each_topology_that_fits_it() -> None:
    found = {(cell.model, cell.topology) for cell in cells()}
    everywhere = {(model, topology) for model in (*NAMES, DSPS) for topology in TOPOLOGIES}
    # Keys of the old formats fall into many slots.
    assert everywhere - found == {(model, CLUSTER) for model in ("bridge", "bananas", "bull", "mosquito")}
    assert len({cell.name for cell in cells()}) == len(cells())
    assert all(cell.durability in DURABILITIES[cell.topology] for cell in cells())
    assert 40 <= len(cells()) <= 60


def test_a_date_repeats_its_night_and_each_night_has_seeds_of_its_own() -> None:
    assert night(DAY) == night(DAY) and {drill.cell for drill in night(DAY)} == set(cells())
    seeds = [drill.seed for number in range(40) for drill in night(DAY + timedelta(number))]
    assert len(set(seeds)) == len(seeds) and max(seeds) < 2**53


def test_nights_begin_with_other_cells() -> None:
    assert {night(DAY + timedelta(number))[0].cell for number in range(len(cells()))} == set(cells())


def test_every_fault_of_a_cell_has_its_turn_and_one_night_in_four_has_none() -> None:
    for place, cell in enumerate(cells()):
        nights = [faults_of(cell.kinds, place, DAY.toordinal() + number) for number in range(2 * CONTROL_EVERY * len(cell.kinds))]
        assert {kind for faults in nights for kind in faults} == set(cell.kinds), cell.name
        assert sum(not faults for faults in nights) == len(nights) // CONTROL_EVERY, cell.name
        assert all(len(faults) in (0, min(FAULTS_A_NIGHT, len(cell.kinds))) for faults in nights), cell.name


@pytest.mark.parametrize("kinds", [("a",), ("a", "b"), ("a", "b", "c"), tuple("abcdefgh"), tuple("abcdefghijklmnop")])
def test_a_catalogue_that_grows_is_seen_in_full_within_twice_its_length(kinds: tuple[str, ...]) -> None:
    for number in range(50):
        assert {kind for later in range(2 * len(kinds)) for kind in faults_of(kinds, 3, number + later)} == set(kinds)


def test_without_a_fault_that_fits_there_is_none() -> None:
    assert faults_of((), 1, 1) == ()


@pytest.mark.slow
def test_every_drill_of_a_night_can_be_made() -> None:
    for drill in (drill for number in range(4) for drill in night(DAY + timedelta(number))):
        made, cell = command.drawn(drill), drill.cell
        assert sorted(planned.name for planned in made.plan.faults) == sorted(drill.faults)
        assert (made.spec.seed, made.spec.model, made.spec.topology) == (drill.seed, cell.model, cell.topology)


def result(verdict: str, reason: str = "", number: int = 0) -> CellResult:
    return CellResult(night(DAY)[number], "run", Verdict(verdict, {}, (reason,) if reason else ()))


def test_what_is_not_valid_is_said_with_the_line_that_repeats_it() -> None:
    name = night(DAY)[0].cell.name
    again = f"repeat it: python -m chaos campaign nightly --date 2026-11-27 --only {name}"
    assert complaint(DAY, result("valid")) == ""
    assert complaint(DAY, result("violated", "J4 violated: lost")) == f"error: {name} is violated: J4 violated: lost; {again}"
    assert complaint(DAY, result("unknown")) == f"warning: {name} is unknown: no reason was given; {again}"


def test_a_cell_can_be_named_and_another_name_is_refused() -> None:
    assert [drill.cell.name for drill in command.chosen(night(DAY), "bull-aof-always")] == ["bull-aof-always"]
    with pytest.raises(HarnessError, match="cell 'bull-cluster-server' does not exist; choose from bananas-aof-always, "):
        command.chosen(night(DAY), "bull-cluster-server")


def test_a_drill_begins_only_while_there_is_time_for_it() -> None:
    assert command.enough(0, 0, 6, 60), "the first ones are not asked"
    assert command.enough(600, 6, 6, 1_200) and not command.enough(601, 6, 6, 1_200)


def test_a_date_is_one() -> None:
    assert cli.parse(["campaign", "nightly", "--date", "2026-11-27"]).date == DAY


def test_a_night_without_time_leaves_its_cells_unknown_and_says_so(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    def drilled(drills: list[schedule.NightDrill], place: Path, *_: object) -> list[CellResult]:
        assert place == tmp_path / "nightly" / "2026-11-27"
        return [CellResult(drill, "", Verdict("valid")) for drill in drills]

    monkeypatch.setattr(command, "measure", lambda *_: "a calibration")
    monkeypatch.setattr(command, "drilled", drilled)
    monkeypatch.setattr(command, "enough", lambda spent_s, done, wanted, budget_s: done < 2 * command.TOGETHER)
    with Interrupts() as interrupts:
        code = command.nightly(argparse.Namespace(runs=tmp_path, date=DAY, only="", minutes=1), interrupts)
    told = capsys.readouterr().out.splitlines()
    valid, all_cells = 2 * command.TOGETHER, len(cells())
    assert (code, told[-1]) == (0, f"nightly: cells {all_cells}, valid {valid}, unknown {all_cells - valid}, violated 0")
    assert sum(line.startswith("warning: ") and command.NO_TIME in line for line in told) == all_cells - valid
    written = json.loads((tmp_path / "nightly" / "2026-11-27" / command.FILE).read_text())
    assert written["line"] == told[-1] and len(written["cells"]) == all_cells
    assert (tmp_path / "nightly" / "index.html").exists()


def test_a_machine_that_is_too_slow_leaves_every_cell_unknown(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    def measure(*_: object) -> None:
        raise TooSlow("this machine is too slow")

    monkeypatch.setattr(command, "measure", measure)
    with Interrupts() as interrupts:
        code = command.nightly(argparse.Namespace(runs=tmp_path, date=DAY, only="", minutes=90), interrupts)
    told = capsys.readouterr().out.splitlines()
    assert (code, told[-1]) == (2, f"nightly: cells {len(cells())}, valid 0, unknown {len(cells())}, violated 0")
    assert sum("is unknown: this machine is too slow; repeat it: " in line for line in told) == len(cells())


def write_night(folder: Path, day: date, verdicts: dict[int, str]) -> Path:
    place = command.new_place(folder, day)
    results: list[CellResult] = []
    for number, drill in enumerate(night(day)[:4]):
        run = place / f"run-{number}"
        run.mkdir()
        if number:
            (run / "report.html").write_text("a report")
        results.append(CellResult(drill, run.name, Verdict(verdicts.get(number, "valid"), {}, ("J4 violated: <lost>",))))
    campaign.write(place / command.FILE, command.content(day, results))
    return place


def test_the_page_has_each_cell_of_each_night_with_a_link_to_its_report(tmp_path: Path) -> None:
    write_night(tmp_path, DAY - timedelta(1), {})
    newest = write_night(tmp_path, DAY, {1: "violated"})
    assert [line.split()[0] for line in last_nights(tmp_path).splitlines()[3:5]] == ["2026-11-27", "2026-11-26"]
    page, violated = (tmp_path / "index.html").read_text(), night(DAY)[1]
    assert f'href="{newest.name}/run-1/report.html"><span class="badge violated"' in page
    assert "run-0/report.html" not in page, "a report that is not there is not linked"
    assert violated.cell.name in page and "<lost>" not in page and "&lt;lost&gt;" in page
    assert f"--only {violated.cell.name}" in page
    assert f">{json.loads((newest / command.FILE).read_text())['git_commit'][:8]}<" in page


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 9}'])
def test_a_night_that_cannot_be_read_is_one_clear_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "2026-11-27").mkdir()
    (tmp_path / "2026-11-27" / "nightly.json").write_text(content)
    with pytest.raises(JudgeError, match="nightly.json of 2026-11-27 is not"):
        last_nights(tmp_path)


def test_a_night_that_cannot_be_read_is_left_out_and_named_and_the_others_are_shown(tmp_path: Path) -> None:
    write_night(tmp_path, DAY - timedelta(1), {})
    for content in ("{oops", "[" * 100_000):
        bad = command.new_place(tmp_path, DAY)
        (bad / command.FILE).write_text(content)
        lines = last_nights(tmp_path).splitlines()
        assert [line.split()[0] for line in lines[3:4]] == ["2026-11-26"] and lines[-1].startswith("nights: 1 in ")
        assert any(line.startswith(f"left out: nightly.json of {bad.name} is not a night") for line in lines)
        assert "2026-11-26" in (tmp_path / "index.html").read_text()


def test_a_folder_without_a_night_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="has no night"):
        last_nights(tmp_path)


def test_old_nights_go(tmp_path: Path) -> None:
    for number in range(command.KEEP + 3):
        place = command.new_place(tmp_path, DAY + timedelta(number))
        campaign.write(place / command.FILE, command.content(DAY, []))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == command.KEEP and left[-1] == (DAY + timedelta(command.KEEP + 2)).isoformat()


def test_a_cell_takes_what_the_catalogue_has_for_its_load() -> None:
    assert Cell(DSPS, "aof", "always").kinds == catalogue.fitting("aof", catalogue.CHANNELS)
    assert Cell("bull", "aof", "always").kinds == catalogue.fitting("aof", catalogue.JOBS)
