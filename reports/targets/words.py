"""The verdict on another job queue as plain text; its last line is `verdict: valid|violated|unknown`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from reports import causes
from reports.table import COLUMNS, checks, faults, findings, grid, number, page, reasons, recoveries
from reports.targets.promise import promise_of


def render(decided: Mapping[str, Any], folder: Path = Path(), *, columns: int = COLUMNS, every: bool = False) -> str:
    """The whole table, as `reports.table.render`."""
    spec = decided["spec"]
    sections = [[f"run {spec.get('id')}  target {spec.get('target')}  seed {spec.get('seed')}"]]
    if decided["checks"]:
        measures = decided["measures"]
        sections += [promised(spec), counts(measures), at_kills(measures["kill"])]
        sections += [recoveries(measures["recovery"]), faults(measures["faults"], columns)]
        sections += [checks(decided["checks"], columns, every=every)]
        sections += [findings(decided["findings"], columns), cannot_be_known(decided["cannot_be_known"])]
    sections += [reasons(decided), causes.lines(decided, folder)]
    if spec.get("again") and decided["verdict"] == "valid":
        sections.append(["again", f"  {spec['again']}"])
    return page(sections, [f"verdict: {decided['verdict']}"], columns)


def promised(spec: Mapping[str, Any]) -> list[str]:
    """What the queue promises, and where that stands."""
    promise = spec["promise"]
    return ["promise", f"  {promise_of(spec).words}", f"  defaults: {promise['defaults']}", f"  source: {promise['source']}"]


def counts(measures: Mapping[str, Any]) -> list[str]:
    """Counts of the jobs by what became of them."""
    titles = ("acknowledged", "not answered", "ran", "lost", "doubled", "late", "stranded", "worker exits")
    names = ("enqueued", "unanswered", "finished", "lost", "doubled", "late", "stranded", "exits")
    return grid("jobs", titles, [[number(measures[name]) for name in names]], right=range(len(names)))


def at_kills(kill: Mapping[str, Any]) -> list[str]:
    """What SIGKILL cost the jobs that its workers had in hand."""
    titles = ("in hand", "ran again", "lost", "stranded", "again after (median)", "(longest)")
    took: Sequence[float] = kill["again_ms"]
    shown = ["-", "-"] if not took else [f"{median(took) / 1_000:.1f} s", f"{max(took) / 1_000:.1f} s"]
    cells = [number(kill[name]) for name in ("in_hand", "again", "lost", "stranded")]
    return grid("what SIGKILL cost", titles, [[*cells, *shown]], right=range(6)) if kill["in_hand"] else []


def cannot_be_known(lines: Sequence[Mapping[str, str]]) -> list[str]:
    """What cannot be judged, and why."""
    return ["cannot be known, so not part of the verdict", *(f"  {one['check']}: {one['why']}" for one in lines)] if lines else []
