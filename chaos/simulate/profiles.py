"""The kinds of episodes that a run plays in turn: first those that look at one kind of mishap each, then those that look at one
part of the engine."""

from __future__ import annotations

from chaos.simulate.profile import QUIET, Profile
from chaos.simulate.profiles_features import FEATURES

_MISHAPS = (
    Profile("everything"),
    Profile("network", process=QUIET, server=QUIET, jobs=18),
    Profile("crashes", workers=3, network={"copy": 0.02, "late request": 0.01}, process={"kill": 0.004, "freeze": 0.002}),
    Profile("poison", concurrency=3, prefetch=8, network={"copy": 0.01}, process=QUIET, server=QUIET, poison=0.35, jobs=12),
    Profile("poison and kills", concurrency=1, network=QUIET, process={"kill": 0.03}, server=QUIET, poison=0.3, jobs=16),
    Profile(
        "stalls",
        workers=3,
        network=QUIET,
        process=QUIET,
        server={"stall": 0.008},
        poison=0.0,
        handler_ms=(2000, 12_000),
        chaos_ms=50_000,
    ),
    Profile("cut off", network=QUIET, process={"cut off": 0.01}, server=QUIET, jobs=20, handler_ms=(2, 9000)),
    Profile("clock", server={"clock back": 0.002, "clock forward": 0.0015, "stall": 0.0005}, poison=0.0),
    Profile(
        "clock and kills",
        network=QUIET,
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
        network=QUIET,
        jobs=40,
        handler_ms=(1, 1500),
    ),
    Profile("short lease", lease_ms=1500, sweep_ms=300, workers=3, handler_ms=(1, 2500)),
    Profile("memory", network={"copy": 0.01}, process=QUIET, server={"memory": 0.012}, handler_ms=(500, 9000), poison=0.0),
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
        "cut retries",
        server={"cut script": 0.12},
        network=QUIET,
        process=QUIET,
        poison=0.0,
        failing=0.9,
        delayed=0.0,
        jobs=24,
        chaos_ms=8000,
        handler_ms=(1, 300),
    ),
    Profile(
        "late copies",
        network={"copy": 0.12, "late request": 0.05},
        late_ms_most=60_000,
        process={"kill": 0.002},
        server=QUIET,
        again=0.4,
    ),
    Profile(
        "late claims",
        network={"copy": 0.4},
        late_ms_most=4000,
        process=QUIET,
        server=QUIET,
        jobs=40,
        again=0.0,
        chaos_ms=10_000,
        handler_ms=(1, 300),
    ),
    Profile(
        "late enqueues",
        network={"late request": 0.5},
        late_ms_most=60_000,
        process=QUIET,
        server=QUIET,
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
        server=QUIET,
        jobs=20,
        handler_ms=(200, 9000),
    ),
    Profile("corrupt", network=QUIET, process=QUIET, server=QUIET, corrupt=0.4, jobs=24, handler_ms=(50, 3000)),
    Profile("big", network=QUIET, process=QUIET, server=QUIET, big=0.8, jobs=24, bulk=0.9, concurrency=12, chaos_ms=4000),
    Profile("calm", network=QUIET, process=QUIET, server=QUIET, workers=3, jobs=40, poison=0.0, handler_ms=(1, 4000)),
    Profile(
        "quick", network=QUIET, process=QUIET, server=QUIET, jobs=80, bulk=0.7, prefetch=16, poison=0.0, handler_ms=(0.2, 800)
    ),
    Profile(
        "slow and quick",
        network=QUIET,
        process=QUIET,
        server=QUIET,
        jobs=100,
        bulk=0.9,
        prefetch=16,
        poison=0.0,
        handler_ms=(0.5, 5000),
    ),
    Profile("full queue", network=QUIET, process=QUIET, server=QUIET, jobs=8, chaos_ms=6000, full_queue=True),
)

_AFTER = (
    # What the server that takes over knows is older by more, and its clock is another one.
    Profile(
        "failover and clock ahead",
        workers=3,
        jobs=24,
        server={"failover": 0.012},
        lost_most=60,
        takeover_clock_ms=(0, 1000),
        network={"copy": 0.06, "late request": 0.03, "lose reply": 0.03},
        process={"kill": 0.002},
        again=0.3,
        handler_ms=(2, 6000),
    ),
    # Outside the promise of rule 6: fences fall, and by no more than the clock has.
    Profile(
        "failover and clock behind",
        workers=3,
        jobs=24,
        server={"failover": 0.012},
        lost_most=60,
        takeover_clock_ms=(-2000, 0),
        network={"copy": 0.06, "late request": 0.03, "lose reply": 0.03},
        process={"kill": 0.002},
        handler_ms=(2, 6000),
    ),
)

PROFILES = (*_MISHAPS, *FEATURES, *_AFTER)
BY_NAME = {profile.name: profile for profile in PROFILES}
