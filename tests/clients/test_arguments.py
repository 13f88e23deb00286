"""What the Python client refuses by itself: with field, value and bound, and before anything is sent."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ironclaim_client import Client, InvalidArgument, NewJob
from ironclaim_client.checks import duration_ms
from tests.engine.helpers.producing import refused

#: Nothing listens there: a call that were sent would raise ServerUnavailable.
NOWHERE = "http://127.0.0.1:9"
CALLS: dict[str, Callable[[Client], Any]] = {
    "queue": lambda client: client.queue(""),
    "name": lambda client: client.queue("q").enqueue(""),
    "id": lambda client: client.queue("q").job(".."),
    "idempotency_key": lambda client: client.queue("q").enqueue("n", id="a", idempotency_key="b"),
    "payload": lambda client: client.queue("q").enqueue("n", {1, 2}),
    "options": lambda client: client.queue("q").enqueue_many([NewJob(name="n", options={"payload": 1})]),
    "jobs": lambda client: client.queue("q").enqueue_many([]),
    "wait_ms": lambda client: client.queue("q").result("a", wait_ms=60_001),
    "timeout_ms": lambda client: client.queue("q").call("n", timeout_ms=-1),
    "channel": lambda client: client.channel("."),
    "content": lambda client: client.channel("c").publish(float("nan")),
    "subscriber": lambda client: client.channel("c").subscription(""),
    "receipt": lambda client: client.channel("c").acknowledge("s", "a\nb"),
    "max_messages": lambda client: client.channel("c").poll("s", max_messages=0),
}


@pytest.mark.parametrize("field", CALLS)
def test_a_wrong_argument_is_named_before_anything_is_sent(field: str) -> None:
    with Client(NOWHERE) as client, pytest.raises(InvalidArgument, match=f"^{field}: .* must be ") as caught:
        CALLS[field](client)
    assert caught.value.field == field and caught.value.bound


URLS = ["", "ftp://host", "//host", "http://", "http://user@host", "http://host?a=1", "http://host/#a", None, 3]


@pytest.mark.parametrize("url", URLS)
def test_an_address_is_checked(url: Any) -> None:
    refused(InvalidArgument, "^url: ", Client, url)


@pytest.mark.parametrize("token", ["", " a", "a\r\nX: y", "ä"])
def test_a_token_is_what_a_header_can_carry(token: str) -> None:
    refused(InvalidArgument, "^token: ", Client, NOWHERE, token=token)


def test_a_length_of_time_may_be_a_timedelta_and_is_rounded_up() -> None:
    assert duration_ms("wait_ms", timedelta(seconds=1, microseconds=1), 2_000) == 1_001
    refused(InvalidArgument, None, duration_ms, "wait_ms", timedelta(seconds=3), 2_000)
