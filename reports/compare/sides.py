"""The two sides of a comparison: their runs, and what forbids to compare them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.compare.metrics import Metric, values_of
from reports.errors import JudgeError
from reports.verdict import FILE

#: What makes a variant: it may differ between the sides, but not inside one.
VARIANT = ("git_commit", "versions", "mutant")

#: What differs from run to run by nature, or is compared in another way.
OF_A_RUN = ("id", "seed", "plan", "started_utc", "ended_utc", "calibration", "harness_errors", "too_slow", "findings", "machine")

#: What makes two machines the same. Their load is not part of it.
MACHINE = ("cores", "memory_bytes", "kernel", "python")

#: Where runs to compare come from.
HOW = "each drill makes one, in turns for A and for B"

#: A value of a spec is cut to this many characters in messages.
VALUE_MAX = 60


@dataclass(frozen=True)
class Repetition:
    """One judged run."""

    path: Path
    verdict: str
    spec: Mapping[str, Any]
    values: Mapping[Metric, float]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def started(self) -> tuple[str, str]:
        """Sorts runs by their start; those of the same second by their names."""
        return str(self.spec.get("started_utc", "")), self.name

    def card(self, name: str) -> Mapping[str, Any]:
        """An object of the spec, such as its machine; empty when there is none."""
        found = self.spec.get(name)
        return found if isinstance(found, dict) else {}


def read_side(paths: Sequence[Path]) -> list[Repetition]:
    """The runs of a side, oldest first. A path is the folder of a run, or one that holds such folders.

    Raises JudgeError for a folder without runs, a run that is named twice or that has no usable verdict.
    """
    folders = [folder for path in paths for folder in runs_in(path)]
    found = sorted(map(read_run, folders), key=lambda run: run.started)
    if twice := [path.name for path, count in Counter(run.path for run in found).items() if count > 1]:
        raise JudgeError(f"run {twice[0]} is named twice")
    return found


def runs_in(path: Path) -> list[Path]:
    """The run folders that a path stands for. Raises JudgeError when there is none."""
    if not path.is_dir():
        raise JudgeError(f"run folder {path} does not exist; {HOW}")
    if (path / "spec.json").exists():
        return [path.resolve()]
    found = [one for one in path.iterdir() if not one.is_symlink() and (one / "spec.json").exists()]
    if not found:
        raise JudgeError(f"{path} is neither the folder of a run nor one that holds runs; {HOW}")
    return [one.resolve() for one in found]


def read_run(path: Path) -> Repetition:
    """A run and its metrics. Raises JudgeError when it was not judged, or its verdict cannot be read."""
    try:
        decided = json.loads((path / FILE).read_text("utf-8"))
    except FileNotFoundError:
        raise JudgeError(f"run {path.name} was not judged: python -m reports judge {path}") from None
    except (OSError, ValueError) as error:
        raise JudgeError(f"{FILE} of {path.name} cannot be read: {error}") from error
    try:
        return Repetition(path, str(decided["verdict"]), dict(decided["spec"]), values_of(path, decided))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise JudgeError(f"{FILE} of {path.name} has no usable measures: {error!r}") from error


def obstacles(a: Sequence[Repetition], b: Sequence[Repetition]) -> list[str]:
    """Why these runs must not be compared, each with the field that differs. Raises JudgeError when a run is on both sides."""
    if both := {run.path for run in a} & {run.path for run in b}:
        raise JudgeError(f"run {min(both).name} is on both sides")
    found = [f"run {run.name} is {run.verdict}, not valid" for run in (*a, *b) if run.verdict != "valid"]
    found += [f"{side}: {text}" for side, runs in (("A", a), ("B", b)) for name in VARIANT if (text := mixed(name, runs))]
    everything = (*a, *b)
    fields = dict.fromkeys(name for run in everything for name in run.spec)
    found += [text for name in fields if name not in (*VARIANT, *OF_A_RUN) if (text := mixed(name, everything))]
    found += [text for name in MACHINE if (text := mixed(name, everything, "machine"))]
    return found + seeds_differ(a, b)


def mixed(name: str, runs: Sequence[Repetition], card: str = "") -> str:
    """The first two values of a field that not all runs share, with a run of each; empty when they agree. `card`: the object of
    the spec that has the field."""
    specs = [run.card(card) if card else run.spec for run in runs]
    values = [shown(spec.get(name)) for spec in specs]
    other = next((place for place, value in enumerate(values) if value != values[0]), None)
    if other is None:
        return ""
    title = f"{card} {name}".strip()
    return f"{title} differs: {values[0]} in {runs[0].name}, {values[other]} in {runs[other].name}"


def seeds_differ(a: Sequence[Repetition], b: Sequence[Repetition]) -> list[str]:
    """The seeds that one side has more of than the other, as shares of its runs."""
    of_a, of_b = (Counter(shown(run.spec.get("seed")) for run in side) for side in (a, b))
    return [
        f"seed differs: seed {seed} is {of_a[seed]} of {len(a)} runs of A and {of_b[seed]} of {len(b)} of B"
        for seed in sorted({*of_a, *of_b})
        if of_a[seed] * len(b) != of_b[seed] * len(a)
    ]


def variant(a: Sequence[Repetition], b: Sequence[Repetition]) -> list[str]:
    """What makes B another variant than A, by the specs of their first runs."""
    found: list[str] = []
    for name in VARIANT:
        of_a, of_b = (side[0].spec.get(name) for side in (a, b))
        if isinstance(of_a, dict) and isinstance(of_b, dict):
            keys = [key for key in dict.fromkeys([*of_a, *of_b]) if of_a.get(key) != of_b.get(key)]
            found += [f"{name} {key}: {shown(of_a.get(key))} / {shown(of_b.get(key))}" for key in keys]
        elif of_a != of_b:
            found.append(f"{name}: {shown(of_a)} / {shown(of_b)}")
    return found


def shown(value: object) -> str:
    """A value of a spec as JSON, cut to a readable length."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 3] + "..."


def interleaved(a: Sequence[Repetition], b: Sequence[Repetition]) -> bool:
    """True when the runs of A and B took turns, like ABAB or ABBA. False also when a run does not say when it began.

    A larger side may leave out its surplus: then no side was ever more than a run ahead. With the surplus, which may not lie
    together, no side was ever more than two runs ahead of its share.
    """
    order = sorted([*((run.started, 1) for run in a), *((run.started, -1) for run in b)])
    larger, surplus = (1 if len(a) > len(b) else -1), abs(len(a) - len(b))
    done = {1: 0.0, -1: 0.0}
    #: How many runs of the larger side were left out, and by how many A is ahead: all ways that are still possible.
    ways = {(0, 0)}
    for (when, _), side in order:
        done[side] += 1
        left_out = {(out + 1, ahead) for out, ahead in ways if side == larger and out < surplus}
        ways = left_out | {(out, ahead + side) for out, ahead in ways if abs(ahead + side) <= 1}
        off = abs(done[1] / len(a) - done[-1] / len(b)) * min(len(a), len(b))
        if not when or not ways or off > 2:
            return False
    return (surplus, 0) in ways
