"""The settings of a worker: their types, bounds, defaults and meaning in one table, checked in one place and
before any I/O.

A setting is a row of `WorkerSettings`. What a run reads is a field of the same name in `Settings`, at the
end. The signatures, the flags of `ironclaim worker` and the reference follow from the rows.
`tests/engine/test_worker_settings.py` walks the table and tries every bound from both sides. Pure code, a
part of the state machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, TypedDict, get_args

from engine import routing, validate
from engine.errors import Malformed
from engine.ops.base import immutable
from engine.ops.claims import NOTHING_SPECIAL, Attributes
from engine.options import Checked, Choice, Default, Duration, Flag, Whole
from engine.routing import DEFAULT_ROUTE
from engine.validate import CONCURRENCY_MAX, Milliseconds
from engine.worker.machine.concurrency import WEIGHT_MAX, Strategy

#: Asked before a claim: False or 0 = nothing now, True = anything, a number = at most so many jobs.
Gate = Callable[[], "bool | int"]
#: Child processes of one worker.
PROCESSES_MAX = 64
_DAY_MS = 86_400_000
#: Allowed beside every lease: a caller who gives a short lease alone has not asked for it.
SWEEP_MS = 1000
#: Bounds of `max_jobs` and `max_memory_mb`: a machine with more memory than that is not known yet.
JOBS_MAX = 2**48
_MEMORY_MB_MAX = 2**24


def _name(_: str, value: object) -> str:
    # One that nobody gives is made up where the worker is.
    if value is None or (type(value) is str and not value):
        return ""
    return validate.worker_name(value)


def _attributes(_: str, value: object) -> dict[str, Any]:
    return validate.attributes(value)


def _gate(name: str, value: object) -> object:
    if value is not None and not callable(value):
        raise Malformed(name, value, "a function without arguments that returns True, False or a number")
    return value


def _weights(name: str, value: object) -> list[int] | None:
    if value is None:
        return None
    return validate.integers(name, validate.items(name, value, "whole numbers"), 1, WEIGHT_MAX)


class WorkerSettings(TypedDict, total=False):
    """What may be said of a worker, each setting with its bound, `Whole(least, most)` or what checks it, and
    its default."""

    name: Annotated[str, Checked(_name), Default("")]
    """Its name, for people and for targets of jobs; worker-HOST-PID unless given."""
    concurrency: Annotated[int, Whole(1, CONCURRENCY_MAX), Default(8)]
    """Handlers at once, of all queues together. Inline ones run beside them. With `processes` it is left out,
    for these say how many."""
    prefetch: Annotated[int, Whole(0, CONCURRENCY_MAX), Default(128)]
    """Most jobs leased ahead of the handlers; 0 = none, as with several queues unless given. A worker leases
    ahead what its handlers work off in 50 ms by their measured time."""
    lease_ms: Annotated[Milliseconds, Duration(100, _DAY_MS), Default(9000)]
    """How long a job stays leased without a renewal."""
    sweep_ms: Annotated[Milliseconds, Duration(10, _DAY_MS), Default(SWEEP_MS)]
    """Longest time between two sweeps; more than a quarter of the lease is brought down to that, more than
    the lease is refused. The worker that leads its queue sweeps for all."""
    grace_ms: Annotated[Milliseconds, Duration(0, _DAY_MS), Default(30_000)]
    """How long a stop waits for handlers."""
    processes: Annotated[int, Whole(0, PROCESSES_MAX), Default(0)]
    """Run plain handlers in this many child processes, one each; as many jobs run at once, async ones
    counted. It is for handlers that keep the interpreter lock for long. A child finds a handler by its module
    and name; one that dies is a failed run."""
    child_max_jobs: Annotated[int, Whole(0, JOBS_MAX), Default(0)]
    """Replace a child process after so many jobs; 0 = never."""
    max_jobs: Annotated[int, Whole(0, JOBS_MAX), Default(0)]
    """End after so many jobs, to be started anew (exit code 75); 0 = never. It stops gracefully, and `run`
    returns "recycled"."""
    max_memory_mb: Annotated[int, Whole(0, _MEMORY_MB_MAX), Default(0)]
    """The same when the process holds more than so many megabytes; 0 = never."""
    beat_ms: Annotated[Milliseconds, Duration(0, 3_600_000), Default(10_000)]
    """How often it says that it lives. When three beats in a row have not come, other workers reap its
    leases without waiting for their end, unless it has renewed them. Handlers that hold the interpreter lock
    for longer want longer beats. With 0 it is not listed in `queue.workers`."""
    presence: Annotated[bool, Flag(), Default(True)]
    """Whether others notice by its closed connection that it was killed. They look once a second, and reap
    its leases when its control connection is gone at two looks in a row (rule 39). Without it the worker
    looks after no other, and its leases are reaped when they run out."""
    attributes: Annotated[Mapping[str, Any] | None, Checked(_attributes), Default(None)]
    """What `queue.workers` shows of it beside: JSON of at most 4 KiB."""
    names: Annotated[Iterable[str] | None, Default(None)]
    """Of the names with handlers only these; all of them unless given."""
    priorities: Annotated[tuple[int, int] | None, Checked(routing.priority_range), Default(None)]
    """Only jobs of these priorities: the least and the greatest."""
    routes: Annotated[Iterable[str], Checked(routing.routes), Default((DEFAULT_ROUTE,))]
    """Routing keys whose jobs it takes; a job without one has the key `default`."""
    stack: Annotated[str | None, Checked(routing.text_or_none), Default(None)]
    """Its stack, for targets of jobs (rule 18)."""
    capabilities: Annotated[Iterable[str], Checked(routing.values), Default(())]
    """Its capabilities, for targets of jobs."""
    region: Annotated[str | None, Checked(routing.text_or_none), Default(None)]
    """Its region, for targets of jobs."""
    gate: Annotated[Gate | None, Checked(_gate), Default(None)]
    """What is asked before a claim. It must be quick, because other decisions wait for it. False = claim
    nothing now, True = as ever, a number = at most so many jobs. A closed one is asked again after 200 ms."""


class GroupSettings(WorkerSettings, total=False):
    """What may be said of a group of workers: the settings of each, and how they share their places."""

    strategy: Annotated[Strategy, Choice(get_args(Strategy)), Default("strict")]
    """Which of several queues is claimed next; strict = in their order. `weighted` shares in proportion to
    `weights` while several have work; `shuffle` lets chance decide each time."""
    weights: Annotated[Sequence[int] | None, Checked(_weights), Default(None)]
    """Of several queues, in their order, 1 to 1,000 each; the strategy is then weighted."""


@immutable
class Settings:
    """A worker's configuration, checked by `Worker`; `WorkerSettings` says what a setting means.
    `classes`: the names that it has handlers for; `attributes` decide which of their jobs it may run.
    `routes_at_claim`: the model looks at the routing of each job itself.

    `concurrency` handlers run at once, and beside them one of the `inline` names, whose jobs run one after
    the other in one thread. With a concurrency of 0 all jobs are inline. The handlers of `stoppable` names
    end soon after they were told to, and those of `spawned` ones run in child processes.

    `batches` names the handlers that take several jobs of a lane at once, and how many at most.

    With `burst` the worker stops when nothing is left to run; `delayed`: nor anything to come.

    `sweep_ms` is at most a quarter of the lease. The time between two sweeps shows that a server stood still,
    and half a lease must be longer than what passes anyway (rule 11).

    With `beat_ms` the worker is listed, and tells so often that it lives, with `about` itself for people;
    with 0 it is not. In one of many shards it beats so many times more rarely, `idle_beats`, while it has
    nothing in hand there, unless it watches.
    """

    name: str
    concurrency: int
    prefetch: int
    lease_ms: int
    sweep_ms: int
    grace_ms: int
    classes: tuple[str, ...]
    burst: bool = False
    delayed: bool = True
    inline: frozenset[str] = frozenset()
    stoppable: frozenset[str] = frozenset()
    spawned: frozenset[str] = frozenset()
    batches: Mapping[str, int] = field(default_factory=dict[str, int])
    processes: int = 0
    child_max_jobs: int = 0
    max_jobs: int = 0
    max_memory_mb: int = 0
    beat_ms: int = 0
    presence: bool = True
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    attributes: Attributes = NOTHING_SPECIAL
    priorities: tuple[int, int] | None = None
    routes_at_claim: bool = False
    idle_beats: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "sweep_ms", min(self.sweep_ms, self.lease_ms // 4))

    @property
    def places(self) -> int:
        """Handlers that may run at once."""
        return self.concurrency + (1 if self.inline or not self.concurrency else 0)
