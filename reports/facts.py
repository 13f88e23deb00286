"""The small facts of a run that the driver keeps in memory. Data that grows with the run stays in Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reports.file_facts import FileFacts
from reports.hosts import Host

#: Nanoseconds in a millisecond.
MS = 1_000_000

#: A script takes the server's time once; the reply may carry it rounded, so a lease may seem to be so much too long.
ROUNDING_MS = 1

#: The model of runs that are about channels, not about jobs.
CHANNELS = "dsps"

#: The engine's own format, of which a run is whose spec names no model.
LANES = "lanes"

#: Faults that kill a worker, those that stop one while it holds leases, and those that kill any process.
WORKER_KILLS = ("worker-kill", "worker-oom")
WORKER_FAULTS = (*WORKER_KILLS, "worker-freeze")
KILLS = (*WORKER_KILLS, "subscriber-kill")

#: How a process was connected to the server: by a socket of its own, by which others see that it lives, or through a proxy.
DIRECT, PROXIED = "direct", "proxied"
WAYS = {DIRECT: "directly", PROXIED: "through a proxy"}

#: Name prefix of the workers that run inside Locust.
CONSUMER = "consumer-"

#: Roles of the processes that generate the load.
LOAD = ("producer", "publisher")

#: Length in ns of the time slots in which the judge records whether a process was active.
SLOT_NS = 250 * MS

#: Defaults of the spec's bounds of rule 37, in ms, for the default lease of 9 s.
LEASE_MS = 9_000
SWEEP_MS = 1_000
RECOVERY_BOUND_MS = 11_000
LIVENESS_MS = 15_000

STATES = ("waiting", "delayed", "active", "dead", "done")


def finding_name(fault: str) -> str:
    """The name under which what a kind of fault lost is listed among the declared findings."""
    return f"loss by {fault}"


@dataclass(frozen=True, slots=True)
class Usage:
    """The part of one core that a process used between two samples of its CPU time, in monotonic ns. `waited`: for how long its
    threads together had work and no core, likewise as a part of that time; 0 where it was not counted."""

    start_ns: int
    end_ns: int
    share: float
    waited: float = 0.0

    @property
    def took_s(self) -> float:
        """The time between the samples."""
        return (self.end_ns - self.start_ns) / (1_000 * MS)


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
    """One stage (inject, witness, heal, healed) of a fault; t_ns is when it happened, in monotonic ns."""

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
class ClockLook:
    """A look at the clocks at t_ns: by how many ns the server's was ahead of the monotonic one; None when it did not answer."""

    t_ns: int
    ahead_ns: int | None


@dataclass(frozen=True, slots=True)
class Drop:
    """Jobs that the load generator dropped because they were overdue; t_ns is when they should have been sent."""

    t_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A final snapshot: its time, and per state the total that it states and the number of jobs that it lists."""

    t_ns: int
    srv_us: int
    states: Mapping[str, tuple[int, int]]

    def gaps(self) -> list[str]:
        """States that are missing or listed incompletely. `done` may be incomplete: its list is bounded, and checks only use
        the jobs that it does list."""
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
    #: Leases that the harness saw the process hold, as `job fence/nonce`.
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
    #: The harness's looks at the clocks, once a second.
    clocks: tuple[ClockLook, ...] = ()
    #: The hosts that its processes ran on, the harness's first.
    hosts: tuple[Host, ...] = ()
    replids: frozenset[str] = frozenset()
    #: incarnation -> process that claimed under it.
    incarnations: Mapping[str, str] = field(default_factory=dict)
    #: Lease durations that claims asked for, in ms.
    leases_ms: frozenset[int] = frozenset()
    #: A process, and what it said of its configuration, once for each time.
    configured: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    #: Process -> its CPU usage, from the samples.
    cpu: Mapping[str, tuple[Usage, ...]] = field(default_factory=dict)

    @property
    def of_channels(self) -> bool:
        """True for a run that is about channels."""
        return of_channels(self.spec)

    @property
    def of_lanes(self) -> bool:
        """True for a run in the engine's own format."""
        return self.spec.get("model", LANES) == LANES

    @property
    def version(self) -> int:
        """The oldest schema version of its files."""
        return min((file.version_max for file in self.files.values() if file.version_max), default=0)

    @property
    def of_service(self) -> bool:
        """True for the drill of a service, whose handlers are its own and write to no sink."""
        return self.spec.get("scenario") == "service"

    @property
    def dropped(self) -> int:
        """Number of jobs that the load did not send."""
        return sum(drop.count for drop in self.drops)

    @property
    def killed(self) -> frozenset[str]:
        """Names of the processes whose kill was witnessed, and of those of a service that ended by themselves."""
        return frozenset(kill.target for kill in self.kills) | self.ended.keys()

    @property
    def ended(self) -> Mapping[str, int]:
        """Processes of a service that ended by themselves or would not stop, and when that was seen, in monotonic ns."""
        return {str(one["name"]): int(one["t_ns"]) for one in self.spec.get("ended") or ()}

    def full(self, *snapshots: str) -> str:
        """Why jobs of a service might rightly wait when one of these snapshots was taken; empty where nothing was full."""
        told: Mapping[str, str] = self.spec.get("full") or {}
        return next((str(told[name]) for name in snapshots if told.get(name)), "")

    @property
    def busy(self) -> frozenset[str]:
        """Workers of a service that had no free place at the deadline."""
        return frozenset(map(str, self.spec.get("busy") or ()))

    @property
    def choosy(self) -> frozenset[str]:
        """Workers that claim jobs of some priorities only, also from behind better ones."""
        return frozenset(name for name, told in self.configured if told.get("priorities"))

    def names_of(self, worker: str) -> frozenset[str]:
        """The names of jobs that a worker claims; none where it has not said so."""
        # A class is a job name, followed by the worker properties that the job requires.
        classes = (one for name, told in self.configured if name == worker for one in told.get("classes") or ())
        return frozenset(re.split("[@~]", str(one))[0] for one in classes)

    @property
    def alive_until_ns(self) -> Mapping[str, int]:
        """Until when each process has certainly lived: until it closed its history, or was about to be killed."""
        ends = [(one.name, self.files[one.file].closed_ns) for one in self.processes if one.file in self.files]
        ends += [(kill.target, kill.inject_ns) for kill in self.kills]
        # When it was seen to be gone it had not lived for a while, maybe.
        ends += [(name, last_ns) for name in self.ended for last_ns in self._last_rows_ns(name)]
        return dict(sorted((name, at_ns) for name, at_ns in ends if at_ns is not None))

    @property
    def kills(self) -> tuple[Kill, ...]:
        """Every witnessed kill."""
        found: list[Kill] = []
        for stage in self.stages:
            if stage.name in KILLS and stage.stage == "witness" and stage.ok:
                injects = [s.t_ns for s in self.stages if s.fault == stage.fault and s.stage == "inject"]
                found.append(Kill(stage.fault, stage.target, min([*injects, stage.t_ns]), stage.t_ns, stage.leases))
        return tuple(found)

    @property
    def last_heal_ns(self) -> int | None:
        """When the last fault was healed; without faults, `liveness_ms` before the deadline snapshot."""
        heals = [stage.t_ns for stage in self.stages if stage.stage == "heal"]
        if heals:
            return max(heals)
        deadline = self.snapshots.get("deadline")
        return deadline.t_ns - self.liveness_ms * MS if deadline else None

    @property
    def live_workers(self) -> tuple[str, ...]:
        """Workers that opened their history file, were not killed, and were still running when the last fault was healed."""
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
        """End of the time for which missing rows of workers prove inactivity: the later of the deadline snapshot and the first
        close of a live worker's file."""
        closed = [self.files[p.file].closed_ns for p in self.processes if p.role == "worker" and p.name in self.live_workers]
        deadline = self.snapshots.get("deadline")
        return max(min((at for at in closed if at is not None), default=0), deadline.t_ns if deadline else 0)

    def watched_after(self, at_ns: int) -> bool:
        """True when the run went on for the recovery bound after an instant."""
        return self.watched_ns >= at_ns + self.recovery_bound_ms * MS

    @property
    def unsure_claimers(self) -> tuple[str, ...]:
        """Processes with an unanswered claim: they may hold leases that the history does not show."""
        unsure = {file.name for file in self.files.values() if file.claims_unanswered}
        return tuple(process.name for process in self.processes if process.file in unsure)

    def _last_rows_ns(self, process: str) -> list[int]:
        return [file.last_ns for file in self.files_of(process) if file.last_ns is not None]

    def files_of(self, process: str) -> list[FileFacts]:
        """The existing history files of a process, its sink included."""
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

    def connected(self, process: str) -> str:
        """How a process was connected to the server, DIRECT or PROXIED; empty where the spec does not say it."""
        named = self.spec.get("direct")
        return "" if named is None else DIRECT if process in named else PROXIED

    def has(self, flag: str) -> bool:
        """True when some file has this flag of `FileFacts`, such as created, leased or finished."""
        return any(getattr(facts, flag) for facts in self.files.values())


def of_channels(spec: Mapping[str, Any]) -> bool:
    """True for the spec of a run that is about channels."""
    return spec.get("model") == CHANNELS


def whole(spec: Mapping[str, Any], name: str, default: int) -> int:
    """A number of the spec, or the default where it has none."""
    value = spec.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


# The latency series and percentiles of a run: their names, and how many samples a percentile needs.


#: Latency series of job runs; `reports.measure` says what each is. Those of channel runs are the groups of their spec.
SERIES = ("service", "intended", "queue_delay", "end_to_end")

#: Name -> rank in thousandths, as integers, so that the number of samples above it is exact.
RANKS = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p99_9_ms": 999, "max_ms": 1_000}

#: A percentile with fewer samples above it than this is not reported.
TAIL_MIN = 10

#: The name of all phases together.
ALL = "all"


def samples_min(name: str) -> int:
    """The number of samples from which on a percentile is reported; the maximum always is."""
    return -(-TAIL_MIN * 1_000 // (1_000 - RANKS[name])) if RANKS[name] < 1_000 else 0
