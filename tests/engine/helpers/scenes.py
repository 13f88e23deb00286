"""Scenes of tests: what a queue holds when an operation comes, set up once and brought back as often as the test needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.wire.operations import Operation
from tests.engine.desk import Desk


def saved(desk: Desk, scene: Callable[[Desk], Operation]) -> Callable[[Desk], Operation]:
    """The scene, set up once: called again it brings back its keys and its time."""
    operation, now_ms = scene(desk), desk.now_ms
    keys: list[Any] = list(desk.redis.scan_iter(count=1000))
    dumped: list[Any] = [(key, desk.redis.dump(key), desk.redis.pexpiretime(key)) for key in keys]

    def start(desk: Desk) -> Operation:
        with desk.redis.pipeline(transaction=False) as pipe:
            pipe.flushall()
            for key, value, expires_ms in dumped:
                pipe.restore(key, max(expires_ms, 0), value, absttl=True)
            pipe.execute()
        desk.tick(now_ms - desk.now_ms)
        return operation

    return start
