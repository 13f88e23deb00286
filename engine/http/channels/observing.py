"""What watches the channels' part from outside: spans and metrics where OpenTelemetry is installed, errors to Sentry where its
SDK is. Neither is needed, and without them this does nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from engine.errors import logger, spared
from engine.http.channels.settings import ChannelSettings, Report

if TYPE_CHECKING:
    from engine.handlers import Handlers
    from engine.queue.settings import QueueSettings

log = logger("ironclaim.http")


class Exchange(Protocol):
    """One request and its answer."""

    def about(self, attributes: Mapping[str, str | int]) -> None:
        """Note what it is about."""
        ...

    def answered(self, status: int) -> None:
        """Note the status of the answer."""
        ...


class Telemetry(Protocol):
    """Where requests, deliveries and messages are told."""

    def request(self, method: str, route: str, headers: Mapping[str, str]) -> AbstractContextManager[Exchange]:
        """A request that this server answers; the trace of the caller goes on."""
        ...

    def delivery(self, method: str, url: str, headers: dict[str, str]) -> AbstractContextManager[Exchange]:
        """A request that this process makes; `headers` get the trace."""
        ...

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter: `published`, `delivered`, `acknowledged`, `given_up`."""
        ...

    def instrument(self, queue: QueueSettings, handlers: Handlers) -> None:
        """Let the jobs of this queue carry traces."""
        ...


class _Untold:
    """An exchange that nobody watches."""

    def about(self, attributes: Mapping[str, str | int]) -> None:
        """Nothing."""

    def answered(self, status: int) -> None:
        """Nothing."""


class NoTelemetry:
    """Without OpenTelemetry."""

    @contextlib.contextmanager
    def request(self, method: str, route: str, headers: Mapping[str, str]) -> Generator[Exchange]:
        """Nothing is told."""
        yield _Untold()

    @contextlib.contextmanager
    def delivery(self, method: str, url: str, headers: dict[str, str]) -> Generator[Exchange]:
        """Nothing is told."""
        yield _Untold()

    def count(self, name: str, number: int = 1) -> None:
        """Nothing."""

    def instrument(self, queue: QueueSettings, handlers: Handlers) -> None:
        """Nothing."""


def telemetry_of(settings: ChannelSettings) -> Telemetry:
    """Spans and metrics, where OpenTelemetry is installed."""
    if find_spec("opentelemetry") is None:
        return NoTelemetry()
    return import_module("engine.http.channels.telemetry").OpenTelemetry(settings.tracer_provider, settings.meter_provider)


def report_of(settings: ChannelSettings) -> Report:
    """Who hears of errors: the service's own function, or Sentry's SDK where it is installed and the service has set it up. The
    log hears of all of them."""
    told = settings.report or _to_sentry

    def report(error: BaseException, about: Mapping[str, str]) -> None:
        # Before the log: the SDK reads that too, and keeps the first of two reports of one error alone.
        spared(told, error, about, otherwise=None, log=log, said=("an error could not be reported",))
        log.error("%s (%s)", error, ", ".join(f"{name} {value}" for name, value in about.items()), exc_info=error)

    return report


def _to_sentry(error: BaseException, about: Mapping[str, str]) -> None:
    if find_spec("sentry_sdk") is None:
        return
    sdk: Any = import_module("sentry_sdk")
    # Without a set-up of the service's own the SDK sends nothing.
    with sdk.new_scope() as scope:
        for name, value in about.items():
            scope.set_tag(name, value)
        scope.capture_exception(error)
