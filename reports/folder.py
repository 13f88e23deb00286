"""What is read from a run's folder without Spark: its spec, its history files, and the end of each file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.errors import JudgeError, content_of
from reports.targets.promise import of_target, promise_faults

#: A window of loss reaches at most so far beyond its fault.
LOSS_MS_MAX = 10_000

#: The stages of a fault with which a window of loss may begin and end. Without `since` it begins with the inject.
LOSS_SINCE = ("inject", "snapshot")
LOSS_UNTIL = ("inject", "witness", "heal")

#: Bytes that one step reads when searching backwards for the last newline of a file.
TAIL_BYTES = 65_536

#: The spec.json schema that this judge reads.
SPEC_SCHEMA = 1

#: The model of channel runs, and the largest clock value of a channel.
CHANNELS = "dsps"
CLOCK_MAX = 2**53 - 1

#: Fields of a spec that are whole numbers above 0.
POSITIVE = ("lease_ms", "sweep_ms", "recovery_bound_ms", "liveness_ms", "workers")

#: Fields that each fault of a plan must have.
PLANNED = ("fault", "name", "target")

#: Syntax of the `checks` of a declared finding: a check of the engine, or `id:kind` for one kind of its violations.
DECLARABLE = re.compile(r"[JP]\d+(:[a-z ]+)?")

#: Rule 37: a job must run again within the lease plus RECOVERY_SLACK_MS, and nothing may be stuck after the lease plus a slack.
#: For a lease of 9 s the harness uses a slack of 6 s; for a short lease the same share of it is enough, but at least this much,
#: which a busy machine needs.
RECOVERY_SLACK_MS = 2_000
LIVENESS_SLACK_MS = 2_000

#: Greatest allowed `early_ms`: a Node timer fires up to 1 ms early, and rounding to whole ms differs between Node and the
#: server.
EARLY_MS_MAX = 2

#: A wrong value is cut to this many characters in messages.
VALUE_MAX = 60


def read_spec(run: Path) -> dict[str, Any]:
    """The run's spec.json. Raises JudgeError when it is missing, not JSON or has invalid values: its bounds decide what is a
    violation."""
    if not run.is_dir():
        raise JudgeError(f"run folder {run} does not exist")
    spec = content_of(run / "spec.json", f"spec.json of {run.name}")
    if not isinstance(spec, dict):
        raise JudgeError(f"spec.json of {run.name} is not a JSON object")
    if faults := spec_faults(spec):
        raise JudgeError(f"spec.json of {run.name}: {'; '.join(faults)}")
    return spec


def spec_faults(spec: Mapping[str, Any]) -> list[str]:
    """What is wrong with a spec, each field with its value and bound."""
    found = [] if spec.get("schema") == SPEC_SCHEMA else [f"schema is {shown(spec, 'schema')}, this judge reads {SPEC_SCHEMA}"]
    of_channels = spec.get("model") == CHANNELS
    whole = {name for name in POSITIVE if type(spec.get(name)) is int and spec[name] > 0}
    if of_target(spec):
        found += promise_faults(spec)
    wanted = () if of_channels or of_target(spec) else POSITIVE
    found += [f"{name} is {shown(spec, name)}, it must be a whole number above 0" for name in wanted if name not in whole]
    found += channel_faults(spec.get("channels")) if of_channels else []
    if {"lease_ms", "recovery_bound_ms"} <= whole and spec["recovery_bound_ms"] > (most := spec["lease_ms"] + RECOVERY_SLACK_MS):
        found.append(f"recovery_bound_ms is {spec['recovery_bound_ms']}, it must be at most {most}")
    if {"lease_ms", "liveness_ms"} <= whole and spec["liveness_ms"] < (least := spec["lease_ms"] + LIVENESS_SLACK_MS):
        found.append(f"liveness_ms is {spec['liveness_ms']}, it must be at least {least}")
    plan = spec.get("plan")
    if not isinstance(plan, list):
        found.append(f"plan is {shown(spec, 'plan')}, it must be a list, empty when no fault was planned")
    else:
        for number, entry in enumerate(plan):
            lacks = [name for name in PLANNED if not isinstance(entry, dict) or not isinstance(entry.get(name), str)]
            found += [f"plan[{number}] has no {name}, it must be a text" for name in lacks]
    direct = spec.get("direct")
    if direct is not None and not (isinstance(direct, list) and all(map(is_text, direct))):
        found.append(f"direct is {shown(spec, 'direct')}, it must be a list of names, or null where nobody has looked")
    found += findings_faults(spec.get("findings", []))
    found += loss_faults(spec.get("loss", []))
    # An unreadable bound must not be ignored: the check that uses it would be skipped.
    if not is_whole(spec.get("delayed_p99_ms", 0)):
        found.append(f"delayed_p99_ms is {shown(spec, 'delayed_p99_ms')}, it must be a whole number, 0 = none")
    if not is_whole(pickup_ms := spec.get("pickup_bound_ms", 0)):
        found.append(f"pickup_bound_ms is {shown(spec, 'pickup_bound_ms')}, it must be a whole number, 0 = none")
    elif pickup_ms and not (is_whole(places := spec.get("concurrency")) and places):
        found.append(f"concurrency is {shown(spec, 'concurrency')}, with pickup_bound_ms it must be a whole number above 0")
    if not is_whole(early_ms := spec.get("early_ms", 0)) or early_ms > EARLY_MS_MAX:
        found.append(f"early_ms is {shown(spec, 'early_ms')}, it must be a whole number from 0 to {EARLY_MS_MAX}")
    if not is_calibration(spec.get("calibration", {})):
        found.append(f"calibration is {shown(spec, 'calibration')}, it must be an object whose lag_ms is a number of at least 0")
    if not isinstance(spec.get("harness_errors"), list):
        found.append(f"harness_errors is {shown(spec, 'harness_errors')}, it must be a list")
    if not isinstance(spec.get("ended_utc"), str) or not spec["ended_utc"]:
        found.append(f"ended_utc is {shown(spec, 'ended_utc')}: the harness did not end the run")
    return found


def is_calibration(value: object) -> bool:
    """True for a valid calibration, or for none at all, as in older specs."""
    lag_ms = value.get("lag_ms", 0) if isinstance(value, dict) else None
    return isinstance(lag_ms, int | float) and not isinstance(lag_ms, bool) and 0 <= lag_ms < float("inf")


def channel_faults(channels: object) -> list[str]:
    """What is wrong with the channels of a spec: each has a name, its subscribers, and the clock that it was set to, if any."""
    if not isinstance(channels, list) or not channels:
        return ["channels must be a list, with an entry for each channel"]
    found: list[str] = []
    for number, one in enumerate(channels):
        at, entry = f"channels[{number}]", one if isinstance(one, dict) else {}
        names, preset = entry.get("subscribers"), entry.get("preset_clock") or 0
        found += [] if is_text(entry.get("name")) else [f"{at} has no name, it must be a text"]
        found += [] if is_whole(entry.get("expire_ms")) else [f"{at} has no expire_ms, it must be a whole number"]
        if not isinstance(names, list) or not all(map(is_text, names)):
            found.append(f"{at} has subscribers {json.dumps(names)[:VALUE_MAX]}, they must be a list of names")
        if type(preset) is not int or abs(preset) > CLOCK_MAX:
            found.append(f"{at} has preset_clock {json.dumps(preset)[:VALUE_MAX]}, it must be a clock")
    return found


def findings_faults(findings: object) -> list[str]:
    """What is wrong with the declared findings of a spec: an imprecise one would cover violations that it does not describe."""
    if not isinstance(findings, list):
        return ["findings is no list"]
    found: list[str] = []
    for number, one in enumerate(findings):
        at, entry = f"findings[{number}]", one if isinstance(one, dict) else {}
        found += [f"{at} has no {name}, it must be a text" for name in ("name", "text") if not is_text(entry.get(name))]
        checks, procs = entry.get("checks"), entry.get("procs", [])
        if not isinstance(checks, list) or not all(is_text(c) and DECLARABLE.fullmatch(c) for c in checks):
            found.append(f"{at} has checks {json.dumps(checks)[:VALUE_MAX]}, they must be ids of J or P checks, or id:kind")
        if not isinstance(procs, list) or not all(map(is_text, procs)):
            found.append(f"{at} has procs {json.dumps(procs)[:VALUE_MAX]}, they must be how names of processes begin")
    return found


def loss_faults(losses: object) -> list[str]:
    """What is wrong with the declared losses of a spec: a loose one would cover losses that it does not describe."""
    if not isinstance(losses, list):
        return ["loss is no list"]
    found: list[str] = []
    for number, one in enumerate(losses):
        at, entry = f"loss[{number}]", one if isinstance(one, dict) else {}
        found += [f"{at} has no {name}, it must be a text" for name in ("fault", "text") if not is_text(entry.get(name))]
        for name in ("before_ms", "after_ms"):
            if not is_whole(entry.get(name)) or entry[name] > LOSS_MS_MAX:
                found.append(f"{at} has {name} {json.dumps(entry.get(name))[:VALUE_MAX]}, it must be from 0 to {LOSS_MS_MAX}")
        for name, stages in (("since", LOSS_SINCE), ("until", LOSS_UNTIL)):
            if entry.get(name, stages[0]) not in stages:
                found.append(f"{at} has {name} {json.dumps(entry.get(name))[:VALUE_MAX]}, it must be {' or '.join(stages)}")
    return found


def is_whole(value: object) -> bool:
    """True for a whole number that is not below 0."""
    return type(value) is int and value >= 0


def is_text(value: object) -> bool:
    """True for a string that is not empty."""
    return isinstance(value, str) and bool(value)


def shown(spec: Mapping[str, Any], name: str) -> str:
    """The value of a field as JSON, cut to a readable length."""
    return json.dumps(spec[name])[:VALUE_MAX] if name in spec else "missing"


def history_files(run: Path) -> list[Path]:
    """The history files of a run, sorted by name. Raises JudgeError when all are empty, or an entry is not a file."""
    folder = run / "history"
    if not folder.is_dir():
        raise JudgeError(f"{run.name} has no history folder")
    files = sorted(path for path in folder.iterdir() if path.name.endswith(".jsonl"))
    for file in files:
        if not file.is_file():
            raise JudgeError(f"history file {file.name} of {run.name} is not a file")
    if not any(file.stat().st_size for file in files):
        raise JudgeError(f"the history of {run.name} is empty")
    return files


def torn_tail(path: Path) -> bytes:
    """The bytes after the last newline of a file. Not empty only if its writer was killed in the middle of a write."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        tail = b""
        while end and b"\n" not in tail:
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            tail = file.read(end - start) + tail
            end = start
    return tail.rpartition(b"\n")[2]
