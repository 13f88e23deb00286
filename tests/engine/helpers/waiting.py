"""Wait on conditions, never for a fixed time."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from engine import AsyncChannel, ConnectOptions
from record.history import load_file

T = TypeVar("T")
#: What is waited for before a test fails: on a slow and busy machine three processes that start at once take a quarter of it.
DEADLINE_S = 120.0
#: The same for what one process does that runs already: the next event of a stream, the answer to a long poll, a webhook.
STREAM_S = 30.0
#: How long a call would go on whose own, shorter deadline were forgotten.
DEFAULT_DEADLINE_S = ConnectOptions().deadline_ms / 1_000


def wait_until(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """The first true value of `condition`; fails with `what` when it does not come in time."""
    end_s = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end_s, f"not within {deadline_s} s: {what}"
        time.sleep(0.005)


def soon(condition: Callable[[], T], what: str) -> T:
    """The same for what a process does that runs already."""
    return wait_until(condition, what, STREAM_S)


async def seen(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, while the loop goes on."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def until_waits(channel: AsyncChannel, count: int = 1) -> None:
    """Wait until so many fetches of a channel wait for a publish."""
    await seen(lambda: len(channel._waiters) >= count)


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that another process may be writing: the last one only once its end is there. None without a file."""
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [line.decode() for line in whole]


def rows_of(path: Path, kind: str = "", **columns: object) -> list[dict[str, Any]]:
    """Rows of a history file (none while there is no file) that have these values in these columns."""
    if not path.exists():
        return []
    wanted = columns if not kind else {"kind": kind, **columns}
    return [row for row in load_file(path).rows if all(row[name] == value for name, value in wanted.items())]
