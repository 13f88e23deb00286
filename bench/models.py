"""The models that load can be put on, and what of the workload each of them can carry.

What a model lacks is asked of the model itself, so that the load never asks for a feature that would be refused; the same answers
go into the spec of a run, so that the judge expects no more than was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import engine
import engine.models
from bench.workload import CAPABILITY, LIMITS, PLAN_TEXT, SCHEDULES, PlannedJob
from engine.observer import Observer
from engine.operations import Options

LANES = "lanes"
NAMES = (LANES, "bridge", "bananas", "bull", "mosquito")

#: Channels, which carry no jobs: load on them is in `bench.channels`.
DSPS = "dsps"

#: How the names of processes begin that run an original client. What a model declares is about what those do: it covers no
#: violation of jobs that the engine alone has had in its hands.
FOREIGN = "foreign-"

#: A payload that not every wire can hold.
_NESTED = b'{"a":{"b":[1]}}'


class ModelMissing(ValueError):
    """A model that does not exist; the message names those that do."""


def queue(
    model: str, name: str, *, url: str, lua: Path | None = None, observer: Observer | None = None, connections_max: int = 0
) -> engine.Queue:
    """A queue of that model; no I/O yet. `connections_max`: most calls at once, 0 = no bound.

    Raises ModelMissing, and engine.EngineError naming the setting that is wrong."""
    bound = () if model == LANES else (_spec(model),)
    connect = engine.ConnectOptions(connections_max=connections_max)
    return engine.Queue(name, *bound, url=url, lua=lua, observer=observer, connect=connect)


def _spec(model: str) -> Any:
    """The model's settings, all as they are by default."""
    found = getattr(engine.models, model.capitalize(), None) if model in NAMES else None
    if found is None:
        raise ModelMissing(f"model {model!r} does not exist; choose from {', '.join(NAMES)}")
    return found()


@dataclass(frozen=True, slots=True)
class Carried:
    """What a model carries. `options`: names of JobOptions, None = all; `lacks`: names of operations that it has not."""

    options: Collection[str] | None = None
    lacks: Collection[str] = ()
    findings: tuple[dict[str, Any], ...] = ()
    #: A payload holds texts by name, and nothing else.
    texts_only: bool = False

    def payload(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """The payload as the model can carry it; `workload.plan_of` makes the one that is meant of it again."""
        return {PLAN_TEXT: json.dumps(wanted, separators=(",", ":"))} if self.texts_only else wanted

    def option(self, name: str) -> bool:
        """Whether a job may have this option."""
        return self.options is None or name in self.options

    def options_of(self, job: PlannedJob, hopeless: Collection[str]) -> dict[str, Any]:
        """The options of a planned job, of those that the model carries. `hopeless`: jobs that end dead by plan; where a job
        shares its parents' fate it is not given those, for the check is about the order."""
        alone = self.option("on_parent_failure")
        wanted: dict[str, Any] = {
            "delay_ms": job.delay_ms,
            "priority": job.priority,
            "attempts": job.attempts,
            "backoff_ms": job.backoff_ms,
            "key": job.key,
            "unique": job.unique,
            "needs": job.needs if alone else tuple(parent for parent in job.needs if parent not in hopeless),
            "target": engine.Target(capabilities=[CAPABILITY]) if job.routed else None,
            "on_parent_failure": "ignore",
        }
        return {name: value for name, value in wanted.items() if self.option(name)}

    def operation(self, name: str) -> bool:
        """Whether the model has this operation."""
        return name not in self.lacks

    def features(self) -> dict[str, Any]:
        """What a load on it uses, as fields of a run's spec."""
        # Limits of keys are of Lanes' lanes alone: what others call a key is not what a lease is counted against.
        limits = [one for one in LIMITS if "key" not in one or self.options is None] if self.operation("SetLimit") else []
        scheduled = self.operation("PutSchedule") and self.operation("Tick")
        return {
            "limits": tuple(limits),
            "unique_keys": self.option("unique"),
            "schedules": SCHEDULES if scheduled else (),
            "dependencies": self.option("needs"),
            "routing": self.option("target"),
            "findings": self.findings,
        }


def carried(model: str) -> Carried:
    """What the model carries. Raises ModelMissing."""
    if model == LANES:
        return Carried()
    with queue(model, "any", url="redis://127.0.0.1:1") as unconnected:
        bound: Any = unconnected.model
    return Carried(
        bound.OPTIONS,
        tuple(operation.__name__ for operation in bound.LACKS),
        tuple({**asdict(finding), "procs": [FOREIGN]} for finding in bound.FINDINGS),
        texts_only=not _holds(bound, _NESTED),
    )


def _holds(bound: Any, payload: bytes) -> bool:
    try:
        bound.check("any", "any", payload, Options())
    except engine.EngineError:
        return False
    return True
