"""Handlers of the workload: each does what its job's payload says, so that the same seed gives the same run.

    IRONCLAIM_SINK=worker-1.sink.jsonl IRONCLAIM_PROC=worker-1 python -m engine worker bench.handlers:handlers --queue bench

The sink is the second witness of a drill: one `effect` row per successful handler run, written by the handler and not by the
engine. It is opened when this module is imported, so that its file exists even if the worker is killed before its first effect.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import engine
from bench.workload import CONTROL_VARIABLE, GROW_VARIABLE, NAMES, plan_of
from record.recorder import Sink

#: Environment variables for the sink's file and the name of the process that writes it. Without the first there is no sink.
SINK_VARIABLE = "IRONCLAIM_SINK"
PROC_VARIABLE = "IRONCLAIM_PROC"

#: How much a handler takes at a time when it is to take too much, and how long it takes for that.
GROW_BYTES = 4 << 20
GROW_S = 0.01

R = TypeVar("R")


class PlannedFailure(Exception):
    """Raised by a handler run that fails as planned by the workload."""


def open_sink(environment: Mapping[str, str]) -> Sink | None:
    """The sink named by the environment, closed at process exit; None without one."""
    path = environment.get(SINK_VARIABLE)
    if not path:
        return None
    proc = environment.get(PROC_VARIABLE) or Path(path).name.removesuffix(".jsonl").removesuffix(".sink")
    sink = Sink(Path(path), proc=proc)
    atexit.register(sink.close)
    return sink


def run_planned(job: engine.Job, sink: Sink | None, result: object) -> None:
    """Wait `work_ms`, then raise PlannedFailure in the first `fail_first` runs, else write the effect, with the result that the
    handler will return.

    A handler writes its effect even if its lease was lost meanwhile: it cannot know in time, and the checks need such late
    effects.
    """
    # The wait simulates I/O: it occupies a slot but no CPU.
    plan = plan_of(job.payload)
    if _grow_file is not None and _grow_file.exists():
        grow(_grow_file)
    time.sleep(plan["work_ms"] / 1000)
    if sink is not None and _says_clock:
        sink.clock()
    if job.failures < plan["fail_first"]:
        raise PlannedFailure(f"planned failure {job.failures + 1} of {plan['fail_first']}")
    if sink is not None:
        sink.write(job, result)


def grow(file: Path) -> None:
    """Take as many bytes as the file says, piece by piece, and keep them, until somebody ends this process for it."""
    try:
        size = int(file.read_text())
        file.unlink()
    except FileNotFoundError:
        # Another handler of this process was quicker.
        return
    for _ in range(size // GROW_BYTES):
        # Not zeros: those would be promised by the kernel and not taken.
        _taken.append(b"\1" * GROW_BYTES)
        time.sleep(GROW_S)


_sink = open_sink(os.environ)
_says_clock = CONTROL_VARIABLE in os.environ
_grow_file = Path(os.environ[GROW_VARIABLE]) if GROW_VARIABLE in os.environ else None
_taken = list[bytes]()

handlers = engine.Handlers()


def run(job: engine.Job) -> dict[str, Any]:
    """The handler of every job name; its behaviour depends only on the payload, and each run of each job returns another result,
    so that a result in the wrong place is seen."""
    return returning(job, {"job": job.id, "fence": job.fence})


def returning(job: engine.Job, result: R) -> R:
    """Run the job as its payload says, and return this result."""
    run_planned(job, _sink, result)
    return result


for _name in NAMES:
    handlers(_name)(run)
