"""The prediction, which `reports` makes from half of the steps, and whether runs beside it agree."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.capacity.search import MET, MISSED
from chaos.interrupts import Interrupts
from chaos.judge import SHOW_TIMEOUT_S, exit_code, judge_environment, stop
from chaos.processes import ROOT
from engine.testing import start_guarded

#: Multiples of the predicted rate at which it is verified: it must be met at the first, and missed at the second.
BELOW, ABOVE = 0.9, 1.1


@dataclass(frozen=True, slots=True)
class Prediction:
    """The rate at which the p99 reaches its target, and between which rates of the half it lies."""

    rate_per_s: float
    low_per_s: float
    high_per_s: float

    def words(self) -> str:
        """What is predicted, and whether runs beside it can be told apart."""
        surely = f"surely {self.low_per_s:.1f} to {self.high_per_s:.1f}"
        line = f"predicted from half of the steps: {self.rate_per_s:.1f} jobs/s, {surely}"
        if BELOW * self.rate_per_s <= self.low_per_s and self.high_per_s <= ABOVE * self.rate_per_s:
            return line
        return (
            f"{line}; the limit may lie beyond {BELOW:g} or {ABOVE:g} of it, where it is verified: either may come out otherwise"
        )


def predicted(run: Path, interrupts: Interrupts) -> Prediction | None:
    """What `reports` predicts from the measurement in a run; None when it does not, for a reason that is in the log."""
    with TemporaryDirectory(prefix="ironclaim-capacity-") as scratch, (run / "logs" / "prediction.log").open("ab") as log:
        command = [sys.executable, "-m", "reports", "capacity", str(run), "--out", scratch]
        process = start_guarded(command, cwd=ROOT, env=judge_environment(), stdout=log, stderr=log)
        try:
            code = exit_code(process, interrupts, SHOW_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            stop(process)
        return None if code else of_plan(Path(scratch) / "plan.json")


def of_plan(plan: Path) -> Prediction | None:
    """The prediction in a plan; None when it has none."""
    found = json.loads(plan.read_text())["prediction"]
    return None if found["reason"] else Prediction(found["rate"], found["low"], found["high"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many of the runs on each side of the prediction came out as they must."""

    met_below: int
    missed_above: int
    times: int

    @property
    def holds(self) -> bool:
        """True when all of them did."""
        return self.met_below == self.missed_above == self.times


def verdict(outcomes: Sequence[tuple[float, str]], times: int) -> Verdict:
    """Of (multiple of the rate, outcome); a void run counts for neither."""
    return Verdict(
        sum(outcome == MET for multiple, outcome in outcomes if multiple == BELOW),
        sum(outcome == MISSED for multiple, outcome in outcomes if multiple == ABOVE),
        times,
    )


def last_line(found_per_s: float | None, prediction: Prediction | None, verdict: Verdict) -> str:
    """What `chaos capacity` ends with. The rate is the predicted one, which was verified, else the one that was found."""
    rate = f"{prediction.rate_per_s:.1f}" if prediction else f"{found_per_s:.1f}" if found_per_s else "unknown"
    interval = f"{prediction.low_per_s:.1f}-{prediction.high_per_s:.1f}" if prediction else "unknown"
    counts = f"met_below={verdict.met_below}/{verdict.times} missed_above={verdict.missed_above}/{verdict.times}"
    return f"capacity: rate={rate} interval={interval} {counts}"
