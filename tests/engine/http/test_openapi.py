"""The OpenAPI document says what the application does: a fuzzer that believes it finds nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

from engine import Handlers, Queue, options, testing
from engine.http.application import application, document
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings, Token
from tests.engine.http import fuzzing, serving
from tests.engine.http.channels.desk import ADMIN, desk


def fill(queue: Queue) -> None:
    """Some jobs, and a schedule."""
    queue.enqueue_many([{"name": "a", "payload": at, "id": f"j{at}"} for at in range(5)])
    queue.schedules.put("s", "a", every_ms=3_600_000)


@pytest.fixture
def base(ironclaim_url: str, queue: Queue) -> Iterator[str]:
    """Of an application that may change everything, beside a queue with some jobs."""
    fill(queue)
    settings = HttpSettings(url=ironclaim_url, allow_changes=True, show_payloads=True, poll_max_ms=50)
    with serving.served(settings) as made:
        yield made


@pytest.mark.nightly
@pytest.mark.timeout(fuzzing.CAMPAIGN_S)
@pytest.mark.parametrize("changes", [True, False], ids=["an admin", "anybody, to look"])
def test_a_campaign_finds_nothing(ironclaim_url: str, queue: Queue, tmp_path: Path, changes: bool) -> None:
    fill(queue)
    more: Any = {"allow_changes": changes, "tokens": (Token(secret=ADMIN, role="admin"),) if changes else ()}
    # A schema does not say which options of a job need, or exclude, each other.
    unfit = [("POST", "^/api/queues/[^/]+/jobs(/batch)?$", "positive_data_acceptance")]
    with serving.served(HttpSettings(url=ironclaim_url, show_payloads=True, poll_max_ms=50, **more)) as made:
        fuzzing.campaign(made, tmp_path, "^/api/", unfit, ADMIN if changes else "")


@pytest.mark.slow
@pytest.mark.feature("BN34")
def test_a_fuzzer_finds_nothing(base: str) -> None:
    """It asks for everything that the document has, well and badly; schemathesis judges the answers. Streams do not end, so those
    are not asked for."""
    schema, tried = schemathesis.openapi.from_url(f"{base}/openapi.json"), 0
    for found in schema.exclude(path_regex="/events$").get_all_operations():
        operation: Any = found.ok()  # pyright: ignore[reportAttributeAccessIssue]
        puts_jobs = operation.method == "post" and operation.path.endswith(("{queue}/jobs", "/batch"))
        # A schema does not say which options of a job need, or exclude, each other.
        fuzzing.ask(operation, 100, [positive_data_acceptance] if puts_jobs else [])
        tried += 1
    assert tried > 25


def test_the_document_has_every_route_and_every_option_of_jobs() -> None:
    settings = HttpSettings()
    app = application(settings)
    printed = document(app.routes, settings)
    paths = {route.path for route in app.routes if route.path.startswith("/api")}  # pyright: ignore[reportAttributeAccessIssue]
    assert paths and paths == set(printed["paths"])
    body = printed["paths"]["/api/queues/{queue}/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"name", "payload", "id", *options.OPTIONS}
    polls = printed["paths"]["/api/queues/{queue}/jobs/{id}/result"]["get"]["parameters"]
    assert [each["schema"]["maximum"] for each in polls if each["name"] == "wait_ms"] == [settings.poll_max_ms]


def test_the_document_has_every_member_of_a_job_and_of_its_result(base: str, queue: Queue) -> None:
    queue.enqueue("raw", b"\xff", id="raw", serializer="raw", delay_ms=600_000)
    queue.enqueue("fail", None, id="fail", attempts=1)
    handlers = Handlers()
    handlers("a")(lambda job: job.payload)
    handlers("fail")(lambda job: 1 / 0)
    testing.run_all(queue, handlers, raise_failures=False)
    paths = httpx.get(f"{base}/openapi.json", timeout=120).json()["paths"]
    of_job = "/api/queues/{queue}/jobs/{id}"
    for path, ids in ((of_job, ("fail", "raw")), (f"{of_job}/result", ("j1", "fail"))):
        declared = paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
        found = [httpx.get(base + path.format(queue="q", id=id), timeout=120).json() for id in ids]
        assert set(declared) >= set().union(*found), path


# -- channels

OPERATIONS, PATHS = 10, "^/(channel|admin|probe)/"


def test_what_is_not_let_in_is_refused_as_the_document_says(ironclaim_url: str) -> None:
    with desk(ironclaim_url) as client:
        refused, told = client.publish("chx", "%7F", "1"), client.publish("chx", "NO", "1")
        paths = client.get("/openapi.json").json()["paths"]
    declared = paths["/channel/{channel}/message/{message}"]["put"]["responses"]["400"]["content"]
    assert {refused.status_code, told.status_code} == {400}
    assert set(declared) == {refused.headers["content-type"], told.headers["content-type"]}


@pytest.mark.nightly
@pytest.mark.timeout(fuzzing.CAMPAIGN_S)
@pytest.mark.parametrize("changes", [True, False], ids=["an admin", "anybody, to look"])
@pytest.mark.usefixtures("levels")
def test_a_campaign_finds_nothing_in_channels(ironclaim_url: str, tmp_path: Path, changes: bool) -> None:
    # A schema does not say what a fetch has given.
    unfit, channels = [("DELETE", "/message$", "positive_data_acceptance")], ChannelSettings(admin_tokens=(ADMIN,))
    with desk(ironclaim_url, channels, poll_max_ms=50, allow_changes=changes) as client:
        fuzzing.campaign(str(client.base_url).rstrip("/"), tmp_path, PATHS, unfit, ADMIN if changes else "")


@pytest.mark.slow
@pytest.mark.feature("DS33", model="dsps")
@pytest.mark.usefixtures("levels")
def test_a_fuzzer_finds_nothing_in_channels(ironclaim_url: str) -> None:
    """It asks for everything of the channel API."""
    tried: set[tuple[str, str]] = set()
    with desk(ironclaim_url, ChannelSettings(admin_tokens=(ADMIN,)), poll_max_ms=50) as client:
        schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
        for found in schema.include(path_regex=PATHS).get_all_operations():
            operation: Any = found.ok()  # pyright: ignore[reportAttributeAccessIssue]
            # A schema does not say what a fetch has given, nor how deep a content may be.
            unfit = operation.method == "delete" and operation.path.endswith("/message")
            fuzzing.ask(operation, 50, [positive_data_acceptance] if unfit else [], serving.bearer(ADMIN))
            tried.add((operation.method, operation.path))
    assert len(tried) == OPERATIONS
