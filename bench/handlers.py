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
from bench.workload import NAMES, plan_of
from engine.history import SCHEMA_VERSION
from engine.recorder import Sink

#: Environment variables for the sink's file and the name of the process that writes it. Without the first there is no sink.
SINK_VARIABLE = "IRONCLAIM_SINK"
PROC_VARIABLE = "IRONCLAIM_PROC"

#: The version of the history from which on a sink takes results.
RESULTS_SINCE = 8

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
    time.sleep(plan["work_ms"] / 1000)
    if job.failures < plan["fail_first"]:
        raise PlannedFailure(f"planned failure {job.failures + 1} of {plan['fail_first']}")
    if sink is not None and SCHEMA_VERSION >= RESULTS_SINCE:
        sink.write(job, result)
    elif sink is not None:
        # A drill may run an older engine as well, whose sink takes no result.
        sink.write(job)


_sink = open_sink(os.environ)

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
