"""What to do about a verdict that is not valid: the commands that repeat the run, and a remedy for each cause of an unknown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.causes import REMEDIES, Cause

#: Scenarios whose runs can be repeated by their plan, where they have a pace: those of jobs and of channels.
REPLAYED = ("bench", "channels")

#: Other scenarios that are a command of the harness themselves, with a seed.
BY_SEED = {
    **{name: f"run {name}" for name in ("interop", "mischief", "scale")},
    "compare": "campaign models",
    "mutants": "campaign mutants",
}

#: The drill of somebody's own service, whose file the user has.
SERVICE = "service"


def lines(decided: Mapping[str, Any], folder: Path) -> list[str]:
    """The section; empty for a valid run. `folder`: that of the run."""
    if decided["verdict"] == "valid":
        return []
    spec, causes = decided["spec"], decided.get("causes", {})
    found: list[str] = []
    if decided["verdict"] == "unknown":
        for cause, checks in causes.items():
            found.append(f"  {', '.join(checks)}: {REMEDIES[Cause(cause)]}" if checks else f"  {REMEDIES[Cause(cause)]}")
        if Cause.SLOW in causes and spec.get("rate_per_s"):
            found.append(f"  the rate of this run was {spec['rate_per_s']}/s")
    commands = (
        {"judge it again": f"{program('reports')} judge {shown(folder)}"} if {*causes} & {Cause.INPUT, Cause.CRASHED} else {}
    )
    commands |= repeated(spec, folder, violated=decided["verdict"] == "violated")
    if not (found or commands):
        found.append("  no command repeats this run: its folder does not say how it was made")
    width = max(map(len, commands), default=0)
    return ["what now", *found, *(f"  {name:{width}}  {command}" for name, command in commands.items())]


def repeated(spec: Mapping[str, Any], folder: Path, *, violated: bool) -> dict[str, str]:
    """The commands that carry a run out again, and with fewer faults until none can be left out."""
    scenario, seed, chaos = str(spec.get("scenario", "")).partition(" ")[0], spec.get("seed"), program("chaos")
    if scenario in REPLAYED and spec.get("pace"):
        least = {"find the least faults": f"{chaos} shrink {shown(folder)}"} if violated and spec.get("plan") else {}
        return {"repeat": f"{chaos} replay {shown(folder)}", **least}
    if scenario == SERVICE and spec.get("mutant"):
        return {"repeat": f"{chaos} campaign mutants --only {SERVICE}-{spec['mutant']} --seed {seed}"}
    if scenario == SERVICE:
        return {"repeat": f"{chaos} run chaos.toml --seed {seed}  (the file of the run)"}
    if scenario in BY_SEED:
        return {"repeat": f"{chaos} {BY_SEED[scenario]} --seed {seed}"}
    return {"repeat": str(spec["again"])} if spec.get("again") else {}


def program(module: str) -> str:
    """A module as this interpreter runs it, to be copied into a shell."""
    return f"{shown(Path(sys.executable))} -m {module}"


def shown(path: Path) -> str:
    """A path as seen from here, where it lies below, else in full."""
    whole, here = path.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)
