"""H1: the drill was carried out. Every planned fault was injected, seen to bite, healed, and seen to have healed, and the harness
reports no error of its own (`harness_errors` of the spec). Else the run proves nothing: unknown."""

from __future__ import annotations

from reports.checks.base import Check
from reports.facts import Run

STAGES = {
    "inject": "was not injected",
    "witness": "was not seen to bite",
    "heal": "was not healed",
    "healed": "was not seen to have healed",
}


def doubts(run: Run) -> list[str]:
    """A line for each stage of a fault that was not seen."""
    happened = {(stage.fault, stage.stage) for stage in run.stages if stage.ok}
    details = {(stage.fault, stage.stage): stage.detail for stage in run.stages}
    faults = sorted({stage.fault for stage in run.stages} | planned(run))
    found = [f"the harness could not carry out the drill: {error}" for error in harness_errors(run)]
    for fault in faults:
        for stage, words in STAGES.items():
            if (fault, stage) not in happened:
                detail = details.get((fault, stage), "")
                found.append(f"fault {fault} {words}" + (f": {detail}" if detail else ""))
    if not faults and "plan" not in run.spec:
        found.append("there was no fault, and the spec does not say that none was planned")
    return found


def harness_errors(run: Run) -> list[str]:
    """What the harness says went wrong; something that is no list is itself wrong."""
    errors = run.spec.get("harness_errors", [])
    return [str(error) for error in errors] if isinstance(errors, list) else [f"harness_errors is {errors!r}"]


def planned(run: Run) -> set[str]:
    """Ids of the faults in the plan of the spec."""
    plan = run.spec.get("plan")
    entries = plan if isinstance(plan, list) else []
    return {str(entry["fault"]) for entry in entries if isinstance(entry, dict) and "fault" in entry}


CHECK = Check("H1", "every fault took effect and healed", doubts)
