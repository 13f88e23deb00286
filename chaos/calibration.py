"""Which rate this machine can carry, decided before the load from a trial of two seconds on the parts that the drill will use.

What fails a drill on a slow machine is not throughput but turns that come too late: a sender that wakes up late, a server that
answers late. So each trial looks at the lateness of sends and at the backlog, in slices, and takes medians of them: one pause of
the machine decides nothing. The first rate that a trial carries is the rate of the drill. Decisions are
pure; what tries a rate out is at the end of the file.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import models
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import consumer_names, worker_names
from chaos.probe import Address, address_of, pinged, round_trip_ms
from chaos.processes import ROOT, Crew, child_environment, last_line
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine import EngineError, Queue
from engine.testing import EmbeddedServer, ServerFailed, start_guarded
from engine.testing.server import ask_server
from record.history import HistoryFile, load_file

#: Rates in the order in which they are tried, in jobs per second. With less than the last, limits are hardly reached and workers
#: have hardly a job in hand when a fault strikes, so that a drill would prove nothing.
RATES_PER_S = (120, 90, 60, 40)

#: A trial offers so many times its rate: the drill has proxies, Locust and its harness beside the load, and bursts after faults.
HEADROOM = 2.0

#: How long a trial sends.
TRIAL_S = 2.0

#: What is sent in a slice of this length counts as one sample.
SLICE_MS = 250

#: A trial carries its rate when the slowest send of a slice is at most this late. The judge allows three times as much at p99, on
#: any machine at least 150 ms.
LAG_MAX_MS = 100

#: And when at most the jobs of so long a time wait for a worker: a backlog that has begun to grow is still small then.
WAITING_MAX_MS = 100

#: And when the server spends at most this part of the time in scripts, counted by the clock: what others take away from it counts
#: too. It has one thread, and a backlog makes some models' claims dearer, so that one that is nearly full does not recover.
SERVER_MAX = 0.7

#: And when so much of what was meant to be sent was sent: less is a sender that had no time to begin.
SENT_MIN = 0.75

#: With fewer slices a trial proves nothing.
SLICES_MIN = 4


@dataclass(frozen=True, slots=True)
class Samples:
    """What a trial saw. `lags`: (when meant, how late in ms) of each send, monotonic ns; `waiting`: (when, jobs that waited);
    `scripts_s`: how long the server was in scripts."""

    lags: Sequence[tuple[int, float]]
    waiting: Sequence[tuple[int, int]]
    pings_ms: Sequence[float]
    scripts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What samples come to at a rate, in medians. `lag_ms`: the slowest send of a slice; `waiting`: jobs that wait for a worker;
    `ping_ms`: a round trip to the server; `server`: the part of the time that it spent in scripts. `complaint`: why the machine
    does not carry the rate; empty when it does."""

    rate_per_s: int
    sent: int
    lag_ms: float
    waiting: float
    ping_ms: float
    server: float = 0.0
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """`rate_per_s`: the rate of the drill, 0 = the machine carries none. `asked`: it was named, and is kept in any case."""

    rate_per_s: int
    trials: tuple[Trial, ...]
    asked: bool = False

    @property
    def last(self) -> Trial:
        """The trial that decided."""
        return self.trials[-1]

    def for_spec(self) -> dict[str, Any]:
        """What the spec keeps: the figures of the trial that decided, and all trials."""
        last = self.last
        figures = {"rate_per_s": self.rate_per_s, "lag_ms": last.lag_ms, "ping_ms": last.ping_ms}
        return {**figures, "trials": [asdict(trial) for trial in self.trials]}

    def words(self, wanted_per_s: int = RATES_PER_S[0]) -> str:
        """What was decided, in one line."""
        last = self.last
        if not self.rate_per_s:
            least = f"{last.rate_per_s} jobs/s, the least that proves anything"
            return f"this machine is too slow: it does not carry {least}: {last.complaint}"
        if self.asked and last.complaint:
            return f"warning: this machine does not carry the {self.rate_per_s} jobs/s that were asked for: {last.complaint}"
        seen = f"sends at most {last.lag_ms:.0f} ms late, a round trip {last.ping_ms:.1f} ms"
        lower = f", not {wanted_per_s}: {self.trials[0].complaint}" if self.rate_per_s < wanted_per_s and not self.asked else ""
        return f"this machine carries {self.rate_per_s} jobs/s ({seen}){lower}"


def calibrate(attempt: Callable[[int], Samples], asked_per_s: int | None = None) -> Calibration:
    """Try one rate after the other until one is carried; only the one that was asked for, if any. `attempt`: offers a rate, with
    its headroom, for a moment."""
    trials: list[Trial] = []
    for rate_per_s in RATES_PER_S if asked_per_s is None else (asked_per_s,):
        trials.append(judged(rate_per_s, attempt(rate_per_s)))
        if not trials[-1].complaint or asked_per_s is not None:
            return Calibration(rate_per_s, tuple(trials), asked=asked_per_s is not None)
    return Calibration(0, tuple(trials))


def offered_per_s(rate_per_s: int) -> float:
    """What a trial of a rate sends."""
    return rate_per_s * HEADROOM


def judged(rate_per_s: int, samples: Samples) -> Trial:
    """What the samples say about a rate; its complaint is empty when the rate is carried."""
    slices = worst_of_slices(samples.lags)
    lag_ms = round(median(slices), 1) if slices else 0.0
    # What waits while the load only begins says nothing.
    begun_ns = min((at_ns for at_ns, _ in samples.lags), default=0)
    ended_ns = max((at_ns for at_ns, _ in samples.lags), default=0)
    waited = [count for at_ns, count in samples.waiting if begun_ns <= at_ns <= ended_ns]
    waiting = median(waited) if waited else 0
    ping_ms = round(median(samples.pings_ms), 2) if samples.pings_ms else 0.0
    server = round(samples.scripts_s / TRIAL_S, 3)
    trial = Trial(rate_per_s, len(samples.lags), lag_ms, waiting, ping_ms, server)
    return replace(trial, complaint=complaint(trial, len(slices)))


def complaint(trial: Trial, slices: int) -> str:
    """Why the rate of a trial is not carried; empty when it is."""
    offered = offered_per_s(trial.rate_per_s)
    planned = offered * TRIAL_S
    if slices < SLICES_MIN or trial.sent < SENT_MIN * planned:
        return f"only {trial.sent} of about {planned:.0f} jobs were sent in time"
    if trial.lag_ms > LAG_MAX_MS:
        return f"sends were {trial.lag_ms:.0f} ms late, more than {LAG_MAX_MS} ms"
    if trial.waiting > offered * WAITING_MAX_MS / 1_000:
        return f"{trial.waiting:.0f} jobs waited for a worker, more than are sent in {WAITING_MAX_MS} ms"
    if trial.server > SERVER_MAX:
        return f"the server was in scripts for {trial.server:.0%} of the time, more than {SERVER_MAX:.0%}"
    return ""


def worst_of_slices(lags: Sequence[tuple[int, float]]) -> list[float]:
    """The lateness of the slowest send of each slice, in the order of the slices."""
    worst: dict[int, float] = {}
    for at_ns, lag_ms in sorted(lags):
        place = at_ns // (SLICE_MS * 1_000_000)
        worst[place] = max(worst.get(place, 0.0), lag_ms)
    return list(worst.values())


#: Interpreters have to start and import; on a busy machine that takes seconds.
START_TIMEOUT_S = 60.0

#: A sender waits for its last answers, and closes its history.
END_TIMEOUT_S = 30.0

#: How often the server and the queue are asked.
LOOK_S = 0.05

#: A server that answers so late is slow; only one that does not answer at all is away.
LOOK_PATIENCE_S = 30.0

#: A worker of a calibration that was told to stop gets this long; nobody needs its last words.
STOP_GRACE_S = 2.0

QUEUE = "trial"


def calibrated(model: str, interrupts: Interrupts, asked_per_s: int | None = None) -> Calibration:
    """Which rate this machine carries; the one that was asked for is tried alone.

    Raises HarnessError when the parts cannot be started, ServerMissing, and Interrupted.
    """
    try:
        with TemporaryDirectory(prefix="ironclaim-trial-") as scratch, stage(Path(scratch), model, interrupts) as attempt:
            return calibrate(attempt, asked_per_s)
    except (ServerFailed, EngineError, OSError) as error:
        raise HarnessError(f"calibration: {error}") from error


@contextmanager
def stage(folder: Path, model: str, interrupts: Interrupts) -> Iterator[Callable[[int], Samples]]:
    """A server with as many workers as a drill has, ready to work, and what offers them a rate."""
    spec = RunSpec(id="trial", seed=1, model=model, queue=QUEUE)
    with EmbeddedServer(log=folder / "server.log") as server, models.queue(model, QUEUE, url=server.url) as queue:
        # On a slow machine workers hold jobs for longer, and then it is the limits that no longer let the load through.
        for limit in models.carried(model).features()["limits"]:
            queue.set_limit(**limit)
        manifest, watch = HistoryFile(folder / "manifest.jsonl", proc="manifest", role="harness"), Watch(folder)
        crew = Crew(spec, lambda name: server.url, folder, folder, manifest, watch)
        try:
            names = (*worker_names(spec.workers), *consumer_names(spec.consumers))
            for name in names:
                crew.start_worker(name)
            wait_until_ready(crew, watch, names, interrupts)
            yield lambda rate_per_s: attempt(folder, spec, rate_per_s, server.url, queue, interrupts)
        finally:
            crew.stop_all(STOP_GRACE_S)
            watch.close()
            manifest.close()


def wait_until_ready(crew: Crew, watch: Watch, names: tuple[str, ...], interrupts: Interrupts) -> None:
    """Wait until every worker has asked for work. Raises HarnessError and Interrupted."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not all(watch.view(name).completed.get("claim") for name in names):
        interrupts.check()
        if gone := crew.unplanned_exits():
            raise HarnessError(f"calibration: {gone[0].ending()}")
        if time.monotonic() > deadline_s:
            raise HarnessError(f"calibration: the workers did not claim within {START_TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)
        watch.poll()


def attempt(folder: Path, spec: RunSpec, rate_per_s: int, url: str, queue: Queue, interrupts: Interrupts) -> Samples:
    """Offer a rate, with its headroom, for `TRIAL_S`. Raises HarnessError and Interrupted."""
    history, log = folder / f"sender-{rate_per_s}.jsonl", folder / f"sender-{rate_per_s}.log"
    command = [sys.executable, "-m", "bench.trial", "--url", url, "--queue", QUEUE, "--model", spec.model]
    command += ["--rate", str(offered_per_s(rate_per_s)), "--seconds", str(TRIAL_S), "--history", str(history)]
    pings_ms, waiting, server = list[float](), list[tuple[int, int]](), address_of(url)
    deadline_s = time.monotonic() + START_TIMEOUT_S + TRIAL_S + END_TIMEOUT_S
    before_s = scripts_s(server)
    with log.open("ab") as output:
        sender = start_guarded(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, env=child_environment({})
        )
    try:
        while sender.poll() is None:
            interrupts.check()
            if time.monotonic() > deadline_s:
                raise HarnessError(f"calibration: the sender did not end; its log says: {last_line(log)}")
            look(server, queue, pings_ms, waiting)
            time.sleep(LOOK_S)
    finally:
        sender.kill()
        sender.wait()
    if sender.returncode != 0:
        raise HarnessError(f"calibration: the sender ended with exit code {sender.returncode} ({last_line(log)})")
    return Samples(lags_of(history), waiting, pings_ms, scripts_s(server) - before_s)


def look(server: Address, queue: Queue, pings_ms: list[float], waiting: list[tuple[int, int]]) -> None:
    """Ask the server for one round trip, and how many jobs wait for a worker."""
    pings_ms.append(round_trip_ms(server, lambda address: pinged(address, LOOK_PATIENCE_S)))
    waiting.append((time.monotonic_ns(), queue.counts().waiting))


def scripts_s(server: Address) -> float:
    """How long the server has been in scripts, in seconds by the clock. Raises OSError."""
    lines = ask_server(server.port, "INFO commandstats").splitlines()
    told = [line for line in lines if line.startswith("cmdstat_evalsha:")]
    return sum(int(line.partition("usec=")[2].partition(",")[0]) for line in told) / 1e6


def lags_of(history: Path) -> list[tuple[int, float]]:
    """When each send was meant, and how many ms later it left."""
    sent = {
        row["op"]: (row["intended_ns"], (row["first_send_ns"] - row["intended_ns"]) / 1e6)
        for row in load_file(history).rows
        if row["kind"] == "operation" and row["f"] == "enqueue" and row["intended_ns"] is not None
    }
    return list(sent.values())
