"""Who watches from outside: spans and metrics of OpenTelemetry, errors to Sentry's SDK, and nothing where neither is there."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import sentry_sdk
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration

from engine.http.channels.observing import OpenTelemetry
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.webhooks.settings import WebhookRetry, WebhookSettings
from tests.engine.helpers.waiting import soon
from tests.engine.http.channels.desk import desk
from tests.engine.http.channels.receiver import Answer, Receiver

pytestmark = pytest.mark.feature("DS32", model="dsps")

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Watched:
    """Where spans and metrics of a test go."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider([self._reader])

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return [point for scope in scopes for metric in scope.metrics if metric.name == name for point in metric.data.data_points]

    def total(self, name: str) -> int:
        return sum(point.value for point in self.points(name))

    def settings(self, *hooks: WebhookSettings) -> ChannelSettings:
        return hooked(*hooks, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def hooked(*hooks: WebhookSettings, **settings: Any) -> ChannelSettings:
    return ChannelSettings(channels=(ChannelPolicy(webhooks=hooks),), **settings)


def hook(receiver: Receiver, count: int = 3) -> WebhookSettings:
    retry = WebhookRetry(count=count, interval_ms=1, interval_jitter_ms=0)
    return WebhookSettings(url=receiver.url, allow_networks=("127.0.0.0/8",), retry=retry)


def test_a_trace_goes_from_publisher_to_receiver_of_a_webhook(ironclaim_url: str, receiver: Receiver, watched: Watched) -> None:
    receiver.answers.append(Answer(503))
    with desk(ironclaim_url, watched.settings(hook(receiver))) as client:
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        assert client.put("/channel/chx/message/m1", content="1", headers=headers).status_code == 200
        soon(lambda: len(receiver.received) == 2, "the webhook arrives")
        soon(lambda: len(watched.spans("process webhooks")) == 2, "its delivery has ended")
    (request,) = watched.spans("PUT /channel/{channel}/message/{message}")
    deliveries = watched.spans("PUT")
    jobs = [*watched.spans("create webhooks"), *watched.spans("process webhooks")]
    assert len(jobs) == 3 and len(deliveries) == 2
    traces = {format(context.trace_id, "032x") for span in (request, *jobs, *deliveries) if (context := span.get_span_context())}
    assert traces == {TRACE} and [one.headers["traceparent"].split("-")[1] for one in receiver.received] == [TRACE, TRACE]
    assert request.kind is SpanKind.SERVER and {span.kind for span in deliveries} == {SpanKind.CLIENT}
    assert request.attributes is not None
    http = {"request.method": "PUT", "route": "/channel/{channel}/message/{message}", "response.status_code": 200}
    messaging = {"system": "dsps", "destination.name": "chx", "message.id": "m1", "message.body.size": 1}
    wanted = {f"{kind}.{name}": value for kind, of in (("http", http), ("messaging", messaging)) for name, value in of.items()}
    assert dict(request.attributes) == wanted
    assert [span.status.status_code for span in deliveries] == [StatusCode.ERROR, StatusCode.UNSET]


def test_metrics_count_requests_messages_and_what_was_given_up(ironclaim_url: str, receiver: Receiver, watched: Watched) -> None:
    receiver.answers.append(Answer(410))
    with desk(ironclaim_url, watched.settings(hook(receiver))) as client:
        client.subscribe("chx", "s1")
        for _ in range(2):
            client.publish("chx", "m1", "1")
        client.publish("chx", "m2", "{")
        fetched = client.fetch("chx", "s1").json()
        for _ in range(3):
            client.acknowledge("chx", "s1", fetched["ackHandle"])
        soon(lambda: watched.total("dsps.given_up") == 1, "the webhook is given up")
        polled = watched.spans("GET /channel/{channel}/subscription/polling/{subscriber}")
        assert [dict(span.attributes or {})["dsps.subscriber_id"] for span in polled] == ["s1"]
        # An answer may be read before it is counted.
        soon(lambda: watched.total("http.server.active_requests") == 0, "no request is under way")
        assert [watched.total(f"dsps.{name}") for name in ("published", "delivered", "acknowledged")] == [1, 1, 1]
        published = {
            point.attributes["http.response.status_code"]: point.count
            for point in watched.points("http.server.request.duration")
            if point.attributes["http.route"] == "/channel/{channel}/message/{message}"
        }
        assert published == {200: 2, 400: 1}
        (sent,) = watched.points("http.client.request.duration")
        assert (sent.attributes["http.response.status_code"], sent.count) == (410, 1)
        # Ids would make as many series as there are messages.
        names = {name for point in watched.points("http.server.request.duration") for name in point.attributes}
        assert names == {"http.request.method", "http.route", "http.response.status_code"}


def test_a_request_that_fails_is_an_error_and_one_that_is_refused_is_none(watched: Watched) -> None:
    with desk("redis://127.0.0.1:1/0", watched.settings()) as client:
        assert client.get("/probe/readiness").status_code == 500
        assert client.publish("CHX", "m1", "1").status_code == 400
    (failed,), (refused,) = watched.spans("GET /probe/readiness"), watched.spans("PUT /channel/{channel}/message/{message}")
    assert failed.status.status_code is StatusCode.ERROR and refused.status.status_code is StatusCode.UNSET


def test_without_opentelemetry_everything_works(ironclaim_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with desk(ironclaim_url, hooked(hook(receiver))) as client:
        assert client.publish("chx", "m1", "1").status_code == 200
        soon(lambda: receiver.received, "the webhook arrives")
    assert "traceparent" not in receiver.received[0].headers


@pytest.fixture
def sentry() -> Iterator[Receiver]:
    """A server that Sentry's SDK sends to, which is set up as services do, without what patches the libraries of other tests."""
    with Receiver() as made:
        none: dict[str, Any] = {"default_integrations": False, "auto_enabling_integrations": False}
        sentry_sdk.init(f"http://key@127.0.0.1:{made.port}/1", integrations=[LoggingIntegration(), DedupeIntegration()], **none)
        yield made
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)


def events(sentry: Receiver) -> list[Any]:
    """The events in the envelopes that have come."""
    found: list[Any] = []
    for envelope in sentry.received:
        headers = {"Content-Encoding": envelope.headers.get("content-encoding", "identity")}
        lines = httpx.Response(200, headers=headers, content=envelope.body).text.splitlines()
        items = zip(map(json.loads, lines[1::2]), lines[2::2], strict=True)
        found += [json.loads(payload) for header, payload in items if header["type"] == "event"]
    return found


def test_a_webhook_that_is_given_up_is_told_to_sentry(ironclaim_url: str, receiver: Receiver, sentry: Receiver) -> None:
    receiver.answers.extend([Answer(503)] * 2)
    with desk(ironclaim_url, hooked(hook(receiver, count=1))) as client:
        client.publish("chx", "m1", "1")
        soon(lambda: events(sentry), "it is told")
    sentry_sdk.flush(60)
    # Once, after the last attempt, with what it is about; the line of the log about the same error is no second event.
    (event,) = events(sentry)
    assert event["tags"] == {"channel": "chx", "message": "m1", "url": receiver.url}
    (error,) = event["exception"]["values"]
    assert "503" in error["value"] and sentry.received[0].path == "/api/1/envelope/"


def test_without_the_sdk_of_sentry_the_log_alone_hears_of_errors(
    ironclaim_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    receiver.answers.append(Answer(410))
    with desk(ironclaim_url, hooked(hook(receiver))) as client:
        client.publish("chx", "m1", "1")
        soon(lambda: [text for text in caplog.messages if "answered 410 " in text and "message m1" in text], "the log has it")
    assert "could not be reported" not in caplog.text


def test_a_report_that_fails_breaks_nothing(ironclaim_url: str, receiver: Receiver) -> None:
    def broken(error: BaseException, about: object) -> None:
        raise RuntimeError("the watcher is ill")

    receiver.answers.append(Answer(410))
    with desk(ironclaim_url, hooked(hook(receiver), report=broken)) as client:
        for id in ("m1", "m2"):
            client.publish("chx", id, "1")
        soon(lambda: len(receiver.received) == 2, "both were sent")


def test_what_fails_while_it_is_watched_fails(watched: Watched) -> None:
    telemetry = OpenTelemetry(watched.tracer_provider, watched.meter_provider)
    for watching in (telemetry.delivery("POST", "http://a", {}), telemetry.request("GET", "/a", {})):
        with pytest.raises(KeyError), watching:
            raise KeyError
    assert [span.status.status_code for span in (*watched.spans("POST"), *watched.spans("GET /a"))] == [StatusCode.ERROR] * 2
