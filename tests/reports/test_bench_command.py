"""`python -m reports.bench judge` judges histories of each size, prints what that cost and what was found, and fails when
other things were
planted."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from reports.bench import command, cost
from reports.bench.command import Measured, Order, bench, slope
from reports.bench.cost import Cost
from reports.bench.grow import Grown
from reports.bench.planted import COLUMNS, Compared, findings, later, plant, unseen
from reports.corrupt.history import History
from reports.errors import JudgeError
from tests.reports.good_run import healthy

LINE = re.compile(r"judge: rows=\d+ seconds=[\d.]+ cpu_s=[\d.]+ peak_mb=\d+ exponent=-?[\d.]+ planted=(\d+)/\1 extra=0")


def measured(rows: int, cpu_s: float) -> Measured:
    return Measured(rows, Cost(1.0, cpu_s, 1.0, None, 0), Compared(frozenset(), frozenset()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_sizes_are_judged_and_told(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Violations are planted by hand: the story has not all that the corruptor needs."""

    def plant(clean: Path, seed: int, out: Path) -> dict[str, str]:
        broken = healthy(out)
        broken.enqueue("gone", 40.0)
        broken.write()
        return {"lost-job": "gone"}

    monkeypatch.setattr(command, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(command, "plant", plant)
    monkeypatch.setattr(command, "unseen", lambda found, subjects: [])
    lines: list[str] = []
    order = Order([1_000, 2_000], run=run, master="local[2]")
    assert bench(order, lines.append) == 0
    assert LINE.fullmatch(lines[-1]), lines
    grown = tmp_path / "build" / "real-1000-seed1"
    assert (grown / "verdict.json").exists()
    # What was made once is used again, unless something that it depends on has changed.
    before = (grown / "history" / "worker-1.jsonl").stat().st_mtime_ns
    command.history(order, run, command.Small(run, 0, {}), 1_000, lines.append)
    assert (grown / "history" / "worker-1.jsonl").stat().st_mtime_ns == before
    command.clean(grown)
    assert sorted(path.name for path in grown.iterdir()) == ["grown.json", "history", "samples", "spec.json"]
    shutil.rmtree(tmp_path / "build")


def test_a_planted_copy_is_written_anew_and_the_run_stays_as_it_is(tmp_path: Path, run: Path, monkeypatch: Any) -> None:
    def edit(history: History) -> str:
        history.files["worker-1.jsonl"][1] |= {"name": "planted", "t_ns": 2**60}
        return "a job"

    kinds = [SimpleNamespace(name=name, apart=name == "apart", edit=edit) for name in ("one", "apart")]
    monkeypatch.setattr("reports.bench.planted.KINDS", {kind.name: kind for kind in kinds})
    out = tmp_path / "planted"
    (out / "history").mkdir(parents=True)
    (out / "history" / "old.jsonl").touch()
    assert plant(run, 1, out) == {"one": "a job"}
    written = {path.name: path.read_text() for path in (out / "history").iterdir()}
    assert "old.jsonl" not in written and ["planted" in written[name] for name in sorted(written)].count(True) == 1
    assert written.keys() == {path.name for path in (run / "history").iterdir()}
    assert "planted" not in (run / "history" / "worker-1.jsonl").read_text()
    assert json.loads(written["worker-1.jsonl"].splitlines()[-1])["t_ns"] == 2**60, "a file ends with its latest row"


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    assert slope([measured(1_000, 5.0), measured(4_000, 20.0), measured(16_000, 80.0)]) == 1.0
    assert slope([measured(1_000, 5.0), measured(4_000, 80.0)]) == 2.0
    assert slope([measured(1_000, 5.0)]) is None


def test_ticks_are_later_in_a_grown_history() -> None:
    """But for those from before what is repeated."""

    def tick(subject: str) -> tuple[str, ...]:
        return ("J15", subject, "tick early", "violated")

    lost = ("J4", "b1-500", "lost", "violated")
    found = frozenset({tick("cron:beat:500"), tick("cron:beat:400"), lost})
    grown = Grown(rows=0, later_ms=1_000, begin_ms=450)
    assert later(found, grown) == {tick("cron:beat:1500"), tick("cron:beat:400"), lost}


def test_a_planted_kind_that_its_check_does_not_see_is_named() -> None:
    found = frozenset({("J1", "a", "overlap", "violated")})
    assert unseen(found, {"claimed-by-two-workers": "a"}) == []
    assert unseen(found, {"claimed-by-two-workers": "b"}) == ["claimed-by-two-workers"]


def test_a_recorded_run_that_is_not_fit_is_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfit, lines = [tmp_path / "busy", tmp_path / "poor", tmp_path / "good"], list[str]()
    left = iter([None, *unfit[1:]])

    def recorded(seed: int, say: command.Say) -> Path:
        if (run := next(left)) is None:
            raise JudgeError("the drill was not valid")
        run.mkdir()
        return run

    def planted(run: Path, seed: int, say: command.Say) -> command.Small:
        if run.name == "poor":
            raise JudgeError("the run has no such job")
        return command.Small(run, 0, {})

    monkeypatch.setattr(command, "recorded", recorded)
    monkeypatch.setattr(command, "planted", planted)
    run, _ = command.base(Order([]), "local", lines.append)
    again = ["judge: the drill was not valid; recording again", "judge: the run has no such job; recording again"]
    assert (run.name, lines, (tmp_path / "poor").exists()) == ("good", again, False)
    left = iter([None] * command.RECORDINGS_MAX)
    with pytest.raises(JudgeError, match="the drill was not valid"):
        command.base(Order([]), "local", lines.append)
    assert next(left, "asked for no more") == "asked for no more"


def test_the_newest_valid_run_that_was_recorded_of_a_seed_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    for name, verdict in (("1", "valid"), ("2", "valid"), ("3", "violated")):
        (folder := tmp_path / "recorded-seed7" / name).mkdir(parents=True)
        (folder / "verdict.json").write_text(f'{{"verdict": "{verdict}"}}')
    assert command.recorded(7, pytest.fail).name == "2"


def test_a_history_that_was_grown_of_the_same_is_taken_again_and_cleaned(tmp_path: Path, run: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path / "build")
    order, grown = Order([], run=run), tmp_path / "build" / "real-5-seed1"
    shutil.copytree(run, grown)
    made = {"digest": command.made_of(run, order), "rows": 5, "later_ms": 7, "begin_ms": 9}
    (grown / "grown.json").write_text(json.dumps(made))
    assert command.history(order, run, command.Small(run, 0, {}), 5, pytest.fail) == (grown, Grown(5, 7, 9))
    (grown / "tables").mkdir()
    (grown / "history" / "x.parquet").touch()
    (grown / "verdict.json").touch()
    command.clean(grown)
    assert sorted(path.name for path in grown.iterdir()) == ["grown.json", "history", "samples", "spec.json"]
    assert {path.suffix for path in (grown / "history").iterdir()} == {".jsonl"}


def test_what_was_found_in_a_run_is_its_violations_and_the_checks_that_are_not_valid(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="was not judged: "):
        findings(tmp_path)
    (tmp_path / "tables").mkdir()
    parquet.write_table(pa.table({name: [name] for name in COLUMNS}), tmp_path / "tables" / "violations.parquet")
    checks = [{"id": "J1", "verdict": "valid"}, {"id": "J2", "verdict": "unknown"}]
    (tmp_path / "verdict.json").write_text(json.dumps({"checks": checks}))
    assert findings(tmp_path) == {COLUMNS, ("J2", "the check", "verdict", "unknown")}


def test_processes_and_what_they_use_are_read_from_the_kernel() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        try:
            found = [cost.descendants(pid) for pid in (shell.pid, sleeper)]
            assert found == [[sleeper], []] and {shell.pid, sleeper} <= {*cost.descendants(os.getpid())}
        finally:
            os.kill(sleeper, signal.SIGKILL)
    before_s, used_s, after_s = time.process_time(), cost.used_s(os.getpid()), time.process_time()
    # The kernel tells it in whole ticks.
    assert before_s - 2 / cost.TICKS_PER_S <= used_s <= after_s
    assert 2**20 < cost.memory_bytes(os.getpid()) <= 1_024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_run_that_is_not_valid_is_not_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(run: Path, _: str) -> None:
        assert not (run / "verdict.json").exists(), "it is judged once"
        (run / "verdict.json").write_text('{"verdict": "unknown", "reasons": ["H3 unknown: the load lagged", "more"]}')

    monkeypatch.setattr(command, "judged", judged)
    for _ in range(2):
        with pytest.raises(JudgeError, match="cannot be grown: it is unknown: H3 unknown: the load lagged$"):
            command.base(Order([], run=tmp_path), "local", lambda line: None)


def test_too_little_disk_is_one_clear_line(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path / "build")
    with pytest.raises(JudgeError, match=r"rows need .* GB in .*build, which has"):
        command.history(Order([]), run, command.Small(run, 0, {}), 10**15, lambda line: None)
