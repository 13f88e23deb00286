"""What is asked of a capacity measurement: units, bounds, and answers that say what would be possible, before anything starts."""

import pytest

from chaos import cli
from chaos.capacity.command import request_of
from chaos.capacity.request import Request


def test_options_that_are_not_named_have_the_defaults_of_a_request() -> None:
    assert request_of(cli.parse(["capacity"])) == Request()
    words = "capacity --rate 5000 --p99-ms 60 --payload 1kb --handler-ms 5 --model bull --backlog 10m --step 5s"
    named = cli.parse(words.split())
    assert isinstance(named.payload_bytes, int)
    assert request_of(named) == Request(
        rate_per_s=5_000, p99_ms=60, payload_bytes=1_024, handler_ms=5, model="bull", backlog_s=600, step_s=5
    )


def test_what_is_said_to_be_possible_is_possible() -> None:
    Request(rate_per_s=5_000, workers=10)
    Request(rate_per_s=5_000, workers=2, handler_ms=4)
    Request(p99_ms=20.1)
    # A rate that nobody named the workers for is a question to the plan.
    assert Request(rate_per_s=5_000).workers_measured == 2


@pytest.mark.parametrize(
    ("changes", "first_per_s"),
    [({}, 50.0), ({"workers": 1, "handler_ms": 80}, 31.25), ({"workers": 1, "handlers_at_once": 1, "handler_ms": 70}, 100 / 15)],
)
def test_a_ramp_begins_where_the_handlers_have_room(changes: dict, first_per_s: float) -> None:
    assert Request(**changes).first_per_s == pytest.approx(first_per_s)
