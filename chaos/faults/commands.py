"""Commands to one server itself: what faults do to it, and what they ask it."""

from __future__ import annotations

from typing import Any

import redis

from chaos.errors import HarnessError
from engine.testing.server import NoAnswer, ask_server

#: A server that does not answer its operator for so long is broken.
PATIENCE_S = 5.0


def tell(port: int, *words: Any) -> Any:
    """One command to the server on this port. Raises HarnessError."""
    try:
        with redis.Redis(port=port, socket_timeout=PATIENCE_S, protocol=2) as client:
            return client.execute_command(*words)
    except redis.RedisError as error:
        raise HarnessError(f"server on port {port}: {words[0]}: {error}") from error


def refusals(port: int, code: str) -> int:
    """How often a server has answered with an error of this code, such as OOM, since it started. Raises HarnessError."""
    return int(tell(port, "INFO", "errorstats").get(f"errorstat_{code}", {}).get("count", 0))


def setting(port: int, name: str) -> str:
    """A setting of a server, as CONFIG GET says it. Raises HarnessError."""
    found = tell(port, "CONFIG", "GET", name)
    value = found[name.encode()] if isinstance(found, dict) else found[1]
    return value.decode()


def number_of(port: int, section: str, name: str) -> int:
    """A number of INFO. Raises OSError."""
    for line in ask_server(port, f"INFO {section}").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.partition(":")[2])
    raise NoAnswer(f"INFO {section}: no {name}")
