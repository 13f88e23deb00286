"""What the Python adapters share: their order, the handlers, and the loops that enqueue. An order with a history is for a drill,
any other for a measurement. An adapter runs in the library's own environment: standard library alone."""

from __future__ import annotations

import asyncio
from typing import Any

from order import ORDER, PAYLOAD, SETTINGS

if "history" in ORDER:
    from drilled import job, job_async, produce, produce_async
else:
    from measured import job, job_async, produce, produce_async

__all__ = ["ORDER", "PAYLOAD", "SETTINGS", "job", "job_async", "produce", "produce_async", "run"]


def run(coroutine: Any) -> Any:
    """Run a coroutine on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)
