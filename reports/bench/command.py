"""`python -m reports.bench judge`: grow histories, judge each in a fresh process, and print what that cost and what was found."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reports.bench.cost import ROOT, Cost, judged
from reports.bench.grow import Grown, grow
from reports.bench.planted import Compared, findings, later, plant, unseen
from reports.cluster import cluster, dying_with_parent
from reports.errors import JudgeError

Say = Callable[[str], None]

#: Recorded runs and grown histories are kept here.
FOLDER = ROOT / "build" / "bench-judge"

#: Bytes of a row with the tables that the judge makes of it, rounded up.
ROW_BYTES = 600

#: The greatest growth of processor time with the number of rows.
EXPONENT_MAX = 1.1

#: So many drills are recorded until one can be grown.
RECORDINGS_MAX = 3

#: What a history consists of; all else in its folder was made by a judge.
RECORDED = ("spec.json", "history", "samples", "logs", "grown.json")

#: Where the sources of what makes a history are.
SOURCES = ("bench", "corrupt")


@dataclass(frozen=True)
class Order:
    """What is to be measured."""

    rows: Sequence[int]
    seed: int = 1
    shape: str = "real"
    run: Path | None = None
    master: str = "local[*]"
    #: Judge on a standalone cluster with so many workers instead.
    workers: int = 0
    memory: str = "2g"


@dataclass(frozen=True)
class Small:
    """A recorded run with violations planted: its rows, and the subject of each planted kind."""

    folder: Path
    rows: int
    subjects: dict[str, str]


@dataclass(frozen=True)
class Measured:
    """One judged history."""

    rows: int
    cost: Cost
    compared: Compared

    def __str__(self) -> str:
        return f"rows={self.rows} {self.cost}"


def bench(order: Order, say: Say) -> int:
    """Measure, and print. 0 when the judge finds what was planted and nothing else, and its time grows as it may; else 1."""
    with cluster(order.workers, memory=order.memory) if order.workers else nullcontext(order.master) as master:
        run, small = base(order, master, say)
        cost = judged(small.folder, master)
        expected = findings(small.folder)
        say(f"judge: rows={small.rows} {cost}{cost.apart} kinds={len(small.subjects)} (the run that is grown, all planted)")
        for name in (not_seen := unseen(expected, small.subjects)):
            say(f"judge: {name} was planted and not found")
        measured = [one(order, run, small, rows, master, expected, say) for rows in order.rows]
    last = measured[-1]
    exponent = slope(measured)
    say(f"judge: {last} exponent={exponent or '-'} {last.compared}")
    sound = all(not each.compared.missing and not each.compared.extra for each in measured) and not not_seen
    return int(not sound or (exponent is not None and exponent > EXPONENT_MAX))


def one(order: Order, run: Path, small: Small, rows: int, master: str, expected: frozenset[Any], say: Say) -> Measured:
    """Grow one history and judge it."""
    folder, grown = history(order, run, small, rows, say)
    clean(folder)
    cost = judged(folder, master)
    found = Measured(grown.rows, cost, Compared(later(expected, grown), findings(folder)))
    say(f"judge: {found}{cost.apart} {found.compared}")
    for what, some in (("not found", found.compared.missing), ("not planted", found.compared.extra)):
        for finding in some[:10]:
            say(f"judge: {what}: {' '.join(finding)}")
    return found


def slope(measured: Sequence[Measured]) -> float | None:
    """The exponent of processor seconds over rows, fixed cost left in: the slope of a line through their logarithms."""
    points = [(math.log(each.rows), math.log(each.cost.cpu_s)) for each in measured]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return round(sum((x - mean_x) * (y - mean_y) for x, y in points) / spread, 3) if spread else None


def base(order: Order, master: str, say: Say) -> tuple[Path, Small]:
    """The run to grow, and its copy with violations planted. Raises JudgeError when a run that was named is not fit for that, or
    when `RECORDINGS_MAX` recorded ones were not, as on a machine that is too slow."""
    if order.run:
        return order.run, planted(valid(order.run, master), order.seed, say)
    left = RECORDINGS_MAX
    while True:
        left, run = left - 1, None
        try:
            run = recorded(order.seed, say)
            return run, planted(run, order.seed, say)
        except JudgeError as unfit:
            if run:
                shutil.rmtree(run)
            if not left:
                raise
            say(f"judge: {unfit}; recording again")


def valid(run: Path, master: str) -> Path:
    """The run, judged if it was not yet. Raises JudgeError when it is not valid: a load that was late, say, would be a smaller
    part of a grown history and count for less there."""
    if not (run / "verdict.json").exists():
        judged(run, master)
    found = json.loads((run / "verdict.json").read_text())
    if found["verdict"] != "valid":
        raise JudgeError(f"{run.name} cannot be grown: it is {found['verdict']}: {'; '.join(found['reasons'][:1])}")
    return run


def planted(run: Path, seed: int, say: Say) -> Small:
    """Plant violations in a copy of a run. Raises JudgeError when it lacks what a kind needs."""
    folder = FOLDER / f"planted-{run.name}-seed{seed}"
    say(f"judge: planting violations in {run.name}")
    subjects = plant(run, seed, folder)
    rows = sum(path.read_bytes().count(b"\n") for path in (folder / "history").glob("*.jsonl"))
    return Small(folder, rows, subjects)


def recorded(seed: int, say: Say) -> Path:
    """The recorded run of a seed; recorded now where there is none. Raises JudgeError when the drill is not valid."""
    runs = FOLDER / f"recorded-seed{seed}"
    if known := valid_runs(runs):
        return max(known)
    say("judge: recording a drill, which takes four minutes")
    command = [sys.executable, "-m", "chaos", "run", "bench", "--seed", str(seed), "--runs", str(runs)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, preexec_fn=dying_with_parent(), check=False)
    # A valid run that missed an objective has an exit code of its own, and is as good.
    if not (known := valid_runs(runs)):
        raise JudgeError(f"the drill to grow was not valid (exit code {done.returncode}), as on a machine that is too slow")
    return max(known)


def valid_runs(runs: Path) -> list[Path]:
    """The folders of the valid runs in a folder of runs."""
    # One of the entries is a link to the latest.
    found = [path.resolve().parent for path in runs.glob("*/verdict.json")]
    return [run for run in found if json.loads((run / "verdict.json").read_text())["verdict"] == "valid"]


def history(order: Order, run: Path, small: Small, rows: int, say: Say) -> tuple[Path, Grown]:
    """The folder of the grown history of that size, made unless it is there from before. Raises JudgeError."""
    folder = FOLDER / f"{order.shape}-{rows}-seed{order.seed}"
    digest = made_of(run, order)
    try:
        made = json.loads((folder / "grown.json").read_text())
        if made["digest"] == digest:
            return folder, Grown(made["rows"], made["later_ms"], made["begin_ms"])
    except (OSError, ValueError, KeyError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(FOLDER).free) < rows * ROW_BYTES:
        raise JudgeError(f"{rows} rows need {rows * ROW_BYTES / 1e9:.1f} GB in {FOLDER}, which has {free / 1e9:.1f}")
    say(f"judge: growing a history of {rows} rows")
    grown = grow(run, rows, folder, shape=order.shape, ending=small.folder)
    (folder / "grown.json").write_text(json.dumps({"digest": digest, **asdict(grown)}))
    return folder, grown


def made_of(run: Path, order: Order) -> str:
    """What a grown history depends on, as a checksum."""
    sum_of = hashlib.sha256(f"{order.seed} {order.shape}".encode())
    sources = [path for name in SOURCES for path in sorted((ROOT / "reports" / name).glob("*.py"))]
    for path in (run / "spec.json", *sources):
        sum_of.update(path.read_bytes())
    return sum_of.hexdigest()


def clean(folder: Path) -> None:
    """Remove what an earlier judge has made of a history, so that nothing is converted already."""
    made = [path for path in folder.iterdir() if path.name not in RECORDED]
    made += [path for path in (folder / "history").iterdir() if path.suffix != ".jsonl"]
    for path in made:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
