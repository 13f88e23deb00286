"""Which rate this machine can carry, decided before the load from a trial of two seconds on the parts that the drill will use.

What fails a drill on a slow machine is not throughput but turns that come too late: a sender that wakes up late, a server that
answers late. So each trial looks at the lateness of sends and at the backlog, in slices, and takes medians of them: one pause of
the machine decides nothing. The first rate that a trial carries is the rate of the drill. Pure decisions; `chaos.trial` has the
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

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
