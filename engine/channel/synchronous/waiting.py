"""How threads and greenlets wait: for messages, and for the answers of several storages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.channel.steps import Answers, Round


class Waiter:
    """A thread or greenlet that rests in a fetch until there may be messages."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._closed = False

    def wake(self) -> None:
        """Wake it; from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Wake it for the last time: the channel is closed."""
        self._closed = True
        self._woken.set()

    def rest(self, most_ms: int) -> bool:
        """Wait until it is woken, or was since the last rest was over; at most so long. False when the
        channel is closed."""
        self._woken.wait(most_ms / 1000)
        self._woken.clear()
        return not self._closed


def ask_at_once(asked: Round, ask: Callable[[str], Answers]) -> dict[str, Answers]:
    """Ask several storages at once, each in a thread (or greenlet) of its own; the answers of those that gave
    them in time."""
    answers: dict[str, Answers] = {}
    broken: list[Exception] = []
    changed = threading.Condition()

    def ask_one(id: str) -> None:
        try:
            came = ask(id)
        except Exception as error:
            # Nobody else would hear of it, and who waits would wait for ever.
            broken.append(error)
            came = []
        with changed:
            answers[id] = came
            changed.notify()

    for id in asked.asks:
        threading.Thread(target=ask_one, args=(id,), name=f"ironclaim-storage-{id}", daemon=True).start()
    until_s: float | None = None
    with changed:
        while len(answers) < len(asked.asks):
            if until_s is None and asked.enough is not None and any(map(asked.enough, answers.values())):
                until_s = time.monotonic() + asked.grace_ms / 1000
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            changed.wait(left_s)
        if broken:
            raise broken[0]
        return dict(answers)
