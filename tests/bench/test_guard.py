"""`python -m bench guard` at a tiny size: each side runs its own checkout, and only a whole interval counts as slower."""

import shutil
from pathlib import Path

import pytest

from bench.commits import NoCommit, unpacked
from bench.micro.guard import PARTS, compare, outcome
from bench.micro.place import ROOT, check_cores
from tests.bench.real_parts import TWO_CORES

pytestmark = [TWO_CORES, pytest.mark.usefixtures("own_cores", "nothing_left")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of this checkout at another place."""
    check_cores()
    for folder in ("engine", "lua", "bench"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_both_sides_are_measured_in_each_round(checkout: Path, part: str) -> None:
    now, before = compare(checkout, part, rounds=2, count=20)
    assert [len(now), len(before)] == [2, 2] and min(*now, *before) > 0


@pytest.mark.slow
def test_the_side_before_runs_the_code_of_its_own_checkout(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = checkout / "bench" / "micro" / "jobs.py"
    jobs.write_text(jobs.read_text() + "\nraise SystemExit('the other checkout')\n")
    with pytest.raises(RuntimeError, match=f"a process of {checkout} ended"):
        compare(checkout, "claim", rounds=1, count=1)
    assert "the other checkout" in capfd.readouterr().err


def test_a_part_is_slower_when_its_whole_interval_is_below_the_bound() -> None:
    assert outcome("claim", [1.2] * 3, [1.0] * 3) == ("claim    now / before 0.833  [0.833, 0.833]  slower", 1 / 1.2, True)
    assert outcome("claim", [1.2, 1.0, 1.2], [1.0, 1.0, 1.0])[2] is False
    assert outcome("claim", [0.5, 0.5, 0.5], [1.0, 1.0, 1.0])[1:] == (2.0, False)


def test_a_commit_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoCommit, match="no-such-commit"):
        unpacked("no-such-commit", tmp_path)
