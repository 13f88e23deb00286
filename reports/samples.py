"""The samples of the harness: the CPU time that each process has used, once a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reports.facts import Usage

#: Path of the process samples in the folder of a run.
FILE = Path("samples", "processes.jsonl")

#: Nanoseconds in a second.
S = 1_000_000_000


def cpu_usage(run: Path) -> dict[str, tuple[Usage, ...]]:
    """Per process, the share of a core that it used from sample to sample. Processes without samples are absent."""
    found: dict[str, list[Usage]] = {}
    before: dict[tuple[str, int], tuple[int, float]] = {}
    for row in samples(run / FILE):
        try:
            name, pid, t_ns = str(row["proc"]), int(row["pid"]), int(row["t_ns"])
            used_s = float(row["cpu_user_s"]) + float(row["cpu_system_s"])
        except (KeyError, TypeError, ValueError):
            continue
        earlier = before.get((name, pid))
        before[name, pid] = (t_ns, used_s)
        if earlier is not None and t_ns > earlier[0]:
            found.setdefault(name, []).append(Usage(earlier[0], t_ns, (used_s - earlier[1]) * S / (t_ns - earlier[0])))
    return {name: tuple(usages) for name, usages in found.items()}


def samples(path: Path) -> Iterator[dict[str, Any]]:
    """The readable rows of a file of samples."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict):
                    yield row
    except OSError:
        return
