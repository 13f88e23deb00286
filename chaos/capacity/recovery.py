"""How soon work goes on after a loss: from the newest judged drill of the model that has seen it, else the bound, called so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.capacity.crew import LEASE_MS, SWEEP_MS
from chaos.tail import Tail

#: What a plan asks for -> the faults of a drill that show it.
LOSSES = {"worker-kill": ("worker-kill",), "server-kill": ("server-kill", "primary-kill")}

#: Verdicts of runs whose figures count: one that missed an objective is valid too.
JUDGED = ("valid", "missed")


@dataclass(frozen=True, slots=True)
class Recovery:
    """A time, and where it comes from."""

    ms: float
    source: str


def recoveries(
    runs: Path, model: str, topology: str, *, lease_ms: int = LEASE_MS, sweep_ms: int = SWEEP_MS, service: str = ""
) -> dict[str, dict[str, Any]]:
    """By loss, as it is written: of a worker always, of a server only where a drill has seen it. `service`: the queue of a
    service, whose own drills alone count."""
    of = f"queue {service}" if service else model
    bound = f"the bound: a lease of {lease_ms / 1e3:g} s and a sweep of {sweep_ms / 1e3:g} s, as no drill of {of} is in {runs}"
    found = {"worker-kill": Recovery(lease_ms + sweep_ms, bound)}
    same: dict[str, Any] = {"model": model, "lease_ms": lease_ms}
    same |= {"scenario": "service", "queue": service} if service else {}
    drills = sorted(_drills(runs, same), key=lambda one: (one[1]["spec"].get("topology") == topology, one[0].name))
    for run, verdict in drills:
        for loss, faults in LOSSES.items():
            if slowest_ms := max(_times_ms(run, verdict, loss, faults), default=0.0):
                spec = verdict["spec"]
                words = f"drilled in {run.name} on {spec.get('topology')}, with a lease of {spec['lease_ms'] / 1e3:g} s"
                found[loss] = Recovery(slowest_ms, words)
    return {loss: asdict(one) for loss, one in found.items()}


def _drills(runs: Path, same: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The judged runs whose spec has these fields, and their verdicts. Those of services count for themselves alone."""
    for file in runs.glob("*/verdict.json"):
        try:
            found = json.loads(file.read_text())
            spec = found["spec"]
            alike = all(spec[name] == value for name, value in same.items()) and not spec["mutant"]
            alike = alike and (spec.get("scenario") == "service") == ("scenario" in same)
            judged = alike and found["verdict"] in JUDGED and isinstance(found["measures"]["by_fault"], list)
        except (OSError, ValueError, KeyError, TypeError):
            # What cannot be read has no figures.
            continue
        if judged and not file.parent.is_symlink():
            yield file.parent, found


def _times_ms(run: Path, verdict: Mapping[str, Any], loss: str, faults: tuple[str, ...]) -> Iterator[float]:
    """How long each loss lasted. The judge counts from the inject where a worker is killed, and else from the heal: until then a
    server is away for as long as the history says."""
    known = [one for one in verdict["measures"]["by_fault"] if one["name"] in faults and one["recovery_ms"] is not None]
    if not known or loss == "worker-kill":
        yield from (one["recovery_ms"] for one in known)
        return
    history = Tail(run / "history" / "harness.jsonl")
    at_ns = {(row["fault"], row["stage"]): row["t_ns"] for row in history.read() if row.get("kind") == "fault"}
    history.close()
    for one in known:
        inject_ns, heal_ns = (at_ns.get((one["fault"], stage)) for stage in ("inject", "heal"))
        if inject_ns is not None and heal_ns is not None:
            yield (heal_ns - inject_ns) / 1e6 + one["recovery_ms"]
