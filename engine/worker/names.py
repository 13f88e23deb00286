"""Names of workers: the one that a worker has unless told, and a warning where two have the same."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engine.logs import Source, about
from engine.spared import logger

if TYPE_CHECKING:
    from engine.queue.workers import WorkerInfo

log = logger("ironclaim.worker")

#: What a name may consist of, and how much of a host's name is taken.
_OTHERS = re.compile(r"[^A-Za-z0-9._-]")
_HOST_CHARACTERS_MAX = 64


def default_name() -> str:
    """`HOST-PID`: in containers all workers may have the same process id."""
    host = _OTHERS.sub("-", socket.gethostname())[:_HOST_CHARACTERS_MAX]
    return f"worker-{host}-{os.getpid()}"


def warn_of_namesakes(found: Iterable[WorkerInfo], source: Source) -> None:
    """Log that another worker of the queue has the name of this one, by the heartbeats of its workers."""
    for info in found:
        if info.name == source.worker and info.alive and not _is_gone(info):
            text = (
                "worker %s: there is another one of this name, on host %s with process id %d, heard of %d s ago; "
                "a pause, a target or a concurrency that names it means both"
            )
            log.warning(text, source.worker, info.host, info.pid, info.beat_age_ms // 1000, extra=about(None, source))
            return


def _is_gone(info: WorkerInfo) -> bool:
    """Whether this was an earlier run in this process, or in one of this host that has ended: its beats only count a little
    longer."""
    if info.host != socket.gethostname():
        return False
    if info.pid == os.getpid():
        return True
    try:
        os.kill(info.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # Somebody else's process.
        return False
    return False
