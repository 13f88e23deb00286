"""The handler of the engine's workers in a mixed run: it does what the payload says, as that of the adapter does.

IRONCLAIM_SINK=worker-1.sink.jsonl python -m engine worker chaos.interop.handlers:handlers --queue mixed --model bull
"""

from __future__ import annotations

from typing import Any

import engine
from bench import handlers as drills
from engine.models.foreign.bull import UNNAMED

handlers = engine.Handlers()


@handlers(UNNAMED)
def run(job: engine.Job) -> Any:
    """Wait, fail as often as planned, else write the effect and return the value of the payload."""
    return drills.returning(job, job.payload.get("value"))
