"""What the Python client refuses by itself: with field, value and bound, and before anything is sent."""

from datetime import timedelta

from ironclaim_client import Client, InvalidArgument, NewJob, Retries
from ironclaim_client.checks import duration_ms
from tests import golden
from tests.engine.helpers.producing import refused


def test_a_wrong_argument_is_named_before_anything_is_sent() -> None:
    """Nothing listens there: a call that were sent would raise ServerUnavailable."""
    kinds = {"Client": Client, "NewJob": NewJob, "Retries": Retries, "duration_ms": duration_ms, "timedelta": timedelta}
    with Client("http://127.0.0.1:9") as client:
        golden.refusals("clients/refused.txt", {"client": client, **kinds}, InvalidArgument)
        refused(InvalidArgument, "^content: nan must be ", client.channel("c").publish, float("nan"))
    assert refused(InvalidArgument, "^first_ms: 1.5 must be ", Retries, first_ms=1.5).value == 1.5


def test_a_length_of_time_may_be_a_timedelta_and_is_rounded_up() -> None:
    assert duration_ms("wait_ms", timedelta(seconds=1, microseconds=1), 2_000) == 1_001
