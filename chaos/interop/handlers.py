"""The handler of the engine's workers in a mixed run: it does what the payload says, as that of the adapter does.

IRONCLAIM_SINK=worker-1.sink.jsonl python -m engine worker chaos.interop.handlers:handlers --queue mixed --model bull
"""

from __future__ import annotations

import os
from typing import Any

import engine
from bench.handlers import open_sink, run_planned
from engine.models.bull import UNNAMED

_sink = open_sink(os.environ)

handlers = engine.Handlers()


@handlers(UNNAMED)
def run(job: engine.Job) -> Any:
    """Wait, fail as often as planned, else write the effect and return the value of the payload."""
    run_planned(job, _sink)
    return job.payload.get("value")
