"""Campaigns: the worst of their codes, where their runs go, and what ends them."""

from pathlib import Path

import pytest

from chaos.campaign import new_place, stop_if_interrupted, worst, write
from chaos.errors import HarnessError, Interrupted


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((0, 3), 3), ((3, 2, 0), 2), ((2, 1, 3, 0), 1), ((3,), 3), ((), 2)])
def test_violated_beats_unknown_beats_a_missed_objective_beats_valid(codes: tuple[int, ...], code: int) -> None:
    assert worst(codes) == code


def test_the_oldest_places_go_and_the_new_one_is_empty(tmp_path: Path) -> None:
    for name in ("1", "2", "3", "4"):
        (new_place(tmp_path, name, keep=3) / "run").mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "4"]
    again = new_place(tmp_path, "4", keep=9)
    assert again.name == "4-2" and not list(again.iterdir())


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HarnessError, match=r"^folder .*/file/below: Not a directory$"):
        new_place(tmp_path / "file" / "below", "1", keep=3)
    with pytest.raises(HarnessError, match=r"^table\.json cannot be written: No such file or directory$"):
        write(tmp_path / "gone" / "table.json", {})


def test_nobody_wants_the_drill_after_one_that_a_signal_has_ended() -> None:
    stop_if_interrupted(["the producer created no job within 60 s"])
    with pytest.raises(Interrupted, match="interrupted by SIGINT"):
        stop_if_interrupted(["worker-1 was killed", "interrupted by SIGINT"])
