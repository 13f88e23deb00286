"""What is asked of a capacity measurement: units, bounds, and answers that say what would be possible, before anything starts."""

import argparse

import pytest

from chaos import cli, errors
from chaos.capacity.command import request_of
from chaos.capacity.options import DURATIONS, SIZES, quantity
from chaos.capacity.request import Request

READ = [("2kb", SIZES, 2_048), ("200", SIZES, 200), ("1.5MB", SIZES, 1_572_864), ("1h", DURATIONS, 3_600), ("90", DURATIONS, 90)]


@pytest.mark.parametrize(("text", "units", "value"), READ)
def test_a_quantity_has_its_unit(text: str, units: dict[str, float], value: float) -> None:
    assert quantity(units)(text) == value


@pytest.mark.parametrize("text", ["", "kb", "2zb", "-1kb", "2 kb kb", "1e9h"])
def test_what_is_no_quantity_is_refused_by_the_units_that_there_are(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="b, kb, mb"):
        quantity(SIZES)(text)


def test_options_that_are_not_named_have_the_defaults_of_a_request() -> None:
    assert request_of(cli.parse(["capacity"])) == Request()
    words = "capacity --rate 5000 --p99-ms 60 --payload 1kb --handler-ms 5 --model bull --backlog 10m --step 5s"
    named = cli.parse(words.split())
    assert isinstance(named.payload_bytes, int)
    assert request_of(named) == Request(
        rate_per_s=5_000, p99_ms=60, payload_bytes=1_024, handler_ms=5, model="bull", backlog_s=600, step_s=5
    )


CANNOT_BE = [
    ({"rate_per_s": 0}, "rate is 0: it must be above 0; 2 workers of 10 handlers that take 20 ms can do at most 1000 jobs/s"),
    ({"rate_per_s": -3}, "rate is -3: it must be above 0"),
    ({"rate_per_s": float("nan")}, "rate is nan: it must be above 0"),
    ({"rate_per_s": 5_000, "workers": 2}, "at most 1000 jobs/s; possible are 10 workers, or handlers of at most 4 ms"),
    ({"p99_ms": 15}, "p99_ms is 15: the handler alone takes 20 ms, so no rate meets it; possible is a target above 20"),
    ({"p99_ms": 20}, "possible is a target above 20"),
    ({"handler_ms": 9_000, "p99_ms": 30_000}, "at most 2.22 jobs/s, too few for a p99 in 15 s; possible are handlers"),
    ({"payload_bytes": 0}, "payload_bytes is 0: it must be from 64 to 1048576"),
    ({"step_s": 0}, "step_s is 0: it must be from 1 to 600"),
    ({"workers": 0}, "workers is 0: it must be from 1 to 32"),
    ({"model": "sql"}, "model 'sql' does not exist; choose from lanes"),
    ({"topology": "ring"}, "topology 'ring' does not exist; choose from embedded"),
    ({"topology": "cluster", "model": "bull"}, "topology 'cluster': the keys of a queue of bull are in many slots; possible"),
]


@pytest.mark.parametrize(("changes", "line"), CANNOT_BE)
def test_what_cannot_be_is_answered_in_one_line_with_what_can(changes: dict, line: str) -> None:
    with pytest.raises(errors.HarnessError) as refused:
        Request(**changes)
    assert line in str(refused.value) and "\n" not in str(refused.value)


def test_what_is_said_to_be_possible_is_possible() -> None:
    Request(rate_per_s=5_000, workers=10)
    Request(rate_per_s=5_000, workers=2, handler_ms=4)
    Request(p99_ms=20.1)
    # A rate that nobody named the workers for is a question to the plan.
    assert Request(rate_per_s=5_000).workers_measured == 2


@pytest.mark.parametrize(("handler_ms", "target_ms"), [(20, 100), (200, 1_000), (5, 25), (0.5, 25)])
def test_a_target_that_nobody_names_leaves_the_handler_room_to_queue(handler_ms: float, target_ms: float) -> None:
    assert Request(handler_ms=handler_ms).p99_target_ms == target_ms
    assert Request(handler_ms=handler_ms, p99_ms=300).p99_target_ms == 300


@pytest.mark.parametrize(
    ("changes", "first_per_s"),
    [({}, 50.0), ({"workers": 1, "handler_ms": 80}, 31.25), ({"workers": 1, "handlers_at_once": 1, "handler_ms": 70}, 100 / 15)],
)
def test_a_ramp_begins_where_the_handlers_have_room(changes: dict, first_per_s: float) -> None:
    assert Request(**changes).first_per_s == pytest.approx(first_per_s)
