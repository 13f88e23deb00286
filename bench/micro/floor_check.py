"""Compares our floor with another implementation of it, run alternately: a program that prints JSON lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.micro.drain import FLOOR_BATCH, drain_once
from bench.micro.floor import Floor
from bench.micro.place import ROOT, client, pinned_server
from engine.testing import server_binary

_TIMEOUT_S = 300
_THEIRS = {"bulk": "enqueue bulk of 100", "drain": f"drain, batch {FLOOR_BATCH}"}
#: Largest accepted relative difference of the two.
APART_MAX = 0.10


def compare(program: Path, jobs: int, repeat: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Jobs per second of both, one value per repetition, and the ratio of the best ones, ours / theirs. Each run takes seconds,
    so other load on the machine can affect one side more; the best runs are affected least."""
    rates: dict[str, dict[str, list[float]]] = {name: {"ours": [], "theirs": []} for name in _THEIRS}
    with pinned_server() as server:
        plain = client(server)
        floor = Floor(plain, server.port)
        for turn in range(repeat):
            for side in ("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"):
                if side == "theirs":
                    found = _theirs(program, jobs)
                else:
                    plain.flushall()
                    found = {"bulk": jobs / floor.bulk(jobs)}
                    plain.flushall()
                    floor.fill(jobs)
                    found["drain"] = jobs / drain_once(server.url, "", jobs, "floor", FLOOR_BATCH)["seconds"]
                for name, rate in found.items():
                    rates[name][side].append(rate)
            report(f"repetition {turn + 1} of {repeat}")
    ratios = {name: max(sides["ours"]) / max(sides["theirs"]) for name, sides in rates.items()}
    return {"jobs_per_s": rates, "ours_over_theirs": ratios, "close": all(abs(r - 1) <= APART_MAX for r in ratios.values())}


def _theirs(program: Path, jobs: int) -> dict[str, float]:
    command = [sys.executable, str(program), "--server", str(server_binary()), "--jobs", str(jobs), "--repeat", "1"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True).stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    return {name: next(row["jobs_per_s"] for row in rows if row["case"].startswith(start)) for name, start in _THEIRS.items()}
