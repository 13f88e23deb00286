"""H1: every planned fault was injected, seen to bite, healed, and seen to have healed. Else the run proves nothing: unknown."""

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
    if not faults and "plan" not in run.spec:
        return ["there was no fault, and the spec does not say that none was planned"]
    found: list[str] = []
    for fault in faults:
        for stage, words in STAGES.items():
            if (fault, stage) not in happened:
                detail = details.get((fault, stage), "")
                found.append(f"fault {fault} {words}" + (f": {detail}" if detail else ""))
    return found


def planned(run: Run) -> set[str]:
    """Ids of the faults in the plan of the spec."""
    plan = run.spec.get("plan")
    entries = plan if isinstance(plan, list) else []
    return {str(entry["fault"]) for entry in entries if isinstance(entry, dict) and "fault" in entry}


CHECK = Check("H1", "every fault took effect and healed", doubts)
