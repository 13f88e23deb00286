"""Service level objectives: whether a run met each. They change neither the checks nor the verdict, only the exit code.

| objective | value of the run |
|---|---|
| latency | a percentile of a latency series in a phase; a job that never got there counts as endless |
| recovery | the longest time from a kill until the last of the jobs that the worker held ran elsewhere, of all or of one way |
| errors | the share of the jobs that were lost, doubled, left dead, not finished for whatever reason, or not sent in time |
| rates | jobs or messages per second |

An objective is met or missed where the run has the value, and unknown where it has not, or where the history has holes (H0) or
the load is not sound (H3), so that no value can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, NamedTuple

from reports.facts import KILLS, WAYS, of_channels, samples_min
from reports.slo_file import RECOVERIES, Objective, common, dotted

#: Results of an objective, the worst last.
RESULTS = ("met", "unknown", "missed")

#: Checks without which no measure of a run can be trusted.
GROUNDS = ("H0", "H3")


class Value(NamedTuple):
    """The value of a run for an objective: None when it has none, infinite when something never came. `note`: what the value
    rests on, or why there is none. `empty`: True when nothing could go wrong, so that any bound is met."""

    value: float | None
    note: str = ""
    empty: bool = False


def judged(objectives: Sequence[Objective], decided: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`slo` of verdict.json: each objective with its bound, the value of the run, and the result. `value` is null when the run
    has none, and when it is endless, which is missed."""
    doubt = distrust(decided)
    found: list[dict[str, Any]] = []
    for one in objectives:
        value = Value(None, doubt) if doubt else MEASURES[one.section](one, decided)
        found.append(
            {
                "objective": one.name,
                "bound": one.bound,
                "at_least": one.at_least,
                "unit": one.unit,
                "value": value.value if value.value is not None and isfinite(value.value) else None,
                "result": result(one, value),
                "note": value.note,
            }
        )
    return found


def result(one: Objective, value: Value) -> str:
    """Met, missed or unknown."""
    if value.value is None:
        return "met" if value.empty else "unknown"
    return "met" if (value.value >= one.bound if one.at_least else value.value <= one.bound) else "missed"


def distrust(decided: Mapping[str, Any]) -> str:
    """Why no measure of this run can be trusted; empty when they can."""
    if not decided["checks"]:
        return "; ".join(decided["reasons"])
    doubted = [check for check in decided["checks"] if check["id"] in GROUNDS and check["verdict"] != "valid"]
    return "; ".join(f"{check['id']} is {check['verdict']}: {check['why']}" for check in doubted)


def latency(one: Objective, decided: Mapping[str, Any]) -> Value:
    """A percentile of a series in a phase; of several phases with this name, such as `kill` and `kill-2`, that of the worst."""
    _, phase, series, rank = one.path
    lines = [line for line in decided["measures"]["percentiles"] if phase in (line["phase"], common(line["phase"]))]
    if not lines:
        return Value(None, f"no job was due in a phase {dotted([phase])}")
    of_series = [line for line in lines if line["series"] == series]
    if not of_series:
        return Value(None, f"not measured: the series are {', '.join(dict.fromkeys(line['series'] for line in lines))}")
    if few := [line["n"] for line in of_series if line["n"] < samples_min(rank)]:
        return Value(None, f"it rests on {min(few):,} samples, and needs {samples_min(rank):,}")
    worst = max(of_series, key=lambda line: inf if line[rank] is None else line[rank])
    of = f" in {worst['phase']}" if len(of_series) > 1 else ""
    if worst[rank] is None:
        return Value(inf, f"endless: too many of {worst['n']:,}{of} never got there")
    return Value(worst[rank], f"of {worst['n']:,}{of}")


def recovery(one: Objective, decided: Mapping[str, Any]) -> Value:
    """The slowest recovery of all kills, or of those whose process was connected in one way."""
    way = RECOVERIES[one.path[-1]]
    kills = [fault for fault in decided["spec"].get("plan") or () if fault["name"] in KILLS]
    lines = decided["measures"]["recovery"]
    if not kills:
        return Value(None, "no kill was planned", empty=True)
    if of_channels(decided["spec"]):
        return Value(None, "runs of channels have no measure of it")
    if way and len(lines) == len(kills) and all(line.get("connected") not in (way, "") for line in lines):
        return Value(None, f"no killed worker was connected {WAYS[way]}", empty=True)
    held = [line for line in lines if line["jobs"] and way in ("", line.get("connected"))]
    if len(lines) < len(kills) or not held:
        return Value(None, f"{len(kills)} kills were planned, {len(lines)} seen, and {len(held)} hit a worker with jobs in hand")
    if never := [line["fault"] for line in held if line["recovery_ms"] is None]:
        return Value(inf, f"endless: not every job ran again after {', '.join(never)}")
    slowest = max(held, key=lambda line: line["recovery_ms"])
    return Value(slowest["recovery_ms"], f"{slowest['fault']}, {slowest['jobs']} jobs in hand")


def errors(one: Objective, decided: Mapping[str, Any]) -> Value:
    """The share of the jobs, or in a channel run of the messages, that an error hit."""
    channels, measures, name = of_channels(decided["spec"]), decided["measures"], one.path[-1]
    enqueued, finished, offered = measures["enqueued"], measures["finished"], measures.get("offered") if channels else None
    of_jobs = {
        "lost": (measures["lost"], enqueued),
        "doubled": (measures["doubled"], enqueued),
        "dead": (measures["dead"], enqueued),
        "unfinished": (less(enqueued, finished), enqueued),
        "not_sent": (measures["dropped"], plus(enqueued, measures["dropped"])),
    }
    of_messages = {
        "lost": (measures["lost"], plus(measures.get("deliveries"), measures["lost"])),
        "not_sent": (measures["dropped"], plus(offered, measures["dropped"])),
    }
    count, total = (of_messages if channels else of_jobs).get(name, (None, None))
    if count is None or not total:
        return Value(None, "this run has no measure of it")
    return Value(round(count / total, 9), f"{count:,} of {total:,}")


def rates(one: Objective, decided: Mapping[str, Any]) -> Value:
    """Jobs or messages per second, from the first to the last."""
    value = decided["measures"]["rates"].get(one.path[-1])
    return Value(value, "" if value is not None else "this run has no measure of it")


#: Section -> how its objectives are measured.
MEASURES: dict[str, Callable[[Objective, Mapping[str, Any]], Value]] = {
    "latency": latency,
    "recovery": recovery,
    "errors": errors,
    "rates": rates,
}


def plus(one: int | None, other: int | None) -> int | None:
    """The sum; None when one of them is not known."""
    return None if one is None or other is None else one + other


def less(one: int | None, other: int | None) -> int | None:
    """The difference; None when one of them is not known."""
    return None if one is None or other is None else one - other


def wanted(line: Mapping[str, Any]) -> str:
    """The bound of an objective as text, from its line in the verdict."""
    return limit(line["bound"], line["unit"], at_least=line["at_least"])


def listed(objectives: Iterable[Objective]) -> str:
    """Objectives as lines: name and bound."""
    return "\n".join(f"{one.name}: {limit(one.bound, one.unit, at_least=one.at_least)}" for one in objectives)


def limit(bound: float, unit: str, *, at_least: bool) -> str:
    """A bound as text."""
    return f"at {'least' if at_least else 'most'} {quantity(bound, unit)}"


def measured(line: Mapping[str, Any]) -> str:
    """The value of the run as text: `?` when it has none."""
    if line["value"] is not None:
        return quantity(line["value"], line["unit"])
    return {"met": "none", "missed": "endless"}.get(line["result"], "?")


def quantity(value: float, unit: str) -> str:
    """A bound or value with its unit."""
    if unit == "share":
        return f"{100 * value:.4g} %"
    return f"{value:,.10g} ms" if unit == "ms" else f"{value:,.10g}/s"


def summary(lines: Sequence[Mapping[str, Any]]) -> str:
    """How many objectives were met, missed and unknown, in one line; empty without objectives."""
    counts = {name: sum(line["result"] == name for line in lines) for name in reversed(RESULTS)}
    parts = [f"{name} {count}" for name, count in counts.items() if count]
    return f"slo: {', '.join(parts)} of {len(lines)}" if parts else ""
