# Generated from engine/channel/asynchronous/storage.py by "make generate"; do not edit.
"""One channel in one storage: runs its operations and calls listeners after publications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.channel.steps import Answers, Ask
from engine.redis.exchange import Sent

#: What is called after a publication, from any thread, also with nobody waiting any more; it must be short and not raise.
Listener = Callable[[], None]


class OpenStorage(Protocol):
    """One channel in one storage."""

    @property
    def live(self) -> bool:
        """Whether listeners are called for every message that is published from now on. While it is
        not so, waiting calls poll. Listeners are called as well when it begins and when it ends."""
        ...

    def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Run an operation. One that was refused as late, with no copy unanswered, has been made and sent once more. Raises
        OutcomeUnknown, ServerUnavailable, ScriptFault, UnsafeServer."""
        ...

    def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> Answers:
        """Run several, at most 100, in one piece where that is possible; what came of each, in their order."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each publication from now on. Does not wait: until `live`, publications may be missed."""
        ...

    def unlisten(self, listener: Listener) -> None:
        """Do not call `listener` any more."""
        ...

    def close(self) -> None:
        """Close what is open; it opens again with the next use."""
        ...
