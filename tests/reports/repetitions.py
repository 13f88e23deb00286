"""Judged runs with planted values, in folders as `compare` and `list` read them: no history, no Spark."""

import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

#: The value of each metric without noise. Recovery, rates and CPU time have a place of their own in a run's folder.
TYPICAL = {
    "end_to_end.p50.calm": 40.0, "end_to_end.p99.calm": 900.0, "end_to_end.p99.all": 1_100.0,
    "service.p99.all": 25.0, "finished_per_s": 118.0, "recovery_ms": 9_200.0, "cpu_ms_per_job": 4.0,
    "server_us_per_job": 900.0,
}  # fmt: skip

FINISHED = 10_000

SPEC: dict[str, Any] = {
    **{"schema": 1, "scenario": "bench", "model": "lanes", "mutant": "", "seed": 1, "rate_per_s": 120, "workers": 3},
    **{"lease_ms": 9_000, "plan": [], "calibration": {"rate_per_s": 120, "lag_ms": 1.0}},
    **{"versions": {"engine": "0.1.0", "python": "3.13.0"}, "git_commit": "a" * 40},
    "machine": {"cores": 2, "memory_bytes": 8 * 2**30, "kernel": "Linux 6", "python": "3.13.0", "load": [0.1, 0.2, 0.3]},
    **{"started_utc": "2026-01-01T00:00:00Z", "ended_utc": "2026-01-01T00:02:00Z"},
}


def noisy(draw: random.Random, share: float, factors: Mapping[str, float] | None = None) -> dict[str, float]:
    """The typical values, each times its factor, with noise whose standard deviation is that share."""
    return {name: value * (factors or {}).get(name, 1.0) * draw.lognormvariate(0, share) for name, value in TYPICAL.items()}


def sides(
    folder: Path, count: int, noise: float, factor: float = 1.0, only: Sequence[str] = tuple(TYPICAL), seed: int = 1
) -> tuple[list[Path], list[Path]]:
    """The runs of A and B, in turns: all values of B that `only` names are those of A times `factor`. `noise`: its standard
    deviation as a share."""
    draw, of_b = random.Random(seed), dict.fromkeys(only, factor)
    found: dict[str, list[Path]] = {"A": [], "B": []}
    for place in range(2 * count):
        side = "ABBA"[place % 4]
        spec = {"started_utc": f"2026-01-01T{place // 60:02d}:{place % 60:02d}:00Z", "git_commit": side.lower() * 40}
        name = f"20260101-{place // 60:02d}{place % 60:02d}00-bench-seed1-{side.lower()}"
        found[side].append(judged(folder / name, noisy(draw, noise, of_b if side == "B" else {}), **spec))
    return found["A"], found["B"]


def judged(run: Path, values: Mapping[str, float], verdict: str = "valid", **spec: Any) -> Path:
    """A run with its verdict and the CPU samples of its processes."""
    run.mkdir(parents=True)
    spec = {**deepcopy(SPEC), "id": run.name, **spec}
    (run / "spec.json").write_text(json.dumps(spec))
    (run / "verdict.json").write_text(json.dumps(decision(values, verdict, spec)))
    (run / "samples").mkdir()
    used_s = {"worker-1": values["cpu_ms_per_job"] * FINISHED / 1e3, "server": values["server_us_per_job"] * FINISHED / 1e6}
    rows = [
        {"t_ns": second, "proc": name, "pid": 7, "cpu_user_s": 1.0 + second * spent, "cpu_system_s": 0.5}
        for name, spent in {**used_s, "harness": 99.0}.items()
        for second in (0, 1)
    ]
    (run / "samples/processes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"proc')
    return run


def decision(values: Mapping[str, float], verdict: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The content of verdict.json. Both calm phases have the same percentiles."""
    scopes = {"lead-in": "calm", "worker-kill": "", "settle": "calm", "all": "all"}
    places = [(phase, scope, series) for phase, scope in scopes.items() for series in ("service", "end_to_end")]
    lines = [{"phase": one[0], "series": one[2], "n": 2_000, **percentiles(values, one[2], one[1])} for one in places]
    kills = [("1-worker-kill", 3, values["recovery_ms"]), ("2-worker-kill", 0, None)]
    measures = {
        **{"enqueued": FINISHED + 20, "finished": FINISHED, "percentiles": lines},
        "recovery": [{"fault": fault, "jobs": jobs, "recovery_ms": recovery_ms} for fault, jobs, recovery_ms in kills],
        "rates": {"offered_per_s": 120.0, "finished_per_s": values["finished_per_s"]},
    }
    reasons = [] if verdict == "valid" else ["J4 violated: job-1 was lost"]
    checks = [{"id": "J4", "verdict": verdict, "violations": int(verdict == "violated")}]
    found = {"schema": 1, "verdict": verdict, "reasons": reasons, "checks": checks, "findings": []}
    return {**found, "measures": measures, "spec": dict(spec)}


def percentiles(values: Mapping[str, float], series: str, scope: str) -> dict[str, float | None]:
    """The percentiles of a line; those of the fault's phase are far away."""
    return {f"{rank}_ms": values.get(f"{series}.{rank}.{scope}") if scope else 9e9 for rank in ("p50", "p99")}
