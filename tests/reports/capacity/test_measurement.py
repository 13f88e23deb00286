"""The file of a measurement: what is read, and what a wrong field is answered with."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.capacity.measurement import Bin, read
from reports.errors import JudgeError
from tests.reports.capacity.planted import Row, content, write


@pytest.fixture(scope="module")
def plain() -> Row:
    """A small one."""
    return content(counts=(1,))


def test_everything_is_read(tmp_path: Path, plain: Row) -> None:
    """What plans are made of is told by their whole texts."""
    found = read(write(tmp_path, plain))
    assert read(tmp_path / "measurement.json") == found and found.steps[0].waiting.slope_interval == (0.0, 0.2)
    assert found.steps[0].latency_ms.histogram[0] == Bin(*plain["steps"][0]["latency_ms"]["histogram"][0])


def without(name: str) -> Callable[[Row], Any]:
    """Take a field away."""
    return lambda made: made.pop(name)


WRONG_FIELDS = [
    (without("target"), "measurement.json.target is missing"),
    (lambda made: made["target"].update(p99_ms=0), r"target.p99_ms is 0.0, it must be above 0"),
    (lambda made: made["target"].update(payload_bytes="2kb"), r"target.payload_bytes is '2kb', it must be a whole number"),
    (lambda made: made["steps"][1].update(workers=True), r"steps\[1\].workers is True, it must be a whole number"),
    (lambda made: made["steps"][0].update(meets=1), r"steps\[0\].meets is 1, it must be true or false"),
    (lambda made: made["steps"][0]["latency_ms"].update(p99=float("nan")), r"latency_ms.p99 is nan, it must be a number"),
    (lambda made: made["steps"][0]["latency_ms"].update(histogram=[[5, 1, 3]]), r"histogram\[0\] is .*lower_ms <= upper_ms"),
    (lambda made: made["steps"][0]["waiting"].update(slope_interval=[1]), r"slope_interval is \[1\], it must be a list of 2"),
    (lambda made: made["recovery"]["worker-kill"].update(ms=-1), r"recovery.worker-kill.ms is -1.0, it must be at least 0"),
    (lambda made: made.update(schema=1), "not of schema 2"),
    (lambda made: [step.update(meets=False) for step in made["steps"]], "none of the 2 steps met its target"),
]


@pytest.mark.parametrize(("spoil", "words"), WRONG_FIELDS)
def test_a_wrong_field_is_named(tmp_path: Path, plain: Row, spoil: Callable[[Row], object], words: str) -> None:
    made = copy.deepcopy(plain)
    made["steps"] = made["steps"][3:5]
    spoil(made)
    with pytest.raises(JudgeError, match=words) as caught:
        read(write(tmp_path, made))
    assert "\n" not in str(caught.value)
