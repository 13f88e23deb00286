"""What an episode is made of: how many processes, which jobs, which faults and how often. Rates are per place where the fault may
strike: a message, an event of a process, a delivery at the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Nothing on the network is sure: lost, late, doubled, and connections that break.
NETWORK = {
    "lose request": 0.01,
    "lose reply": 0.02,
    "late request": 0.015,
    "late reply": 0.01,
    "copy": 0.03,
    "break": 0.01,
}
PROCESS = {"kill": 0.002, "freeze": 0.003, "cut off": 0.001}
SERVER = {"stall": 0.001}


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of episode. `jobs` come over `chaos_ms`; shares are of the jobs."""

    name: str
    workers: int = 2
    concurrency: int = 2
    prefetch: int = 4
    lease_ms: int = 9000
    sweep_ms: int = 1000
    jobs: int = 14
    chaos_ms: int = 25_000
    network: Mapping[str, float] = field(default_factory=lambda: NETWORK)
    #: How late a message or a copy may come. A tombstone outlives all but those that come half a minute late.
    late_ms_most: int = 30_000
    process: Mapping[str, float] = field(default_factory=lambda: PROCESS)
    server: Mapping[str, float] = field(default_factory=lambda: SERVER)
    poison: float = 0.05
    failing: float = 0.15
    delayed: float = 0.25
    again: float = 0.15
    bulk: float = 0.25
    bulk_most: int = 5
    handler_ms: tuple[float, float] = (2, 3000)
    big: float = 0.0
    corrupt: float = 0.0
    full_queue: bool = False
    stops: float = 0.1
    #: Names of jobs; those that run inline; keys, unique and dedup keys that some jobs have; calls that pause and limit.
    names: tuple[str, ...] = ("mail",)
    inline: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    keyed: float = 0.0
    unique: float = 0.0
    dedup: float = 0.0
    limits: int = 0
    rated: bool = False
    pauses: int = 0
    #: Calls that put, change and remove schedules; jobs that need others; calls that do something to a job by hand; handlers that
    #: return something.
    schedules: int = 0
    kin: float = 0.0
    hands: int = 0
    returns: float = 0.3

    @property
    def exact(self) -> bool:
        """Whether each script runs as a whole: one that is cut off may leave an index entry too many, never a job without one."""
        return "cut script" not in self.server

    @property
    def clock_runs(self) -> bool:
        """Whether the server's clock only ever runs forward at its pace."""
        return not {"clock back", "clock forward"} & set(self.server)


_QUIET: dict[str, float] = {}

_NAMES = ("mail", "print")


def _limited(name: str, *, jobs: int = 24, limits: int = 5, **more: Any) -> Profile:
    return Profile(name, names=_NAMES, keys=("a", "b"), keyed=0.7, jobs=jobs, limits=limits, **more)


PROFILES = (
    Profile("everything"),
    Profile("network", process=_QUIET, server=_QUIET, jobs=18),
    Profile("crashes", workers=3, network={"copy": 0.02, "late request": 0.01}, process={"kill": 0.004, "freeze": 0.002}),
    Profile("poison", concurrency=3, prefetch=8, network={"copy": 0.01}, process=_QUIET, server=_QUIET, poison=0.35, jobs=12),
    Profile("poison and kills", concurrency=1, network=_QUIET, process={"kill": 0.03}, server=_QUIET, poison=0.3, jobs=16),
    Profile(
        "stalls",
        workers=3,
        network=_QUIET,
        process=_QUIET,
        server={"stall": 0.008},
        poison=0.0,
        handler_ms=(2000, 12_000),
        chaos_ms=50_000,
    ),
    Profile("cut off", network=_QUIET, process={"cut off": 0.01}, server=_QUIET, jobs=20, handler_ms=(2, 9000)),
    Profile("clock", server={"clock back": 0.002, "clock forward": 0.0015, "stall": 0.0005}, poison=0.0),
    Profile(
        "clock and kills",
        network=_QUIET,
        process={"kill": 0.015},
        server={"clock back": 0.01, "clock forward": 0.01, "stall": 0.003},
        handler_ms=(500, 9000),
        poison=0.0,
    ),
    Profile("failover", server={"failover": 0.004}, network={"copy": 0.02, "late request": 0.02, "lose reply": 0.02}),
    Profile("frozen", workers=3, process={"freeze": 0.008, "kill": 0.001}, handler_ms=(200, 9000)),
    Profile(
        "often frozen",
        workers=3,
        lease_ms=2000,
        sweep_ms=400,
        process={"freeze": 0.03},
        network=_QUIET,
        jobs=40,
        handler_ms=(1, 1500),
    ),
    Profile("short lease", lease_ms=1500, sweep_ms=300, workers=3, handler_ms=(1, 2500)),
    Profile("memory", network={"copy": 0.01}, process=_QUIET, server={"memory": 0.004}, handler_ms=(500, 9000), poison=0.0),
    Profile(
        "cut scripts",
        server={"cut script": 0.05},
        network={"copy": 0.02},
        process={"kill": 0.002},
        poison=0.0,
        failing=0.5,
        again=0.25,
    ),
    Profile(
        "late copies",
        network={"copy": 0.12, "late request": 0.05},
        late_ms_most=60_000,
        process={"kill": 0.002},
        server=_QUIET,
        again=0.4,
    ),
    Profile(
        "late enqueues",
        network={"late request": 0.5},
        late_ms_most=60_000,
        process=_QUIET,
        server=_QUIET,
        jobs=40,
        bulk=0.0,
        handler_ms=(1, 500),
    ),
    Profile(
        "dead letters",
        lease_ms=3000,
        sweep_ms=500,
        workers=3,
        network={"late request": 0.12, "lose reply": 0.03},
        process={"kill": 0.02},
        server=_QUIET,
        jobs=20,
        handler_ms=(200, 9000),
    ),
    Profile("corrupt", network=_QUIET, process=_QUIET, server=_QUIET, corrupt=0.4, jobs=24, handler_ms=(50, 3000)),
    Profile("big", network=_QUIET, process=_QUIET, server=_QUIET, big=0.8, jobs=24, bulk=0.9, concurrency=12, chaos_ms=4000),
    Profile("calm", network=_QUIET, process=_QUIET, server=_QUIET, workers=3, jobs=40, poison=0.0, handler_ms=(1, 4000)),
    Profile(
        "quick", network=_QUIET, process=_QUIET, server=_QUIET, jobs=80, bulk=0.7, prefetch=16, poison=0.0, handler_ms=(0.2, 800)
    ),
    Profile(
        "slow and quick",
        network=_QUIET,
        process=_QUIET,
        server=_QUIET,
        jobs=100,
        bulk=0.9,
        prefetch=16,
        poison=0.0,
        handler_ms=(0.5, 5000),
    ),
    Profile("classes", names=tuple(f"n{number}" for number in range(20)), workers=3, jobs=50),
    Profile("inline", names=("mail", "print"), inline=("print",), jobs=40, handler_ms=(0.3, 1500)),
    Profile(
        "lanes",
        network=_QUIET,
        process=_QUIET,
        server=_QUIET,
        names=_NAMES,
        keys=("a", "b", "c"),
        keyed=0.9,
        workers=1,
        concurrency=14,
        prefetch=20,
        jobs=120,
        bulk=0.9,
        bulk_most=40,
        delayed=0.05,
        again=0.02,
        chaos_ms=2000,
        handler_ms=(1, 150),
        poison=0.0,
    ),
    Profile("lanes in trouble", names=_NAMES, keys=("a", "b", "c"), keyed=0.8, jobs=40, bulk=0.6),
    _limited("limits", network={"copy": 0.03}, process=_QUIET, server=_QUIET, jobs=40, handler_ms=(50, 8000)),
    _limited("limits and kills", process={"kill": 0.01, "freeze": 0.003}, handler_ms=(50, 4000)),
    _limited("limits and failover", pauses=3, server={"failover": 0.004}, handler_ms=(50, 4000)),
    _limited("limits and clock", pauses=3, server={"clock back": 0.003, "clock forward": 0.002}, poison=0.0),
    _limited(
        "rates",
        rated=True,
        network={"copy": 0.05},
        process={"freeze": 0.003},
        server=_QUIET,
        jobs=60,
        bulk=0.7,
        prefetch=12,
        stops=0.6,
        handler_ms=(0.5, 3000),
    ),
    _limited("cut limits", unique=0.3, server={"cut script": 0.03}, network=_QUIET, process={"kill": 0.002}, poison=0.0),
    Profile("pauses", names=_NAMES, pauses=5, limits=2, jobs=24, server=_QUIET),
    Profile(
        "unique",
        network={"copy": 0.03, "lose reply": 0.03},
        process={"kill": 0.002},
        server=_QUIET,
        unique=0.6,
        dedup=0.3,
        jobs=30,
        again=0.1,
    ),
    Profile(
        "unique and late",
        network={"copy": 0.25, "lose reply": 0.03},
        process=_QUIET,
        server=_QUIET,
        unique=0.7,
        jobs=40,
        again=0.0,
        handler_ms=(1, 500),
    ),
    Profile("schedules", schedules=6, workers=3, jobs=6, network=NETWORK | {"copy": 0.08}, process=_QUIET, server=_QUIET),
    Profile("schedules put anew", schedules=30, workers=1, jobs=4, network={"late request": 0.2, "copy": 0.05}, process=_QUIET),
    Profile(
        "kin",
        kin=0.7,
        jobs=24,
        poison=0.0,
        failing=0.3,
        bulk=0.1,
        again=0.05,
        process=_QUIET,
        server=_QUIET,
        handler_ms=(50, 4000),
    ),
    Profile(
        "by hand", hands=24, jobs=24, failing=0.4, delayed=0.4, network=NETWORK | {"copy": 0.2}, process=_QUIET, server=_QUIET
    ),
    Profile(
        "by hand and late",
        hands=40,
        jobs=16,
        network={"late request": 0.2, "copy": 0.2},
        late_ms_most=60_000,
        process=_QUIET,
        server=_QUIET,
    ),
    _limited("all in trouble", schedules=5, kin=0.4, hands=16, failing=0.3, unique=0.2, pauses=1, limits=3),
    _limited("all in failover", schedules=5, kin=0.4, hands=16, failing=0.3, server={"failover": 0.004}),
    _limited("all cut", schedules=5, kin=0.4, hands=16, failing=0.3, poison=0.0, network=_QUIET, server={"cut script": 0.04}),
    _limited(
        "all in odd times", schedules=5, kin=0.4, hands=16, poison=0.0, server={"clock back": 0.003, "clock forward": 0.002}
    ),
    Profile("full queue", network=_QUIET, process=_QUIET, server=_QUIET, jobs=8, chaos_ms=6000, full_queue=True),
)

BY_NAME = {profile.name: profile for profile in PROFILES}
