"""What a run of a service is, beside what every run of jobs is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chaos.spec import RunSpec

SCENARIO = "service"

#: What at-least-once may cost a service that does not keep its effects apart: shown as declared, never as violated.
AT_LEAST_ONCE: dict[str, Any] = {
    "name": "at-least-once",
    "checks": ["J25:effect again"],
    "text": "a run that was cut off, or whose lease was lost, is run again, and takes effect again unless it uses effects.once",
}


@dataclass(frozen=True, slots=True)
class ServiceSpec(RunSpec):
    """A run of a service. What its workers have configured is known once they work."""

    #: The leases that its workers ask for, where they differ; `lease_ms` is the longest.
    leases_ms: tuple[int, ...] = ()
    #: The service tells how often each job took effect.
    effects: bool = False
    #: Names of jobs that have no effect which the service counts.
    without_effects: tuple[str, ...] = ()
    #: Processes that ended by themselves, or that would not stop: `name`, `how`, and `t_ns` of the monotonic clock. Handlers of a
    #: service may crash or hang, which is no error of the run.
    ended: tuple[dict[str, Any], ...] = ()
    #: Why jobs might rightly wait when a snapshot was taken, by its name: handlers of the service had all places, which may take
    #: as long as they do. And the workers of which each place was taken at the deadline.
    full: dict[str, str] = field(default_factory=dict)
    busy: tuple[str, ...] = ()
