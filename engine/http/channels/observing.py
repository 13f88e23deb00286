"""What watches the channels' part from outside: spans and metrics where OpenTelemetry is installed, errors to
Sentry where its SDK is. Neither is needed, and without them this does nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from engine.errors import logger, spared
from engine.http.channels.settings import ChannelSettings, Report
from engine.opentelemetry import instrument
from engine.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import TracerProvider

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

    def request(
        self, method: str, route: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[Exchange]:
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
    return import_module("engine.http.channels.observing").OpenTelemetry(
        settings.tracer_provider, settings.meter_provider
    )


def report_of(settings: ChannelSettings) -> Report:
    """Who is told of errors: the service's own function, or Sentry's SDK where it is installed and the
    service has set it up. All of them are logged."""
    told = settings.report or _to_sentry

    def report(error: BaseException, about: Mapping[str, str]) -> None:
        # Before the log: the SDK reads that too, and keeps the first of two reports of one error alone.
        spared(told, error, about, otherwise=None, log=log, said=("an error could not be reported",))
        log.error(
            "%s (%s)", error, ", ".join(f"{name} {value}" for name, value in about.items()), exc_info=error
        )

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


# -- Spans and metrics of OpenTelemetry, with the names of its semantic conventions for HTTP, and the
# attributes of DSPS for channels.
#
# A request is a span `GET /channel/{channel}/...` (kind SERVER), a delivery of a webhook a span `PUT` (kind
# CLIENT). Between them are the spans of the job that carries it (`engine.opentelemetry`), all in the trace of
# the publisher. Times are histograms in seconds.

#: Bounds of the conventions, and those of long polls.
_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0)
_COUNTED = {
    "published": "Messages that were published.",
    "delivered": "Messages in answers to subscribers, again for those that come again.",
    "acknowledged": "Acknowledgements that moved a subscriber.",
    "given_up": "Webhook deliveries that were given up.",
}


class _Exchange:
    """One request and its answer."""

    def __init__(self, span: Span, attributes: dict[str, str | int], failure_from: int) -> None:
        self._span = span
        self._failure_from = failure_from
        self.attributes = attributes

    def about(self, attributes: Mapping[str, str | int]) -> None:
        """Note what it is about: on the span alone, for ids are too many for metrics."""
        self._span.set_attributes(attributes)

    def answered(self, status: int) -> None:
        """Note the status of the answer."""
        self.attributes["http.response.status_code"] = status
        self._span.set_attribute("http.response.status_code", status)
        if status >= self._failure_from:
            self.attributes["error.type"] = str(status)
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(Status(StatusCode.ERROR))


class OpenTelemetry:
    """Where requests, deliveries and messages are told; None: the global providers."""

    def __init__(self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None) -> None:
        self._tracer_provider = tracer_provider
        self._tracer = trace.get_tracer("ironclaim", __version__, tracer_provider)
        meter = metrics.get_meter("ironclaim", __version__, meter_provider)
        duration = "Duration of HTTP {} requests."
        self._served, self._sent = (
            meter.create_histogram(
                f"http.{side}.request.duration",
                "s",
                duration.format(side),
                explicit_bucket_boundaries_advisory=_BOUNDS_S,
            )
            for side in ("server", "client")
        )
        self._active = meter.create_up_down_counter(
            "http.server.active_requests", "{request}", "Requests that are being answered."
        )
        self._counters = {
            name: meter.create_counter(f"dsps.{name}", "{message}", about) for name, about in _COUNTED.items()
        }

    @contextlib.contextmanager
    def request(self, method: str, route: str, headers: Mapping[str, str]) -> Generator[_Exchange]:
        """A request that this server answers; the trace of the caller goes on."""
        attributes: dict[str, str | int] = {"http.request.method": method, "http.route": route}
        self._active.add(1, {"http.request.method": method})
        try:
            context = propagate.extract(headers)
            with (
                self._tracer.start_as_current_span(
                    f"{method} {route}", context, SpanKind.SERVER, attributes
                ) as span,
                self._timed(self._served, _Exchange(span, attributes, failure_from=500)) as exchange,
            ):
                yield exchange
        finally:
            self._active.add(-1, {"http.request.method": method})

    @contextlib.contextmanager
    def delivery(self, method: str, url: str, headers: dict[str, str]) -> Generator[_Exchange]:
        """A request that this process makes; `headers` get the trace."""
        attributes: dict[str, str | int] = {"http.request.method": method}
        with (
            self._tracer.start_as_current_span(
                method, None, SpanKind.CLIENT, {**attributes, "url.full": url}
            ) as span,
            self._timed(self._sent, _Exchange(span, attributes, failure_from=400)) as exchange,
        ):
            propagate.inject(headers)
            yield exchange

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter."""
        self._counters[name].add(number)

    def instrument(self, queue: QueueSettings, handlers: Handlers) -> None:
        """Let the jobs of this queue carry traces."""
        instrument(queue, handlers, tracer_provider=self._tracer_provider)

    @contextlib.contextmanager
    def _timed(self, histogram: Histogram, exchange: _Exchange) -> Generator[_Exchange]:
        began = time.monotonic()
        try:
            yield exchange
        except BaseException as error:
            exchange.attributes["error.type"] = type(error).__qualname__
            raise
        finally:
            histogram.record(time.monotonic() - began, exchange.attributes)
