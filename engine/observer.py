"""The interface of observers of the engine. Without one it costs nothing; `engine.recorder` writes history rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engine.wire.call import Call
from engine.wire.operations import LeasedJob, Reply

#: When a call was meant to be sent, monotonic ns, None where nobody says; for a call that carries the jobs of several callers,
#: when each of them was.
Intended = int | tuple[int | None, ...] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: its reply, or the error. `definite` is False when a copy stayed unanswered. Times are monotonic ns."""

    reply: Reply | None
    error: str
    definite: bool
    applied: bool | None  # True: a reply came; False: certainly not applied; None: unknown
    sends: int
    errors: tuple[str, ...]
    first_send_ns: int
    last_send_ns: int
    done_ns: int


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The server behind a new connection."""

    run_id: str
    replid: str
    role: str


class Observer(Protocol):
    """Called from many threads. It must not raise."""

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """Called before the first send. The returned ticket is passed to `completed`."""
        ...

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """Called after the reply, or after giving up."""
        ...

    def connected(self, server: ServerIdentity) -> None:
        """Called after each handshake."""
        ...

    def configured(self, config: Mapping[str, object]) -> None:
        """The effective configuration of a worker, at its start and at every change."""
        ...

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        """Called before a handler runs. The returned ticket is passed to `handler_ended`."""
        ...

    def handler_ended(self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None) -> None:
        """Called after a handler returned (error None) or raised."""
        ...
