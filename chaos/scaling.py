"""The drill of the autoscaling signal: load that doubles twice and falls, and workers that come and go by the metrics."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import requests

from bench.workload import Workload
from chaos.catalogue import APPS
from chaos.drill import Drill
from chaos.errors import HarnessError
from chaos.http_drill import HttpCrew
from chaos.plan import PRODUCER, worker_names
from chaos.processes import Child, producer_command, send

#: What a look has seen: numbers by name, and its phase.
Look = dict[str, Any]

SCHEMA = 1
FILE = "scale.json"

#: The process that serves the metrics.
APP = APPS[0]

#: Producers, and which part of the load each sends: half of it comes with the last, and a quarter with each of the others.
PRODUCERS = {PRODUCER: 4, "producer-2": 4, "producer-3": 2}

#: The phases with the greatest load, and after it.
GREATEST, FALLEN = "doubled-twice", "settle"

WORKERS_MAX = 8
#: Workers are to be so busy, and a backlog gone in this time: then a run of two minutes sees it go.
UTILISATION = 0.75
DRAIN_MS = 5_000
#: How often the metrics are read.
LOOK_S = 1.0
#: A busy machine answers late.
ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Times:
    """How long each part of the load lasts, from when its producers send. The last is to see the workers go: arrivals are counted
    over 20 s, and what was wanted of late counts for `stable_s`."""

    lead_in_s: float = 20.0
    doubled_s: float = 25.0
    fall_s: float = 40.0
    stable_s: float = 10.0


@dataclass
class ScaleCrew(HttpCrew):
    """Workers that come and go, producers that share the load, and an app for its metrics."""

    #: Names of the workers and producers that were told to stop.
    retired: list[str] = field(default_factory=list)

    @property
    def serve_options(self) -> tuple[str, ...]:
        """What the metrics aim at, with the time of handlers that a plan would have: workers tell theirs 10 s later."""
        service_ms = Workload(self.spec.seed, self.spec.rate_per_s).mean_work_ms()
        numbers = {"workers-max": WORKERS_MAX, "target-utilisation": UTILISATION, "drain-ms": DRAIN_MS, "service-ms": service_ms}
        return tuple(word for name, value in numbers.items() for word in (f"--{name}", f"{value:g}"))

    def start_producer(self, name: str) -> Child:
        """Announce a producer, then start it with its part of the load, and with ids that begin with a seed of its own."""
        (history,) = self.announce_producers(name)
        number = list(PRODUCERS).index(name)
        share = replace(self.spec, seed=self.spec.seed + number, rate_per_s=max(1, self.spec.rate_per_s // PRODUCERS[name]))
        return self._start(name, "producer", producer_command(share, self.connect(name), history, None), {})

    def started(self, role: str) -> list[str]:
        """Those of a role, the newest last."""
        return [child.name for child in self.children.values() if child.role == role]

    def working(self, role: str = "worker") -> list[str]:
        """Those that are not told to stop."""
        return [name for name in self.started(role) if name not in self.retired]

    def retire(self, name: str) -> None:
        """Tell a process to stop, once: it finishes what it does while the drill goes on."""
        child = self.children[name]
        child.exit_expected = True
        self.retired.append(name)
        send(child.pid, signal.SIGTERM)

    def scale_to(self, count: int) -> None:
        """Start workers, or retire the newest, so that so many are there."""
        started, working = self.started("worker"), self.working()
        for name in worker_names(len(started) + count - len(working))[len(started) :]:
            self.start_worker(name)
        # One that still starts would die of the signal: it stops at a later look.
        for name in filter(self.has_begun, working[count:]):
            self.retire(name)

    def has_begun(self, name: str) -> bool:
        """Whether a worker has asked for jobs."""
        return bool(self.watch.view(name).completed.get("claim"))

    def gone(self) -> bool:
        """Whether all that were retired have ended."""
        return not any(self.children[name].alive() for name in self.retired)

    def ended_badly(self) -> list[str]:
        """A complaint for each of them that did not stop as asked."""
        retired = [self.children[name] for name in self.retired]
        return [child.ending() for child in retired if child.process.returncode not in child.endings]


@dataclass
class ScaleDrill(Drill):
    """A run of jobs whose workers follow the metrics."""

    crew_of = ScaleCrew
    _crew: ScaleCrew = field(init=False, repr=False)

    times: Times = field(default_factory=Times)
    #: What each look has seen, and how many workers there were after it.
    looks: list[Look] = field(default_factory=list)
    #: While it is there, the metrics are looked at whenever the drill waits.
    _scaler: Scaler | None = None
    #: When the first look was, and when the next one is due (monotonic s).
    _began_s: float = 0.0
    _due_s: float = 0.0

    #: Phase -> the producers that send in it.
    PHASES: ClassVar[dict[str, tuple[str, ...]]] = {
        "lead-in": tuple(PRODUCERS)[:1],
        "doubled": tuple(PRODUCERS)[:2],
        GREATEST: tuple(PRODUCERS),
        FALLEN: tuple(PRODUCERS)[:1],
    }

    def _carry_out(self) -> None:
        """The four loads, each for its time, then an orderly end with the workers that are there."""
        self._crew.start_app(APP)
        self._require(lambda: self._crew.listening(APP), "the app did not listen")
        self._scaler, self._began_s = Scaler(self.times.stable_s), time.monotonic()
        # Before the load comes, so that the next look has one that arrivals are counted from.
        self._require(lambda: bool(self.looks), "the metrics were not answered")
        self._begin_load()
        lasts = dict(zip(self.PHASES, (self.times.lead_in_s, *(self.times.doubled_s,) * 2, self.times.fall_s), strict=True))
        try:
            for phase, producers in self.PHASES.items():
                self._send_by(phase, producers)
                self._hold(time.monotonic_ns() + round(lasts[phase] * 1e9))
        finally:
            self._scaler = None
            (self.folder.path / FILE).write_text(json.dumps({"schema": SCHEMA, "looks": self.looks}) + "\n")
        self._require(self._crew.gone, "a process that was told to stop did not end")
        self.errors += self._crew.ended_badly()
        # The judge counts from an instant under load: who lives claims after it, and nothing from before it may be left.
        self._drain(time.monotonic_ns() - self.plan.pace.settle_ms * 1_000_000)

    def _send_by(self, phase: str, producers: tuple[str, ...]) -> None:
        """Let these producers send, and begin the phase."""
        there = self._crew.working("producer")
        for name in [name for name in producers if name not in there]:
            self._crew.start_producer(name)
            self._require(lambda name=name: self._watch.view(name).created > 0, f"{name} created no job")
        if phase != "lead-in":
            self._begin_phase(phase, time.monotonic_ns())
        for name in [name for name in there if name not in producers]:
            self._crew.retire(name)

    def _tick(self) -> None:
        super()._tick()
        if self._scaler is not None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + LOOK_S
            self._look(self._scaler)

    def _look(self, scaler: Scaler) -> None:
        """Read the metrics, and start or retire workers."""
        url = f"{self._crew.apps[APP].url}/api/queues/{self.spec.queue}/metrics"
        try:
            numbers = read(requests.get(url, timeout=ANSWER_TIMEOUT_S).text)
        except requests.RequestException:
            # As an autoscaler does: what cannot be read changes nothing, and the next look is in a second.
            return
        now_s = time.monotonic()
        self._crew.scale_to(scaler.decide(now_s, round(numbers[WANTED])))
        there = len(self._crew.working())
        self.looks.append({"at_s": round(now_s - self._began_s, 3), "phase": self._phase, "there": there, **numbers})


def numbers_of(looks: Sequence[Look]) -> tuple[int, int, int]:
    """How many workers there were at first, at most, and in the end; zeros without a look."""
    counts = [look["there"] for look in looks] or [0]
    return counts[0], max(counts), counts[-1]


def followed(looks: Sequence[Look]) -> bool:
    """Whether there were more workers under the greatest load than at first, and fewer again after it."""
    first, _, _ = numbers_of(looks)
    most = max((look["there"] for look in looks if look["phase"] == GREATEST), default=0)
    return first < most > min((look["there"] for look in looks if look["phase"] == FALLEN), default=most)


_SAMPLE = re.compile(r'ironclaim_(\w+)\{queue="[^"]*"\} (\S+)')
WANTED = "wanted_workers"
#: What is written down of each look, as the metrics are called.
WRITTEN = (WANTED, "workers", "worker_utilisation_ratio", "oldest_waiting_seconds", "arrivals_per_second")


def read(page: str) -> dict[str, float]:
    """The numbers of a queue that are written down, by name without `ironclaim_`. Raises HarnessError when the page does not say
    how many workers are wanted."""
    found = {match[1]: float(match[2]) for line in page.splitlines() if (match := _SAMPLE.fullmatch(line))}
    if WANTED not in found:
        raise HarnessError(f"the metrics have no ironclaim_{WANTED}: {page[:100]!r}")
    return {name: found[name] for name in WRITTEN if name in found}


@dataclass
class Scaler:
    """Follows what is wanted: up at once, down to the most that was wanted in the last `stable_s`."""

    stable_s: float
    #: When so many were wanted (monotonic s), and how many.
    _wanted: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now_s: float, wanted: int) -> int:
        """How many workers there should be."""
        self._wanted = [(at_s, count) for at_s, count in self._wanted if at_s > now_s - self.stable_s] + [(now_s, wanted)]
        return max(count for _, count in self._wanted)
