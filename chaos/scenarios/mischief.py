"""`run mischief`: for each old format a run in which a foreign client meddles with the queue."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field, replace

from bench.models import FOREIGN
from chaos import campaign, rows, runs
from chaos.drill import Drill
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.mischief.clients import CLIENTS, LOCK_MS
from chaos.mutants import Mutant
from chaos.plan import Pace, Plan
from chaos.processes import Child, Crew
from chaos.scenarios.bench import Jobs, features
from chaos.spec import RunSpec

PACE = Pace(lead_in_ms=2_000, delay_max_ms=0, calm_ms=0, settle_ms=15_000)
SWEEP_MS, LIVENESS_SLACK_MS = 250, 9_000

#: The defects that these runs must catch, by the format whose run it is.
MUTANTS = {
    "bananas": Mutant(
        "written-back-runs-again", "a completed job that a slow foreign promotion has written back as pending runs again", "J6"
    ).by("written-back-has-run", "local ended_ms = nil")
}


@dataclass
class MeddledCrew(Crew):
    """The children of a run, and the client that meddles."""

    def start_client(self, name: str) -> Child:
        """Announce the foreign client in the manifest, then start it."""
        history, sink = f"{name}.jsonl", f"{name}.sink.jsonl"
        self.manifest.append([rows.process("worker", name, history), rows.process("sink", name, sink)])
        spec = self.spec
        words = [name, self.connect(name), spec.model, spec.queue, str(spec.seed), self.history / history, self.history / sink]
        return self._start(name, "producer", [sys.executable, "-m", "chaos.mischief.client", *map(str, words)], {})


@dataclass
class MischiefDrill(Drill):
    """A run of jobs with a foreign client in it."""

    crew_of = MeddledCrew
    _crew: MeddledCrew = field(init=False, repr=False)

    def _begin_load(self) -> None:
        super()._begin_load()
        self._crew.start_client(CLIENT)

    def _end_load(self) -> None:
        self.errors += self._crew.stop([CLIENT])
        super()._end_load()


class Mischief(Jobs):
    """A run of jobs with a foreign client in it."""

    DRILL = MischiefDrill

    def about(self, spec: RunSpec) -> str:
        return f"a foreign client of {spec.model} meddles with {spec.rate_per_s} jobs/s, seed {spec.seed}"


def mischief(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Carry out the run of each format that was asked for. Returns the worst exit code.

    Raises HarnessError and ServerMissing when a run cannot begin.
    """
    asked = (arguments.model,) if arguments.model else tuple(CLIENTS)
    if unknown := [name for name in asked if name not in CLIENTS]:
        raise HarnessError(f"model {unknown[0]!r} has no foreign client; choose from {', '.join(CLIENTS)}")
    mutant = None
    if arguments.mutant:
        mutant = next((MUTANTS[name] for name in asked if name in MUTANTS and MUTANTS[name].name == arguments.mutant), None)
        if mutant is None or len(asked) > 1:
            known = ", ".join(f"{one.name} of {model}" for model, one in MUTANTS.items())
            raise HarnessError(f"mutant {arguments.mutant!r} does not exist for this model; choose from {known}")
    return campaign.worst_of((of_model(model, arguments.seed, mutant) for model in asked), arguments, interrupts)


def of_model(model: str, seed: int, mutant: Mutant | None = None) -> Mischief:
    """The run of one format."""
    planted = mutant.name if mutant else ""
    spec = RunSpec(
        id=runs.run_id("mischief", seed, "-".join(filter(None, (model, planted))), time.time()),
        seed=seed,
        mutant=planted,
        scenario="mischief",
        model=model,
        lease_ms=LOCK_MS,
        sweep_ms=SWEEP_MS,
        liveness_slack_ms=LIVENESS_SLACK_MS,
    )
    # A foreign client knows neither limits nor unique keys of the engine.
    spec = replace(spec, **{**features(model), "limits": (), "unique_keys": False, "results": False})
    return Mischief(spec=spec, plan=Plan(seed, PACE, ()), mutant=mutant)


#: The client's process. Declared findings cover jobs that it had in hand.
CLIENT = f"{FOREIGN}client-1"
