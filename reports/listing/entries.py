"""What the list shows of each run, read from its spec.json, its verdict.json and its samples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from reports import models_table
from reports.page import FILE as REPORT
from reports.page import words
from reports.page.spark import thinned
from reports.verdict import FILE as VERDICT

VERDICTS = ("valid", "violated", "unknown")

#: Instead of a verdict: a run that nobody judged, one that is broken, and a folder of `chaos compare`, whose drills are runs.
NOT_JUDGED, BROKEN, TABLE = "not judged", "broken", "table of models"

STATES = (*VERDICTS, NOT_JUDGED, BROKEN, TABLE)

#: Names of run folders: date and time in UTC, scenario, seed, and an optional label.
RUN_NAME = re.compile(r"(?P<date>\d{8}-\d{6})-(?P<scenario>[a-z0-9]+)-seed(?P<seed>\d+)(-(?P<label>.+))?")

#: A row of samples/queue.jsonl: when, and how many jobs were finished by then. Matching is much faster than reading JSON.
FINISHED = re.compile(rb'^\{"t_ns":(\d+),.*?"finished":(\d+)[,}]', re.MULTILINE)

SECOND_NS = 1_000_000_000

#: The series whose p99 is shown, over all phases.
SERIES, ALL = "end_to_end", "all"

#: A commit is cut to this many characters.
COMMIT_MAX = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One run. None and empty texts: not known."""

    name: str
    state: str
    #: Why it is broken or was not judged, or the first reason of its verdict.
    reason: str = ""
    date: str = ""
    scenario: str = ""
    model: str = ""
    #: Topology and durability.
    servers: str = ""
    seed: int | None = None
    label: str = ""
    commit: str = ""
    violations: int | None = None
    recovery_ms: float | None = None
    p99_ms: float | None = None
    jobs: int | None = None
    slo: str = ""
    #: A valid run in which declared losses were seen.
    lossy: bool = False
    #: Finished jobs per second along the run.
    finished_per_s: Sequence[float] = field(default_factory=list)
    #: The page of the run, relative to the folder of all runs; empty when there is none.
    page: str = ""


class Broken(Exception):
    """A file of a run cannot be used; the message names it and why."""


def entries(runs: Path) -> list[Entry]:
    """The runs of a folder, newest first. Raises OSError when the folder cannot be read."""
    folders = [path for path in runs.iterdir() if not path.is_symlink() and path.is_dir()]
    found = [entry(path) for path in folders if is_run(path)]
    return sorted(found, key=lambda one: (one.date, one.name), reverse=True)


def is_run(path: Path) -> bool:
    """True for the folder of a run, complete or not; false for the results of other commands."""
    return RUN_NAME.fullmatch(path.name) is not None or (path / "spec.json").exists() or (path / "history").is_dir()


def entry(path: Path) -> Entry:
    """One run, whatever state its folder is in."""
    if (path / models_table.FILE).exists():
        return Entry(path.name, TABLE, page=page_of(path, models_table.PAGE_FILE), **named(path.name))
    known: dict[str, Any] = named(path.name)
    try:
        spec = read(path / "spec.json")
        known = described(path.name, spec)
        if not (path / VERDICT).exists():
            reason = "" if spec.get("ended_utc") else "it goes on, or its harness was killed: spec.json has no ended_utc"
            return Entry(path.name, NOT_JUDGED, reason, page=page_of(path, REPORT), finished_per_s=finished(path), **known)
        verdict = read(path / VERDICT)
        return Entry(path.name, page=page_of(path, REPORT), finished_per_s=finished(path), **known, **judged(verdict))
    except Broken as error:
        return Entry(path.name, BROKEN, str(error), **known)


def read(path: Path) -> dict[str, Any]:
    """A JSON object. Raises Broken."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Broken(f"{path.name} is missing") from None
    except OSError as error:
        raise Broken(f"{path.name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Broken(f"{path.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Broken(f"{path.name} is not a JSON object")
    return found


def named(name: str) -> dict[str, Any]:
    """What the name of a run says."""
    found = RUN_NAME.fullmatch(name)
    if not found:
        return {}
    date = found["date"]
    when = f"{date[:4]}-{date[4:6]}-{date[6:8]} {date[9:11]}:{date[11:13]}:{date[13:]}"
    return {"date": when, "scenario": found["scenario"], "seed": int(found["seed"]), "label": found["label"] or ""}


def described(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What spec and name say of a run. The label is what the name says beside the model, or else the mutant."""
    found = named(name)
    model, mutant = text(spec.get("model")), text(spec.get("mutant"))
    label = found.get("label", "")
    label = "" if label == model else label.removeprefix(f"{model}-")
    label = label.removesuffix("-".join(filter(None, (text(spec.get("topology")), text(spec.get("durability")))))).rstrip("-")
    started = text(spec.get("started_utc")).replace("T", " ").removesuffix("Z")
    return {
        **found,
        "date": started or found.get("date", ""),
        "scenario": text(spec.get("scenario")) or found.get("scenario", ""),
        "model": model,
        "servers": words.servers(spec),
        "seed": spec["seed"] if isinstance(spec.get("seed"), int) else found.get("seed"),
        "label": label or mutant,
        "commit": commit(text(spec.get("git_commit"))),
    }


def text(value: object) -> str:
    """A text, empty for anything else."""
    return value if isinstance(value, str) else ""


def commit(full: str) -> str:
    """The beginning of a commit, with a plus when the working tree had changes."""
    return full[:COMMIT_MAX] + ("+" if "+" in full else "")


def judged(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What a verdict says. Raises Broken when it is not one."""
    try:
        measures, state, checks = verdict["measures"], verdict["verdict"], verdict["checks"]
        jobs = measures["enqueued"]
        if state not in VERDICTS:
            raise Broken(f"{VERDICT} has the verdict {state!r}")
        return {
            "state": state,
            "lossy": bool(words.lost(verdict)),
            "reason": next(iter(verdict["reasons"]), ""),
            "violations": sum(check["violations"] for check in checks) if checks else None,
            "recovery_ms": words.slowest_ms(measures["recovery"], ""),
            "p99_ms": p99_ms(measures["percentiles"]),
            "jobs": measures.get("published") if jobs is None else jobs,
            "slo": objectives(verdict.get("slo") or []),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise Broken(f"{VERDICT} is not a verdict: {error!r}") from error


def p99_ms(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """The p99 of a job from when it was due to its end; of a run of channels that of its slowest group."""
    whole = {line["series"]: line["p99_ms"] for line in lines if line["phase"] == ALL}
    if SERIES in whole:
        return whole[SERIES]
    return max((value for value in whole.values() if value is not None), default=None)


def objectives(lines: Sequence[Mapping[str, Any]]) -> str:
    """The service-level objectives of a verdict in a word or two; empty when it has none."""
    results = [str(line["result"]) for line in lines]
    missed, unknown = results.count("missed"), results.count("unknown")
    if missed:
        return f"{missed} of {len(results)} missed"
    return f"{unknown} of {len(results)} unknown" if unknown else "met" if results else ""


def finished(path: Path) -> list[float]:
    """Finished jobs per second along the run, from the samples of its queue; empty without samples."""
    try:
        content = (path / "samples" / "queue.jsonl").read_bytes()
    except OSError:
        return []
    points = [(int(at_ns), int(count)) for at_ns, count in FINISHED.findall(content)]
    steps = [(later - at, count - before) for (at, before), (later, count) in pairwise(points) if later > at]
    return thinned([max(0, count) * SECOND_NS / width_ns for width_ns, count in steps])


def page_of(path: Path, name: str) -> str:
    """The page of a run, relative to the folder of all runs."""
    return f"{path.name}/{name}" if (path / name).exists() else ""
