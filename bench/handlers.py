"""Handlers of the workload: each does what its job's payload says, so that a run is as reproducible as its seed.

    IRONCLAIM_SINK=worker-1.sink.jsonl IRONCLAIM_PROC=worker-1 python -m engine worker bench.handlers:handlers --queue bench

The sink is the second witness of a run: one `effect` row per successful run, written by the handler and not by the engine.
It is opened when this module is imported, so that its file exists even if the worker is killed before its first effect.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from pathlib import Path

import engine
from bench.workload import NAMES, plan_of
from engine.recorder import Sink

#: Environment variables that name the sink's file and the process that writes it. Without the first there is no sink.
SINK_VARIABLE = "IRONCLAIM_SINK"
PROC_VARIABLE = "IRONCLAIM_PROC"


class PlannedFailure(Exception):
    """The workload wants this run to fail."""


def open_sink(environment: Mapping[str, str]) -> Sink | None:
    """The sink that the environment asks for, closed at the end of the process; None when it asks for none."""
    path = environment.get(SINK_VARIABLE)
    if not path:
        return None
    proc = environment.get(PROC_VARIABLE) or Path(path).name.removesuffix(".jsonl").removesuffix(".sink")
    sink = Sink(Path(path), proc=proc)
    atexit.register(sink.close)
    return sink


def run_planned(job: engine.Job, sink: Sink | None) -> None:
    """Wait `work_ms`, fail the first `fail_first` runs, else write the effect.

    A handler whose lease was lost writes its effect as well: it cannot know in time, and the checks need the late traffic.
    """
    # the wait stands for I/O: it holds a slot and no processor
    plan = plan_of(job.payload)
    time.sleep(plan["work_ms"] / 1000)
    if job.failures < plan["fail_first"]:
        raise PlannedFailure(f"planned failure {job.failures + 1} of {plan['fail_first']}")
    if sink is not None:
        sink.write(job)


_sink = open_sink(os.environ)

handlers = engine.Handlers()


def run(job: engine.Job) -> None:
    """The handler of every name: the payload alone decides."""
    run_planned(job, _sink)


for _name in NAMES:
    handlers(_name)(run)
