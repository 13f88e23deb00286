"""`shrink RUN`: the least of a violated run's faults that is enough for the violation, by repeated drills."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from chaos.campaign import stop_if_interrupted
from chaos.ddmin import minimal
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.judge import EXIT_CODES, UNKNOWN
from chaos.plan import Plan, PlannedFault
from chaos.progress import Progress
from chaos.run import Scenario, carry_out, measure

VIOLATED = EXIT_CODES["violated"]
WORDS = {code: name for name, code in EXIT_CODES.items()}


class Repeatable(Protocol):
    """A recorded run that can be repeated with some of its faults."""

    @property
    def folder(self) -> Path: ...

    @property
    def plan(self) -> Plan: ...

    def scenario(self, faults: Sequence[PlannedFault]) -> Scenario[Any]: ...


def shrink(recorded: Repeatable, arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Repeat a violated run with fewer and fewer faults, and say which are enough. Returns 1 when the violation came again, 2
    when it did not. Raises HarnessError for a run that is not violated, and as `carry_out`."""
    folder, faults = recorded.folder, recorded.plan.faults
    wanted = violated_checks(folder)
    if not wanted:
        raise HarnessError(f"{folder.name} is not violated: there is nothing to shrink (`show` judges it)")
    progress = Progress(sys.stdout)
    calibration = measure(progress, arguments, interrupts)
    tried: dict[tuple[str, ...], bool] = {}

    def enough(left: tuple[PlannedFault, ...]) -> bool:
        """Whether a drill with these faults alone violates one of the same checks."""
        names = tuple(planned.fault for planned in left)
        if names not in tried:
            progress.say(f"shrink: drill {len(tried) + 1}, with {listed(names)}")
            code, run = carry_out(recorded.scenario(without_others(faults, left)), arguments, interrupts, calibration)
            stop_if_interrupted(json.loads((run / "spec.json").read_text()).get("harness_errors", []))
            seen = violated_checks(run)
            again = sorted(wanted & seen)
            others = f" by {', '.join(sorted(seen))} alone" if seen else ""
            came = f"violated by {', '.join(again)} again" if again else f"{WORDS[code]}{others}, so it is taken for not enough"
            progress.say(f"shrink: {listed(names)}: {came} ({run.name})")
            tried[names] = bool(again)
        return tried[names]

    left = minimal(faults, enough)
    if left == faults and not enough(faults):
        progress.say(f"shrink: the violation did not come again, not even with all {len(faults)} faults, in {len(tried)} drills")
        return UNKNOWN
    found = listed([planned.fault for planned in left])
    progress.say(f"shrink: {len(left)} of {len(faults)} faults are enough, after {len(tried)} drills: {found}")
    return VIOLATED


def without_others(faults: Sequence[PlannedFault], left: Sequence[PlannedFault]) -> tuple[PlannedFault, ...]:
    """The faults that are left of a plan. A worker whose kill is left out goes on in the place of its replacement, and what came
    during a fault that is left out comes by itself."""
    kept = {planned.fault for planned in left}
    stays: dict[str, str] = {}
    found: list[PlannedFault] = []
    for planned in faults:
        target = ",".join(stays.get(name, name) for name in planned.targets)
        if planned.fault in kept:
            found.append(replace(planned, target=target, during=planned.during if planned.during in kept else ""))
        elif planned.replacement:
            stays[planned.replacement] = target
    return tuple(found)


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no fault"


def violated_checks(run: Path) -> set[str]:
    """The checks that a run violates; none where it has no verdict."""
    try:
        checks = json.loads((run / "verdict.json").read_text())["checks"]
        return {check["id"] for check in checks if check["verdict"] == "violated"}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
