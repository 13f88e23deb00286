"""The interface of observers of the engine, and how one is named. Without one it costs nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol

from engine.errors import Malformed, logger, meant_for_the_caller, spared
from engine.ops.base import Call, frozen
from engine.ops.claims import LeasedJob

log = logger("ironclaim")

_SAID = ("an observer failed",)

#: The environment variable that names who observes the queues of a process.
VARIABLE = "IRONCLAIM_OBSERVER"
_asking = threading.local()
_BOUND = "module:object of a callable that takes the name of a queue and returns its observer, or None"

#: When a call was meant to be sent, monotonic ns, None where nobody says; for a call that carries the jobs of
#: several callers, when each of them was.
Intended = int | tuple[int | None, ...] | None


@frozen
class Outcome:
    """How a call ended: its reply, or the error. `definite` is False when a copy stayed unanswered. Times are
    monotonic ns."""

    reply: object
    error: str
    definite: bool
    applied: bool | None  # True: a reply came; False: certainly not applied; None: unknown
    sends: int
    errors: tuple[str, ...]
    first_send_ns: int
    last_send_ns: int
    done_ns: int


@frozen
class ServerIdentity:
    """The server behind a new connection."""

    run_id: str
    replid: str
    role: str


class Observer(Protocol):
    """Called from many threads. What it raises is logged, and the call or run goes on."""

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

    def handler_ended(
        self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None
    ) -> None:
        """Called after a handler returned (error None) or raised."""
        ...


class SparedObserver:
    """An observer whose failures change nothing for who is observed. `leads_to`: the url that the calls of
    its queue go to in place of the queue's own; `under`: what the keys of the queue have before its own
    prefix then."""

    def __init__(self, observer: Observer, leads_to: str | None = None, under: str = "") -> None:
        self._observer = observer
        self.leads_to = leads_to
        self.under = under

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """As the observer does; None where it has failed."""
        return _spared(self._observer.invoked, call, first_send_ns, intended_ns)

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """As the observer does."""
        _spared(self._observer.completed, call, ticket, outcome)

    def connected(self, server: ServerIdentity) -> None:
        """As the observer does."""
        _spared(self._observer.connected, server)

    def configured(self, config: Mapping[str, object]) -> None:
        """As the observer does."""
        _spared(self._observer.configured, config)

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        """As the observer does; None where it has failed."""
        return _spared(self._observer.handler_started, job, start_ns)

    def handler_ended(
        self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None
    ) -> None:
        """As the observer does."""
        _spared(self._observer.handler_ended, job, ticket, start_ns, end_ns, error)


_METHODS = tuple(name for name in vars(SparedObserver) if not name.startswith("_"))


def spared_observer(observer: Observer | None) -> SparedObserver | None:
    """What the engine calls in place of an observer that it was given."""
    return observer if observer is None or isinstance(observer, SparedObserver) else SparedObserver(observer)


def observer_of(queue: str, given: Observer | None) -> SparedObserver | None:
    """What the engine calls for a queue: the observer that its caller gave, or else what the callable returns
    that `IRONCLAIM_OBSERVER=module:object` names. Only the latter may lead the queue to another server, by
    its `leads_to`, and under a prefix there, by its `under`. Raises Malformed where the variable names none,
    and what the callable raises."""
    reference = os.environ.get(VARIABLE)
    # A queue that the callable makes for itself has no observer: it would be asked for without end.
    if given is None and reference and not getattr(_asking, "on", False):
        found = _callable_of(reference)
        _asking.on = True
        try:
            given = found(queue)
        finally:
            _asking.on = False
        if not (given is None or all(hasattr(given, name) for name in _METHODS)):
            raise Malformed(VARIABLE, reference, f"{_BOUND} (it returned a {type(given).__name__})")
        if given is None:
            return None
        return SparedObserver(given, getattr(given, "leads_to", None), getattr(given, "under", ""))
    return spared_observer(given)


def _callable_of(reference: str) -> Callable[[str], Any]:
    module, _, name = reference.partition(":")
    try:
        found: Any = attrgetter(name)(import_module(module))
    except Exception as error:
        raise Malformed(VARIABLE, reference, f"{_BOUND} ({error})") from error
    if not callable(found):
        raise Malformed(VARIABLE, reference, f"{_BOUND} (it is a {type(found).__name__})")
    return found


def _spared(function: Callable[..., Any], *arguments: object) -> Any:
    return spared(function, *arguments, otherwise=None, log=log, said=_SAID, passes=meant_for_the_caller)
