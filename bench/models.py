"""The models that the load can run on, and the features of the workload that each of them supports.

The features are read from the model's own declaration, so the load never uses one that would be refused. They are also written
to the spec of a run, so that the judge only checks features that were used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import engine
import engine.models
from bench.workload import CAPABILITY, LIMITS, PLAN_TEXT, RATE_JOBS, RATE_ROOM, RATED, SCHEDULES, PlannedJob
from bench.workload import NAMES as JOB_NAMES
from engine.observer import Observer
from engine.ops.jobs import Options

LANES = "lanes"
NAMES = (LANES, "bridge", "bananas", "bull", "mosquito")

#: The model of channels, which have no jobs; their load is in `bench.channels`.
DSPS = "dsps"

#: Environment variable of the worker's option --durability: what it says holds for the load too.
DURABILITY = "IRONCLAIM_DURABILITY"

#: Models whose format counts rates itself.
OWN_RATES = ("mosquito",)

#: Name prefix of the processes that run an original client. The declared findings of a model apply only to jobs that such a
#: process has leased, not to jobs that only the engine has leased.
FOREIGN = "foreign-"

#: A payload that not every wire format can hold.
_NESTED = b'{"a":{"b":[1]}}'


class ModelMissing(ValueError):
    """The model does not exist; the message names those that do."""


def queue(
    model: str, name: str, *, url: str, lua: Path | None = None, observer: Observer | None = None, connections_max: int = 0
) -> engine.Queue:
    """A queue of this model, without I/O so far. `connections_max`: maximum number of concurrent calls, 0 = no bound.

    Raises ModelMissing, and engine.EngineError naming the invalid setting."""
    bound = () if model == LANES else (_spec(model),)
    connect = engine.ConnectOptions(connections_max=connections_max)
    durability: Any = os.environ.get(DURABILITY, "server")
    return engine.Queue(name, *bound, url=url, lua=lua, observer=observer, connect=connect, durability=durability)


def in_cluster(model: str) -> bool:
    """True when the keys of a queue of this model are in one slot, so that it can be in a cluster. Raises ModelMissing."""
    try:
        queue(model, "any", url="redis+cluster://127.0.0.1:1").close()
    except engine.UnsupportedFeature:
        return False
    return True


def _spec(model: str) -> Any:
    """The model's settings with their defaults. Raises ModelMissing."""
    found = getattr(engine.models, model.capitalize(), None) if model in NAMES else None
    if found is None:
        raise ModelMissing(f"model {model!r} does not exist; choose from {', '.join(NAMES)}")
    return found()


@dataclass(frozen=True, slots=True)
class Carried:
    """The features of a model. `options`: names of the supported JobOptions, None = all; `lacks`: names of missing
    operations."""

    options: Collection[str] | None = None
    lacks: Collection[str] = ()
    findings: tuple[dict[str, Any], ...] = ()
    #: True when a payload can only be a flat mapping of names to strings.
    texts_only: bool = False
    #: True when the format counts rates itself: in windows that begin with a run, and jobs with a key apart from the others.
    own_rates: bool = False

    def payload(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """The payload in a form that the model supports; `workload.plan_of` restores the original."""
        return {PLAN_TEXT: json.dumps(wanted, separators=(",", ":"))} if self.texts_only else wanted

    def option(self, name: str) -> bool:
        """True when the model supports this option of jobs."""
        return self.options is None or name in self.options

    def options_of(self, job: PlannedJob, unfit: Collection[str]) -> dict[str, Any]:
        """The options of a planned job that the model supports. `unfit`: jobs that end dead by plan, or that may not be there.
        Where a job fails with its parents, these are not used as parents, because the check is about the order only; and where it
        does, an unknown parent keeps it waiting for ever."""
        alone = self.option("on_parent_failure")
        wanted: dict[str, Any] = {
            "delay_ms": job.delay_ms,
            "priority": job.priority,
            "attempts": job.attempts,
            "backoff_ms": job.backoff_ms,
            "key": job.key,
            "unique": job.unique,
            "needs": job.needs if alone else tuple(parent for parent in job.needs if parent not in unfit),
            "target": engine.Target(capabilities=[CAPABILITY]) if job.routed else None,
            "on_parent_failure": "ignore",
        }
        return {name: value for name, value in wanted.items() if self.option(name)}

    def operation(self, name: str) -> bool:
        """True when the model has this operation."""
        return name not in self.lacks

    def with_rates(self, limits: tuple[dict[str, Any], ...], rate_per_s: float) -> tuple[dict[str, Any], ...]:
        """These limits, with a limit of the rate beside that of concurrency, for a load of `rate_per_s` jobs; unchanged where the
        format counts rates in windows of its own."""
        per_ms = round(RATE_JOBS * len(JOB_NAMES) * 1000 / (RATE_ROOM * rate_per_s))
        rate = {} if self.own_rates else {"rate": RATE_JOBS, "per_ms": per_ms}
        return tuple({**rate, **limit} if limit.get("name") == RATED else limit for limit in limits)

    def features(self) -> dict[str, Any]:
        """The features that the load uses, as fields of a run's spec."""
        # Only Lanes has limits of keys: in other models leases do not count against the key of a job.
        limits = [one for one in LIMITS if "key" not in one or self.options is None] if self.operation("SetLimit") else []
        scheduled = self.operation("PutSchedule") and self.operation("Tick")
        return {
            "limits": tuple(limits),
            "unique_keys": self.option("unique"),
            "schedules": SCHEDULES if scheduled else (),
            "dependencies": self.option("needs"),
            "routing": self.option("target"),
            "findings": self.findings,
            "results": True,
        }


def carried(model: str) -> Carried:
    """The features of a model. Raises ModelMissing."""
    if model == LANES:
        return Carried()
    with queue(model, "any", url="redis://127.0.0.1:1") as unconnected:
        bound: Any = unconnected.model
    return Carried(
        bound.OPTIONS,
        tuple(operation.__name__ for operation in bound.LACKS),
        tuple({**asdict(finding), "procs": [FOREIGN]} for finding in bound.FINDINGS),
        texts_only=not _holds(bound, _NESTED),
        own_rates=model in OWN_RATES,
    )


def _holds(bound: Any, payload: bytes) -> bool:
    try:
        bound.check("any", "any", payload, Options())
    except engine.EngineError:
        return False
    return True
