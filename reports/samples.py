"""The samples of the harness: the CPU time that each process has used, and for how long it waited for a core, once a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reports.errors import row_of
from reports.facts import Usage

#: Path of the process samples in the folder of a run.
FILE = Path("samples", "processes.jsonl")

#: Nanoseconds in a second.
S = 1_000_000_000


def cpu_usage(run: Path) -> dict[str, tuple[Usage, ...]]:
    """Per process, what it used of a core from sample to sample. Processes without samples are absent."""
    found: dict[str, list[Usage]] = {}
    before: dict[tuple[str, int], tuple[int, float, float]] = {}
    for row in samples(run / FILE):
        try:
            name, pid, t_ns = str(row["proc"]), int(row["pid"]), int(row["t_ns"])
            used_s = float(row["cpu_user_s"]) + float(row["cpu_system_s"])
            waited_s = float(row.get("cpu_wait_s") or 0)
        except (KeyError, TypeError, ValueError):
            continue
        earlier = before.get((name, pid))
        before[name, pid] = (t_ns, used_s, waited_s)
        if earlier is not None and t_ns > earlier[0]:
            took_s = (t_ns - earlier[0]) / S
            # What a thread has waited is no longer counted once it has ended.
            waited = max(0.0, waited_s - earlier[2]) / took_s
            found.setdefault(name, []).append(Usage(earlier[0], t_ns, (used_s - earlier[1]) / took_s, waited))
    return {name: tuple(usages) for name, usages in found.items()}


def samples(path: Path) -> Iterator[dict[str, Any]]:
    """The readable rows of a file of samples."""
    try:
        with path.open("rb") as file:
            for line in file:
                row = row_of(line)
                if row is not None:
                    yield row
    except OSError:
        return
