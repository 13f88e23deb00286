"""What the driver knows about a run before it judges: the small, countable things. Everything that grows stays in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reports.file_facts import FileFacts

#: Nanoseconds in a millisecond.
MS = 1_000_000

#: The model of runs that are about channels, not about jobs.
CHANNELS = "dsps"

#: Faults that kill a process.
KILLS = ("worker-kill", "subscriber-kill")

#: How the names of workers begin that run inside Locust.
CONSUMER = "consumer-"

#: Roles of the processes that make the load.
LOAD = ("producer", "publisher")

#: Silence of a process is told with this resolution, in nanoseconds.
SLOT_NS = 250 * MS

#: Bounds of rule 37 at the default lease of 9 s, for a spec that does not say.
LEASE_MS = 9_000
SWEEP_MS = 1_000
RECOVERY_BOUND_MS = 11_000
LIVENESS_MS = 15_000

STATES = ("waiting", "delayed", "active", "dead", "done")


@dataclass(frozen=True, slots=True)
class Usage:
    """The part of one core that a process used between two samples of its CPU time, in monotonic ns."""

    start_ns: int
    end_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Process:
    """A manifest row: the process `name` writes `file`."""

    name: str
    role: str
    file: str
    t_ns: int = 0

    @property
    def in_locust(self) -> bool:
        """True for what runs inside Locust: producers or publishers, and the consumers beside them: workers or subscribers."""
        return self.role in LOAD or self.name.startswith(CONSUMER)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage (inject, witness, heal, healed) of a fault; t_ns is the instant it is about."""

    fault: str
    name: str
    stage: str
    target: str
    ok: bool
    detail: str
    t_ns: int
    #: Leases that the stage names, as `job fence/nonce`.
    leases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the run and its start in monotonic ns."""

    name: str
    t_ns: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Jobs that the load did not send, because it was too late for them; t_ns is when they should have been sent."""

    t_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A final snapshot: when, and per state the total that it states and the jobs that it lists."""

    t_ns: int
    srv_us: int
    states: Mapping[str, tuple[int, int]]

    def gaps(self) -> list[str]:
        """States that it lacks or lists in part. `done` may be listed in part: it is bounded, and only adds to what is known."""
        missing = [f"has no state {state}" for state in STATES if state not in self.states]
        partial = [
            f"lists {listed} of {total} jobs in state {state}"
            for state, (total, listed) in self.states.items()
            if listed != total and state != "done"
        ]
        return missing + partial


@dataclass(frozen=True, slots=True)
class Kill:
    """A witnessed kill: its instant lies between inject and witness (the return of waitpid), in monotonic ns."""

    fault: str
    target: str
    inject_ns: int
    witness_ns: int
    #: Leases that the harness saw in hand, as `job fence/nonce`.
    leases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """All small facts of one run."""

    spec: Mapping[str, Any]
    files: Mapping[str, FileFacts]
    processes: tuple[Process, ...] = ()
    stages: tuple[Stage, ...] = ()
    phases: tuple[Phase, ...] = ()
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    drops: tuple[Drop, ...] = ()
    boot_ids: frozenset[str] = frozenset()
    replids: frozenset[str] = frozenset()
    #: incarnation -> process that claimed under it.
    incarnations: Mapping[str, str] = field(default_factory=dict)
    #: Leases that claims asked for, in ms.
    leases_ms: frozenset[int] = frozenset()
    #: Process -> the CPU that it used, from the samples.
    cpu: Mapping[str, tuple[Usage, ...]] = field(default_factory=dict)

    @property
    def of_channels(self) -> bool:
        """True for a run that is about channels."""
        return of_channels(self.spec)

    @property
    def dropped(self) -> int:
        """Jobs that the load did not send."""
        return sum(drop.count for drop in self.drops)

    @property
    def killed(self) -> frozenset[str]:
        """Names of the processes that a kill was seen to hit."""
        return frozenset(kill.target for kill in self.kills)

    @property
    def kills(self) -> tuple[Kill, ...]:
        """Every kill whose witness was had."""
        found: list[Kill] = []
        for stage in self.stages:
            if stage.name in KILLS and stage.stage == "witness" and stage.ok:
                injects = [s.t_ns for s in self.stages if s.fault == stage.fault and s.stage == "inject"]
                found.append(Kill(stage.fault, stage.target, min([*injects, stage.t_ns]), stage.t_ns, stage.leases))
        return tuple(found)

    @property
    def last_heal_ns(self) -> int | None:
        """When the last fault was healed; without any, `liveness_ms` before the deadline snapshot."""
        heals = [stage.t_ns for stage in self.stages if stage.stage == "heal"]
        if heals:
            return max(heals)
        deadline = self.snapshots.get("deadline")
        return deadline.t_ns - self.liveness_ms * MS if deadline else None

    @property
    def live_workers(self) -> tuple[str, ...]:
        """Workers that opened their file, were not killed, and had not stopped when the last fault was healed."""
        heal_ns = self.last_heal_ns or 0
        alive: list[str] = []
        for process in self.processes:
            facts = self.files.get(process.file)
            if process.role != "worker" or process.name in self.killed or facts is None or facts.opened_ns is None:
                continue
            if facts.closed_ns is None or facts.closed_ns > heal_ns:
                alive.append(process.name)
        return tuple(alive)

    @property
    def watched_ns(self) -> int:
        """Until when what workers do not do is known: the deadline snapshot, or the end of the first worker that lived on."""
        closed = [self.files[p.file].closed_ns for p in self.processes if p.role == "worker" and p.name in self.live_workers]
        deadline = self.snapshots.get("deadline")
        return max(min((at for at in closed if at is not None), default=0), deadline.t_ns if deadline else 0)

    @property
    def unsure_claimers(self) -> tuple[str, ...]:
        """Processes that may hold leases of which the history says nothing: a claim of theirs has no known answer."""
        unsure = {file.name for file in self.files.values() if file.claims_unanswered}
        return tuple(process.name for process in self.processes if process.file in unsure)

    def files_of(self, process: str) -> list[FileFacts]:
        """The files of a process that are there, its sink included."""
        return [self.files[one.file] for one in self.processes if one.name == process and one.file in self.files]

    @property
    def plan(self) -> list[Mapping[str, Any]]:
        """The faults that the spec plans."""
        return list(self.spec.get("plan") or [])

    @property
    def lease_ms(self) -> int:
        return whole(self.spec, "lease_ms", LEASE_MS)

    @property
    def sweep_ms(self) -> int:
        return whole(self.spec, "sweep_ms", SWEEP_MS)

    @property
    def recovery_bound_ms(self) -> int:
        return whole(self.spec, "recovery_bound_ms", RECOVERY_BOUND_MS)

    @property
    def liveness_ms(self) -> int:
        return whole(self.spec, "liveness_ms", LIVENESS_MS)

    def has(self, flag: str) -> bool:
        """True when some file has seen it: created, leased or finished."""
        return any(getattr(facts, flag) for facts in self.files.values())


def of_channels(spec: Mapping[str, Any]) -> bool:
    """True for the spec of a run that is about channels."""
    return spec.get("model") == CHANNELS


def whole(spec: Mapping[str, Any], name: str, default: int) -> int:
    """A number of the spec, or the default where it has none."""
    value = spec.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
