"""Run folders: names, the link to the latest, and pruning by age and count."""

from pathlib import Path

import pytest

from chaos import errors, runs

#: 2026-01-31 12:00:00 UTC
NOW_S = 1_769_860_800.0
DAY_S = 86_400.0


def make(folder: Path, *ages_days: float) -> list[str]:
    """Runs of these ages, finished, as their names."""
    names = [runs.run_id("bench", number, "", NOW_S - age_days * DAY_S) for number, age_days in enumerate(ages_days)]
    for name in names:
        runs.create(folder, name).release()
    return names


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink()}


def test_a_run_is_named_by_time_scenario_seed_and_mutant() -> None:
    assert runs.run_id("bench", 1, "", NOW_S) == "20260131-120000-bench-seed1"
    assert runs.run_id("bench", 7, "inject-nothing", NOW_S) == "20260131-120000-bench-seed7-inject-nothing"
    assert runs.RUN_ID.fullmatch("20260131-120000-bench-seed7-inject-nothing")


def test_latest_points_at_the_newest_run_created(tmp_path: Path) -> None:
    first, second = make(tmp_path, 1, 0)
    assert (tmp_path / "latest").resolve().name == second != first
    assert (tmp_path / "latest" / "history").is_dir()


#: Ages in days, how many are kept at least, and how many of the oldest are pruned.
PRUNED = [((4, 3, 2, 1, 0), 2, 3), ((14.1, 13.9, 0), 20, 1), ((1, 0), 2, 0)]


@pytest.mark.parametrize(("ages", "keep", "gone"), PRUNED, ids=["all but the newest", "beyond the age", "none"])
def test_runs_are_pruned_by_number_and_age_even_when_few(tmp_path: Path, ages: tuple[float, ...], keep: int, gone: int) -> None:
    names = make(tmp_path, *ages)
    assert runs.prune(tmp_path, keep=keep, keep_days=14, now_s=NOW_S) == names[:gone]
    assert kept(tmp_path) == set(names[gone:])


def test_a_run_that_somebody_works_on_is_not_pruned(tmp_path: Path) -> None:
    busy = runs.create(tmp_path, runs.run_id("bench", 9, "", NOW_S - 100 * DAY_S))
    make(tmp_path, 0)
    assert runs.prune(tmp_path, keep=1, keep_days=1, now_s=NOW_S) == []
    busy.release()
    assert runs.prune(tmp_path, keep=1, keep_days=1, now_s=NOW_S) == [busy.path.name]


def test_what_is_not_a_run_is_never_touched(tmp_path: Path) -> None:
    for name in ("notes", "20200101-000000", "20200101-000000-bench"):
        (tmp_path / name).mkdir()
    (tmp_path / "20200101-000000-bench-seed1").write_text("a file, not a run")
    runs.prune(tmp_path, keep=1, keep_days=1, now_s=NOW_S)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_name_that_is_taken_gets_a_suffix_and_is_a_run_all_the_same(tmp_path: Path) -> None:
    (name,) = make(tmp_path, 3)
    others = [runs.create(tmp_path, name) for _ in range(2)]
    assert [other.path.name for other in others] == [f"{name}-2", f"{name}-3"]
    assert (tmp_path / "latest").resolve() == others[-1].path
    for other in others:
        other.release()
    assert runs.prune(tmp_path, keep=1, keep_days=1, now_s=NOW_S) == [name, f"{name}-2", f"{name}-3"]


def test_names_are_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "NAMES_MAX", 2)
    (name,) = make(tmp_path, 0)
    runs.create(tmp_path, name).release()
    with pytest.raises(errors.HarnessError, match=rf"run folder .*{name}: File exists"):
        runs.create(tmp_path, name)


def test_a_runs_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(errors.HarnessError, match="run folder") as caught:
        runs.create(tmp_path / "runs", "20260131-120000-bench-seed1")
    assert "\n" not in str(caught.value)
