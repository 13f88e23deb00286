"""How long keys were given to live, by the server's own clock: what TTL says is less by however long the test took to ask."""

from typing import Any


def now_ms(server: Any) -> int:
    """The server's time."""
    seconds, micros = server.time()
    return seconds * 1000 + micros // 1000


def all_given(server: Any, since_ms: int, ttl_s: int, *keys: str) -> bool:
    """Whether each of these keys was given so long to live between that time and now."""
    until_ms = now_ms(server)
    return all(since_ms <= server.pexpiretime(key) - ttl_s * 1000 <= until_ms for key in keys)
