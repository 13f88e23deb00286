"""The soak: its plan, the lines that it fits, and short soaks on real parts, one of them with a leak."""

import argparse
import json
import math
import os
import random
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis

from chaos import runs, slopes, toxiproxy_binary
from chaos.cli import parse
from chaos.interrupts import Interrupts
from chaos.plan import FAULT_NAMES, PRODUCER, Pace, Plan, PlannedFault, worker_names
from chaos.progress import Progress
from chaos.slopes import LATENCY, MB, Slope, fit, latencies, percentiles, slope
from chaos.soaking import LEAKING, UNKNOWN, Soak, Times, draw, verdict
from chaos.spec import RunSpec
from chaos.targets.faults import is_gone
from tests.chaos.drills import pids_of, run, when
from tests.golden import Told, tells

TIMES = Times(6, warm_up_s=1, fault_every_s=2)


# -- the plan


def test_a_round_has_every_fault_once_and_the_first_worker_is_never_killed_nor_stopped() -> None:
    workers = worker_names(3)
    for seed in range(20):
        faults = draw(seed, workers, 18)
        assert faults == draw(seed, workers, 18)
        assert [{fault.name for fault in faults[at : at + 6]} for at in (0, 6, 12)] == [set(FAULT_NAMES)] * 3
        alive = set(workers)
        for fault in faults:
            if fault.name.startswith("worker-"):
                assert fault.target in alive - {"worker-1"}
            else:
                assert set(fault.targets) == {*alive, PRODUCER}
            if fault.replacement:
                alive = alive - {fault.target} | {fault.replacement}
        assert "worker-1" in alive and len(alive) == 3


# -- the lines


def samples(mb_per_minute: float, *, noise_mb: float = 0.0, seconds: int = 240, seed: int = 1) -> list[slopes.Sample]:
    """One a second, from second 1000 on, with noise that takes turns up and down like a server's buffers."""
    randomness = random.Random(seed)
    return [(1000.0 + at, 40 + at * mb_per_minute / 60 + noise_mb * (randomness.random() - 0.5)) for at in range(seconds + 1)]


@pytest.mark.parametrize("grows", [-3.0, 0.0, 0.5, 1.0, 20.0])
def test_the_line_through_a_straight_line_is_that_line(grows: float) -> None:
    line = slope("x", samples(grows), 1000, 1240)
    assert line.per_minute == pytest.approx(grows, abs=1e-6)
    assert (line.first, line.last, line.samples) == (pytest.approx(40), pytest.approx(40 + 4 * grows), 241)


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_hide_a_leak_nor_make_one(seed: int) -> None:
    assert abs(slope("x", samples(0, noise_mb=2, seed=seed), 1000, 1240).per_minute) < 0.5
    assert slope("x", samples(1.5, noise_mb=2, seed=seed), 1000, 1240).per_minute > 1


def test_what_is_outside_of_the_time_does_not_count() -> None:
    warm_up = [(1000.0 + at, 10.0 * at) for at in range(60)]
    assert slope("x", [*warm_up, *samples(0)[60:]], 1060, 1240).per_minute == pytest.approx(0, abs=1e-6)


def test_the_fit_is_that_of_the_definition() -> None:
    per_s, middle = fit([(0, 1), (1, 2), (2, 2), (3, 5)])
    assert (per_s, middle) == (pytest.approx(1.2), 2.5)


def test_too_few_samples_are_no_measurement() -> None:
    line = slope("x", samples(0)[:100], 1000, 1240)
    assert math.isnan(line.per_minute) and str(line) == "x: not measured, 100 samples, it needs 192"


def test_samples_are_read_from_the_files_of_a_run(tmp_path: Path) -> None:
    rows = [{"t_ns": 2_000_000_000, "proc": name, "rss_bytes": 7 * MB} for name in ("worker-1", "worker-2")]
    (tmp_path / "processes.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"t_ns":3')
    (tmp_path / "server.jsonl").write_text('{"t_ns":1000000000,"error":"away"}\n{"t_ns":2000000000,"used_memory":9000000}\n')
    assert slopes.process_memory(tmp_path, "worker-1") == [(2.0, 7.0)]
    assert (slopes.server_memory(tmp_path), slopes.server_memory(tmp_path / "nowhere")) == ([(2.0, 9.0)], [])


def test_the_interval_of_a_line_holds_the_truth_as_often_as_it_says() -> None:
    found = [slope("x", samples(1.5, noise_mb=2, seed=seed), 1000, 1240).interval for seed in range(100)]
    assert all(0 < high - low < 0.5 for low, high in found)
    assert sum(low <= 1.5 <= high for low, high in found) >= 88


def operation(kind: str, stage: str, *items: dict, done_ns: int = 0) -> str:
    row = {"kind": "operation", "f": kind, "type": stage, "done_ns": done_ns, "items": items}
    return json.dumps(row, separators=(",", ":")) + "\n"


def test_latencies_are_those_of_jobs_that_were_created_and_accepted_as_finished(tmp_path: Path) -> None:
    s_ns = 1_000_000_000
    made = [
        {"job": "plain", "delay_ms": 0, "intended_ns": 10 * s_ns, "result": "created"},
        {"job": "delayed", "delay_ms": 500, "intended_ns": 9 * s_ns, "result": "created"},
        {"job": "duplicate", "delay_ms": 0, "intended_ns": 9 * s_ns, "result": "duplicate"},
        {"job": "lost", "delay_ms": 0, "intended_ns": 9 * s_ns, "result": "created"},
    ]
    (tmp_path / "producer-1.jsonl").write_text(operation("enqueue", "invoke", *made) + operation("enqueue", "ok", *made))
    ended = {"plain": "ok", "delayed": "ok", "duplicate": "ok", "lost": "stale"}
    ends = [{"job": job, "result": result} for job, result in ended.items()]
    (tmp_path / "worker-1.jsonl").write_text(
        operation("finish", "ok", *ends, done_ns=11 * s_ns)
        + operation("finish", "ok", ends[0], done_ns=20 * s_ns)
        + '{"type":"ok","f":"finish"'
    )
    assert latencies(tmp_path, 100) == [(9.5, 1_500.0), (10.0, 1_000.0)]
    # Of too many jobs some are looked at.
    assert len(latencies(tmp_path, 1e9)) < 2


def test_percentiles_are_those_of_windows_of_ten_seconds() -> None:
    jobs = [(100 + at / 10, float(at % 100)) for at in range(250)]
    assert percentiles(jobs, 0.5, 100.0) == [(105, 49), (115, 49), (125, 24)]
    assert [value for _, value in percentiles(jobs, 0.99, 100.0)] == [98, 98, 49]


# -- the verdict


class Of(Soak):
    """A soak of which only what came of it counts."""

    def __init__(self, lines: list[Slope], *, errors: tuple[str, ...] = (), witnessed: tuple[int, int] = (10, 10)) -> None:
        self.errors, self.ended_s, self._lines, self._witnessed = list(errors), 1.0, lines, witnessed

    def slopes(self) -> list[Slope]:
        return self._lines

    def witnessed(self) -> tuple[int, int]:
        return self._witnessed


def told() -> Told:
    """False beats unknown, and a median that surely grows is a leak, too. The exit code, and the lines that are said."""
    dead, nan = {"errors": ("a worker died",)}, math.nan
    found: list[tuple[tuple[float, ...], dict[str, Any]]] = [
        *((grows, {}) for grows in ((0.0, 0.999), (0.0, -5.0), (1.0, 0.0), (0.0, 3.0), (0.0, nan), (2.0, nan))),
        *(((0.0, 0.0), dead), ((2.0, 0.0), dead), *(((0.0, 0.0), {"witnessed": (10, seen)}) for seen in (7, 8))),
    ]
    for grows, more in found:
        lines = [Slope("x", one, (one, one), 1, 1, 60, complaint="" if one == one else "no samples") for one in grows]
        yield f"{grows} {more}", (verdict(Of(lines, **more), Progress(out := StringIO())), out.getvalue().splitlines())
    for what, interval in (("median", (1.1, 3.0)), ("median", (0.9, 9.0)), ("median", (-3.0, -2.0)), ("p99", (5.0, 9.0))):
        line = Slope(f"{what} of latency", sum(interval) / 2, interval, 40, 60, 20, LATENCY)
        yield f"{what} {interval}", (verdict(Of([line]), Progress(out := StringIO())), out.getvalue().splitlines())


def test_what_was_measured_is_told() -> None:
    tells("chaos/soaks.txt", told)


# -- the command


def test_its_defaults() -> None:
    kept = {"runs": Path("runs"), "keep": 20, "keep_days": 14}
    assert parse(["run", "soak"]) == argparse.Namespace(command="run soak", minutes=5, hours=None, seed=1, **kept)


# -- short ones


def short(folder: Path) -> Soak:
    """A soak of seconds."""
    spec = RunSpec(runs.run_id("soak", 1, "", 0.0), seed=1, scenario="soak", lease_ms=1_500, sweep_ms=200)
    spec = replace(spec, consumers=0, rate_per_s=30, workers=2, concurrency=2)
    target = ",".join([*worker_names(spec.workers), PRODUCER])
    plan = Plan(1, Pace(), tuple(PlannedFault(f"{number}-net-down", "net-down", target, 0) for number in range(5)))
    made = Soak(spec, plan, runs.create(folder, spec.id), Progress(StringIO()), Interrupts(), toxiproxy=toxiproxy_binary.find())
    made.times = TIMES
    return made


def left_running(folder: Path) -> set[int]:
    """Processes of a run that live on; the soak itself ran in this one."""
    return {pid for pid in pids_of(folder) - {os.getpid()} if not is_gone(pid)}


@pytest.mark.slow
def test_a_short_soak_finds_a_leak_of_the_server_and_leaves_nothing_running(tmp_path: Path) -> None:
    """The leak is planted: some megabytes a second, beside the load."""
    made = short(tmp_path)

    def leak() -> bool:
        if made.begun_s and not made.ended_s:
            with redis.Redis.from_url(made._servers.url) as client:
                client.append("leak", b"x" * 50_000)
        return bool(made.ended_s)

    run(made, leak)
    assert made.errors == []
    faults, seen = made.witnessed()
    assert faults == seen > 0
    worker, server, median, p99 = made.slopes()
    assert worker.complaint == server.complaint == "" and worker.samples >= 4
    # Six seconds have one window of ten.
    assert (median.unit, p99.unit) == (LATENCY, LATENCY) and "needs 3" in median.complaint
    kept = {line["what"]: line for line in made.content()["lines"]}
    assert [point for point in kept["median of latency"]["points"] if point[1] > 0]
    assert len(kept["used_memory of the server"]["interval"]) == 2 and kept["median of latency"]["per_minute"] is None
    assert server.per_minute > 20 and verdict(made, Progress(StringIO())) == LEAKING
    assert not left_running(tmp_path)


@pytest.mark.slow
def test_a_soak_that_is_interrupted_is_unknown(tmp_path: Path) -> None:
    made = short(tmp_path)
    made.interrupts = interrupts = Interrupts()
    run(made, when(lambda: made.begun_s, lambda: setattr(interrupts, "_caught", "SIGINT")))
    out = StringIO()
    assert verdict(made, Progress(out)) == UNKNOWN
    assert out.getvalue().splitlines() == ["harness: interrupted by SIGINT", "soak: unknown, it was not carried out to its end"]
    assert not left_running(tmp_path)
