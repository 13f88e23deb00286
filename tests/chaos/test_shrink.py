"""Shrinking: fewer and fewer faults of a violated run, as long as the same check is violated again."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos import ddmin, interrupts, replay
from chaos.errors import HarnessError, Interrupted
from chaos.plan import Pace, Plan, PlannedFault
from tests.chaos.drills import CARRIED
from tests.given import Output, Patch
from tests.golden import same

FAULTS = (
    PlannedFault("1-worker-kill", "worker-kill", "worker-2", 0, "worker-4"),
    PlannedFault("2-net-latency", "net-latency", "worker-1,worker-4,producer-1", 0),
    PlannedFault("3-worker-freeze", "worker-freeze", "worker-3", 0, during="2-net-latency"),
    PlannedFault("4-worker-kill", "worker-kill", "worker-4", 0, "worker-5"),
)
CODES = {"valid": 0, "violated": 1, "unknown": 2}


@pytest.mark.parametrize("needed", [(), ("c",), ("a", "h"), ("b", "c", "g"), tuple("abcdefgh")])
def test_what_is_left_is_enough_and_nothing_of_it_can_be_left_out(needed: tuple[str, ...]) -> None:
    tried: list[tuple[str, ...]] = []

    def enough(left: tuple[str, ...]) -> bool:
        tried.append(left)
        return set(needed) <= set(left)

    assert ddmin.minimal(tuple("abcdefgh"), enough) == needed and len(tried) < 64


def test_when_it_is_late_the_least_so_far_is_kept() -> None:
    tried: list[tuple[int, ...]] = []

    def enough(left: tuple[int, ...]) -> bool:
        tried.append(left)
        return True

    assert ddmin.minimal(tuple(range(8)), enough, lambda: len(tried) == 2) == (6, 7)


def test_without_a_kill_the_worker_goes_on_and_without_the_fault_around_it_a_fault_comes_by_itself() -> None:
    found = replay.without_others(FAULTS, FAULTS[1:])
    assert [(planned.target, planned.replacement, planned.during) for planned in found] == [
        *(("worker-1,worker-2,producer-1", "", ""), ("worker-3", "", "2-net-latency"), ("worker-2", "worker-5", ""))
    ]
    (alone,) = replay.without_others(FAULTS, FAULTS[2:3])
    assert (alone.fault, alone.target, alone.during) == ("3-worker-freeze", "worker-3", "")
    assert replay.without_others(FAULTS, FAULTS) == FAULTS


@dataclass
class Recorded:
    """A violated run. `needed`: the faults whose drills violate again; `unknown`: those whose drills prove nothing."""

    folder: Path
    needed: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    plan: Plan = field(default_factory=lambda: Plan(1, Pace(), FAULTS))

    def scenario(self, faults: Sequence[PlannedFault]) -> Any:
        return tuple(planned.fault for planned in faults)

    def carry_out(self, order: Any, *_: object) -> tuple[int, Path]:
        result = "unknown" if set(self.unknown) & set(order) else "violated" if set(self.needed) <= set(order) else "valid"
        return CODES[result], decided(self.folder.with_name("-".join(("drill", *order))), result)


def decided(folder: Path, result: str, errors: Sequence[str] = ()) -> Path:
    """The folder of a run with this verdict."""
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"harness_errors": list(errors)}))
    (folder / "verdict.json").write_text(json.dumps({"verdict": result, "checks": [{"id": "J6", "verdict": result}]}))
    return folder


def shrunk(recorded: Recorded, monkeypatch: Patch) -> int:
    monkeypatch.setattr(replay, "measure", lambda *_: CARRIED)
    monkeypatch.setattr(replay, "carry_out", recorded.carry_out)
    return replay.shrink(recorded, argparse.Namespace(), interrupts.Interrupts())


#: What a shrink tells where these faults are needed, and these prove nothing; each drill is said once.
NEEDED = {
    "the faults that are enough are said in the last line": (("3-worker-freeze",), ()),
    "a drill that proves nothing is taken for not enough and said": (("4-worker-kill",), ("3-worker-freeze",)),
    "a violation that does not come again is not said to need all": (("of another day",), ()),
}


def test_what_a_shrink_tells(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    told: list[str] = []
    for rule, (needed, unknown) in NEEDED.items():
        code = shrunk(Recorded(decided(tmp_path / str(len(told)) / "run", "violated"), needed, unknown), monkeypatch)
        told.append(f"{rule}: {code}\n{capsys.readouterr().out}")
    same("chaos/shrinks.txt", "".join(told))


def test_a_drill_that_violates_another_check_is_not_enough_and_said(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    recorded = Recorded(decided(tmp_path / "run", "violated"), needed=("4-worker-kill",))

    def another(order: Any, *_: object) -> tuple[int, Path]:
        run = decided(tmp_path / "-".join(("other", *order)), "violated")
        (run / "verdict.json").write_text(json.dumps({"checks": [{"id": "J13", "verdict": "violated"}]}))
        return 1, run

    monkeypatch.setattr(Recorded, "carry_out", lambda self, *rest: another(*rest))
    assert shrunk(recorded, monkeypatch) == 2
    assert "3-worker-freeze, 4-worker-kill: violated by J13 alone, so it is taken for not enough" in capsys.readouterr().out


@pytest.mark.parametrize("result", ["valid", "unknown"])
def test_a_run_that_is_not_violated_is_refused(result: str, tmp_path: Path, monkeypatch: Patch) -> None:
    with pytest.raises(HarnessError, match="run is not violated: there is nothing to shrink"):
        shrunk(Recorded(decided(tmp_path / "run", result), needed=()), monkeypatch)


def test_after_a_drill_that_a_signal_ended_no_other_begins(tmp_path: Path, monkeypatch: Patch) -> None:
    ended = decided(tmp_path / "ended", "unknown", ["interrupted by SIGINT"])
    recorded = Recorded(decided(tmp_path / "run", "violated"), needed=())
    monkeypatch.setattr(Recorded, "carry_out", lambda *_: (2, ended))
    with pytest.raises(Interrupted, match="interrupted by SIGINT"):
        shrunk(recorded, monkeypatch)
