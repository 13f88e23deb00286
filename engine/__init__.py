"""Ironclaim: a compact Redis job engine. Handlers run at least once, fenced; a job is finished exactly once.

Public names load on first use, so that `import engine.history` needs the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.errors import (
        EngineError,
        LeaseLost,
        Malformed,
        OutcomeUnknown,
        ScriptFault,
        ServerUnavailable,
        UnsafeServer,
        UnsupportedFeature,
    )
    from engine.handlers import Handlers, Job
    from engine.operations import Counts, Enqueued, Snapshot
    from engine.queue import Queue
    from engine.worker import Worker

__version__ = "0.1.0"

_HOMES = {
    "engine.errors": (
        "EngineError",
        "LeaseLost",
        "Malformed",
        "OutcomeUnknown",
        "ScriptFault",
        "ServerUnavailable",
        "UnsafeServer",
        "UnsupportedFeature",
    ),
    "engine.handlers": ("Handlers", "Job"),
    "engine.operations": ("Counts", "Enqueued", "Snapshot"),
    "engine.queue": ("Queue",),
    "engine.worker": ("Worker",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Counts",
    "EngineError",
    "Enqueued",
    "Handlers",
    "Job",
    "LeaseLost",
    "Malformed",
    "OutcomeUnknown",
    "Queue",
    "ScriptFault",
    "ServerUnavailable",
    "Snapshot",
    "UnsafeServer",
    "UnsupportedFeature",
    "Worker",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module engine has no attribute {name}")
    return getattr(import_module(_HOME_OF[name]), name)
