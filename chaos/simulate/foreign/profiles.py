"""The kinds of episodes that the foreign models are played with in turn."""

from __future__ import annotations

from chaos.simulate.profile import QUIET, Profile

FOREIGN_PROFILES = (
    Profile("everything"),
    # Few jobs, most of them delayed, and idle workers: whoever is due is found at once.
    Profile("calm", network=QUIET, process=QUIET, server=QUIET, jobs=10, delayed=0.9, poison=0.0, handler_ms=(1, 200)),
    Profile("network", process=QUIET, server=QUIET, jobs=18),
    Profile("crashes", workers=3, network={"copy": 0.02, "late request": 0.01}, process={"kill": 0.004, "freeze": 0.002}),
    Profile("poison", network=QUIET, process=QUIET, server=QUIET, poison=0.35, jobs=10),
    Profile(
        "stalls",
        workers=3,
        network=QUIET,
        process=QUIET,
        server={"stall": 0.008},
        poison=0.0,
        handler_ms=(2000, 12_000),
        chaos_ms=40_000,
    ),
    Profile("clock", server={"clock back": 0.002, "clock forward": 0.0015, "stall": 0.0005}, poison=0.0),
    Profile(
        "clock and kills",
        network=QUIET,
        process={"kill": 0.012},
        server={"clock back": 0.008, "clock forward": 0.006, "stall": 0.001},
        handler_ms=(500, 9000),
        poison=0.0,
    ),
    Profile("frozen", workers=3, process={"freeze": 0.006, "kill": 0.001}, handler_ms=(200, 9000)),
    Profile(
        "often frozen",
        workers=3,
        lease_ms=2000,
        sweep_ms=400,
        process={"freeze": 0.03},
        network=QUIET,
        jobs=30,
        handler_ms=(1, 1500),
    ),
    Profile("short lease", lease_ms=1500, sweep_ms=300, workers=3, handler_ms=(1, 2500)),
    Profile("memory", network={"copy": 0.01}, process=QUIET, server={"memory": 0.006}, handler_ms=(500, 9000), poison=0.0),
    Profile(
        "late copies",
        network={"copy": 0.12, "late request": 0.05},
        process={"kill": 0.002},
        server=QUIET,
        again=0.4,
    ),
    Profile(
        "late enqueues", network={"late request": 0.4, "lose request": 0.3, "copy": 0.1}, process=QUIET, server=QUIET, jobs=24
    ),
    Profile(
        "dead letters",
        network={"late request": 0.25, "copy": 0.2},
        process={"kill": 0.02},
        server=QUIET,
        workers=3,
        jobs=24,
        poison=0.0,
        handler_ms=(500, 9000),
    ),
    Profile("late claims", network={"copy": 0.4}, process=QUIET, server=QUIET, workers=2, jobs=20),
    Profile("failures", network={"copy": 0.05, "lose reply": 0.03}, process=QUIET, server=QUIET, failing=0.9, poison=0.0),
    Profile(
        "cut scripts",
        server={"cut script": 0.03},
        network={"copy": 0.02},
        process={"kill": 0.002},
        poison=0.0,
        failing=0.5,
        again=0.25,
    ),
)
BY_NAME = {profile.name: profile for profile in FOREIGN_PROFILES}
#: What a run has to meet.
FOREIGN_EXPECTED = (
    *("enqueue created", "enqueue repeated", "enqueue duplicate", "enqueue refused"),
    *("claim leased", "claim empty", "claim repeated", "claim void", "claim stale"),
    *("finish ok", "finish repeated", "finish stale", "retry ok", "retry ok buried", "retry repeated"),
    *("release ok", "extend ok", "extend repeated", "extend stale", "mark ok"),
    *("reaped", "promoted", "crash buried", "cut off", "refused for memory"),
    *("producer told created", "producer told unavailable", "producer told duplicate"),
)
