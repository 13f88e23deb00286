"""SIGKILL of the harness at ten seeded moments, and in every topology: no process of the run outlives it, and what was written
can be judged."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from chaos import plan, topologies
from chaos.processes import ROOT, child_environment
from chaos.targets.faults import is_gone
from record.history import load_file
from tests.engine.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

SEED, MOMENTS = 4, 10

#: So many harnesses run beside each other: the machine has two cores.
TOGETHER = 5

#: No process of the run may live longer than this after the harness.
GONE_S = 60.0

#: One run with the usual faults of its topology, as small as it gets, with a spec as the command `bench` writes it.
HARNESS = """
import sys
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from chaos import runs, toxiproxy_binary
from chaos.drill import Drill
from chaos.interrupts import Interrupts
from chaos.plan import Pace, draw, worker_names
from chaos.progress import Progress
from chaos.spec import RunSpec

seed, folder, topology = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
pace = Pace(lead_in_ms=300, delay_max_ms=100, calm_ms=100, settle_ms=300)
small = {"lease_ms": 1_000, "sweep_ms": 200, "rate_per_s": 20, "workers": 2}
spec = RunSpec(id=f"19700101-000000-bench-seed{seed}", seed=seed, topology=topology, **small)
plan = draw(seed, workers=worker_names(spec.workers), pace=pace, topology=topology)
place = runs.create(folder, spec.id)
spec = replace(spec, plan=tuple(asdict(planned) for planned in plan.faults), started_utc="1970-01-01T00:00:00Z")
spec.write(place.path / "spec.json", harness_errors=[])
with Interrupts() as interrupts:
    drill = Drill(spec, plan, place, Progress(StringIO()), interrupts, toxiproxy=toxiproxy_binary.find())
    drill.run()
print(drill.errors)
"""


@dataclass
class Moment:
    """When a harness is killed: `delay_ms` after it has written this many stages of faults, 0 = after its first row."""

    number: int
    stages: int
    delay_ms: int
    topology: str = topologies.EMBEDDED

    def reached(self, run: Path) -> bool:
        """True when the harness has written that much."""
        path = run / "history" / "harness.jsonl"
        text = path.read_text() if path.exists() else ""
        return bool(text) if self.stages == 0 else text.count('"kind":"fault"') >= self.stages


def moments() -> list[Moment]:
    """Spread over the run by the seed: from its very start to the last stage of its last fault."""
    randomness, last = random.Random(f"killed harness {SEED}"), 4 * len(plan.FAULT_NAMES) - 1
    stages = [0, 0, *(1 + round(last * (number + randomness.random()) / (MOMENTS - 2)) for number in range(MOMENTS - 2))]
    embedded = [Moment(number, min(last, stage), randomness.randrange(400)) for number, stage in enumerate(stages)]
    others = [topology for topology in topologies.TOPOLOGIES if topology != topologies.EMBEDDED]
    return embedded + [Moment(MOMENTS + number, 1, randomness.randrange(400), name) for number, name in enumerate(others)]


class Harness:
    """A harness that runs its drill until it is killed."""

    def __init__(self, moment: Moment, folder: Path) -> None:
        self.moment = moment
        self.run = folder / str(moment.number) / f"19700101-000000-bench-seed{SEED}"
        self.log = folder / f"{moment.number}.log"
        self.below: set[psutil.Process] = set()
        self._due_s = float("inf")
        with self.log.open("w") as output:
            command = [sys.executable, "-c", HARNESS, str(SEED), str(self.run.parent), moment.topology]
            self.process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, env=child_environment({}))

    def killed(self) -> bool:
        """Kill it if its moment has come; what ran below it then is in `below`."""
        if self.process.returncode is not None:
            return True
        assert self.process.poll() is None, f"{self.moment}: the harness has ended by itself: {self.log.read_text()[-2_000:]}"
        if self.moment.reached(self.run):
            self._due_s = min(self._due_s, time.monotonic() + self.moment.delay_ms / 1_000)
        if time.monotonic() < self._due_s:
            return False
        process = psutil.Process(self.process.pid)
        # Frozen first: what it starts while we look would not be seen.
        process.suspend()
        self.below = set(process.children(recursive=True))
        self.process.kill()
        self.process.wait()
        return True

    def left(self) -> set[psutil.Process]:
        """What still runs of it."""
        return {one for one in self.below if not is_gone(one.pid)}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Harness]]:
    """The harnesses, each killed at its moment."""
    folder = tmp_path_factory.mktemp("killed")
    started: list[Harness] = []
    try:
        planned = moments()
        for start in range(0, len(planned), TOGETHER):
            group = [Harness(moment, folder) for moment in planned[start : start + TOGETHER]]
            started += group
            wait_until(lambda group=group: all(harness.killed() for harness in group), "their moments", 600)
        yield started
    finally:
        for harness in started:
            harness.process.kill()
            harness.process.wait()
            for one in harness.left():
                one.kill()


def test_nothing_outlives_a_killed_harness(killed: list[Harness]) -> None:
    names = [{one.name() for one in harness.left()} for harness in killed]
    wait_until(lambda: not any(harness.left() for harness in killed), f"the end of {names}", GONE_S)
    # Server, proxies, workers and load were there to be left behind.
    assert max(len(harness.below) for harness in killed) >= 5


def test_what_a_killed_harness_has_written_is_whole_but_for_torn_last_lines(killed: list[Harness]) -> None:
    for harness in killed:
        assert "ended_utc" not in json.loads((harness.run / "spec.json").read_text())
        for path in (harness.run / "history").glob("*.jsonl"):
            loaded = load_file(path)
            assert [row["seq"] for row in loaded.rows] == list(range(len(loaded.rows))), f"{harness.moment}: {path.name}"


def test_the_judge_calls_the_rest_unknown_and_says_why(killed: list[Harness]) -> None:
    for harness in killed:
        command = [sys.executable, "-m", "reports", "judge", str(harness.run)]
        done = subprocess.run(command, cwd=ROOT, env=child_environment({}), capture_output=True, text=True, timeout=240)
        verdict = json.loads((harness.run / "verdict.json").read_text())
        assert (done.returncode, verdict["verdict"]) == (2, "unknown"), f"{harness.moment}: {done.stderr[-2_000:]}"
        assert any("did not end" in reason for reason in verdict["reasons"]), f"{harness.moment}: {verdict['reasons']}"
        assert done.stdout.splitlines()[-1] == "verdict: unknown"
