"""The runs with the original Bull: who sends, who works, who is killed, and what Bull is known not to protect."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from chaos.errors import HarnessError
from chaos.interop.load import Mix
from chaos.plan import Pace, Plan, PlannedFault
from engine.models.foreign import bull

#: How the names of processes begin that run the original client.
NODE = "node-"

#: For how long Bull locks a job; leases of the engine are as long in these runs, so that one bound holds for both.
LEASE_MS = 5_000

#: How often the engine's workers look for leases that have run out. Two looks, a second apart, precede the return of a job that
#: a Node worker has left behind.
SWEEP_MS = 200

#: By when a delayed job has started, in 99 of 100 cases, where workers are idle.
DELAYED_P99_MS = 100


@dataclass(frozen=True, slots=True)
class Mixture:
    """One run. Names of producers and workers that begin with `node-` run the original client, the others the engine."""

    name: str
    about: str
    producers: tuple[str, ...]
    workers: tuple[str, ...]
    mix: Mix
    pace: Pace
    #: Handlers at once of a Node worker.
    concurrency: int
    faults: tuple[PlannedFault, ...] = ()
    #: Bound of the lateness of delayed jobs at p99; 0 = none is demanded.
    delayed_p99_ms: int = 0

    def plan(self, seed: int) -> Plan:
        return Plan(seed, self.pace, self.faults)

    @property
    def findings(self) -> tuple[dict[str, Any], ...]:
        """What Bull's wire does not protect, wherever a worker of Bull takes part: its stalled check runs every few seconds, and
        needs no fault to go wrong but a busy machine."""
        return FINDINGS if any(worker.startswith(NODE) for worker in self.workers) else ()


ONE_WAY = Mix(rate_per_s=60)
CALM = Pace(lead_in_ms=0, delay_max_ms=0, calm_ms=0, settle_ms=6_000)

#: Bull puts jobs that are due forward when a timer of Node ends, which may be a little early.
EARLY_MS = 2

#: Of what Bull's wire cannot be protected from, that which these runs can show: nobody pauses, clocks agree, ids are numbers.
MAY_SHOW = ("unfenced ends", "pop before lock", "stalled check")
#: They excuse only what happened to jobs that a Node worker had in hand.
FINDINGS = tuple({**asdict(finding), "procs": [NODE]} for finding in bull.FINDINGS if finding.name in MAY_SHOW)


def one_way(name: str, about: str, producer: str, workers: tuple[str, ...]) -> Mixture:
    """One side sends and one side works; nobody is killed, and workers are idle in between."""
    return Mixture(name, about, (producer,), workers, ONE_WAY, CALM, concurrency=4, delayed_p99_ms=DELAYED_P99_MS)


SCENARIOS: tuple[Mixture, ...] = (
    one_way("node-to-engine", "Bull sends, the engine works", "node-producer-1", ("worker-1", "worker-2")),
    one_way("engine-to-node", "the engine sends, Bull works", "producer-1", ("node-worker-1", "node-worker-2")),
    Mixture(
        "mixed",
        "Bull and the engine send and work, and a worker of each is killed in mid-job",
        producers=("node-producer-1", "producer-1"),
        workers=("node-worker-1", "node-worker-2", "worker-1", "worker-2"),
        # A job wakes a Node worker at once, one of the engine at its next look: Bull has too few hands, so that both sides work.
        mix=Mix(rate_per_s=30, work_ms=(40, 120)),
        concurrency=2,
        pace=Pace(lead_in_ms=1_500, delay_max_ms=0, calm_ms=500, settle_ms=2_500),
        faults=(
            PlannedFault("1-worker-kill", "worker-kill", "node-worker-1", 0, "node-worker-3"),
            PlannedFault("2-worker-kill", "worker-kill", "worker-1", 0, "worker-3"),
        ),
    ),
    Mixture(
        "zombie",
        "both work, and a worker of Bull is frozen for longer than its locks last: its late ends ask for no lock",
        producers=("node-producer-1", "producer-1"),
        workers=("node-worker-1", "worker-1", "worker-2"),
        mix=Mix(rate_per_s=25, work_ms=(40, 120)),
        concurrency=4,
        pace=Pace(lead_in_ms=1_000, delay_max_ms=0, calm_ms=0, settle_ms=2_500),
        faults=(PlannedFault("1-foreign-freeze", "foreign-freeze", "node-worker-1", 0),),
    ),
)


def find(name: str) -> Mixture:
    """The scenario of that name. Raises HarnessError naming those that exist."""
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    raise HarnessError(f"scenario {name!r} does not exist; choose from {', '.join(one.name for one in SCENARIOS)}")
