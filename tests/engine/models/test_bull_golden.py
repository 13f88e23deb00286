"""The life of five jobs, and after each step the whole keyspace next to the dumps of the original (tests/conformance/golden)."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.outcomes import backoff_delay_ms
from tests.conformance.keyspace import differences, dump, expected
from tests.engine.helpers.bull_desk import START_MS, BullDesk, bull
from tests.engine.helpers.by_hand import altered
from tests.engine.ops import Failure, LeasedJob, NoteProgress, Retry

__all__ = ["bull"]

FILE = Path(__file__).parents[2] / "conformance" / "golden" / "bull.json"
PAYLOAD = {"msg": "hello", "n": 1}
#: Bull divides scores by 4096 where it publishes times: the id's low bits stay behind the point.
NAMES = {
    "now": str(START_MS), "score3": str((START_MS + 60000) * 4096 + 3), "again4": str((START_MS + 2000) * 4096 + 4),
    "eta3": f"{START_MS + 60000}.0007", "eta4": f"{START_MS + 2000}.001",
}  # fmt: skip


class Golden:
    """The file, and a desk that is held against it."""

    def __init__(self, desk: BullDesk) -> None:
        self.desk = desk
        self.file: Any = expected(FILE, NAMES)

    def holds(self, step: str) -> None:
        assert differences(self.file[step], dump(self.desk.bytes, "bull:*", without="ironclaim")) == [], step
        if step in self.file["published"]:
            assert self.desk.published() == self.file["published"][step], step


def failing(desk: BullDesk, job: LeasedJob) -> str:
    """One failed run, with the wait that a worker would compute; how the lease ended."""
    wait_ms = backoff_delay_ms(job.options, job.failures, lambda: 0.5)
    ((result, outcome),) = desk.run(Retry((Failure(job.lease, "Error: boom", wait_ms, "    at handler.js:7"),))).items
    assert result == "ok"
    return outcome


@pytest.mark.feature("BL01", "BL02", "BL03", "BL04", "BL05", "BL08", "BL09", "BL10", "BL11", "BL12", model="bull")
@pytest.mark.feature("BL13", "BL14", "BL15", "BL16", "BL20", "BL23", "BL32", model="bull")
def test_each_step_leaves_what_the_original_leaves(bull: BullDesk) -> None:
    golden = Golden(bull)
    bull.add(PAYLOAD)
    bull.add(PAYLOAD, lifo=True)
    bull.add(PAYLOAD, delay_ms=60000)
    bull.add(PAYLOAD, attempts=3, backoff="exponential", backoff_ms=2000, timeout_ms=9000)
    golden.holds("added")
    bull.pause().add(PAYLOAD)
    golden.holds("paused")

    (second,) = bull.resume().take(1).values()
    assert second.options.lifo and json.loads(second.payload) == PAYLOAD
    bull.run(NoteProgress(second.lease, 1, b'"percent":42,"message":null,"data":null}'))
    golden.holds("in flight")

    others = bull.take()
    assert (list(others), others["4"].options.timeout_ms, others["4"].options.attempts) == (["1", "4", "5"], 9000, 3)
    assert failing(bull, others["4"]) == "retried"
    golden.holds("failed once")

    bull.finished(others["1"].lease).finish_with(second.lease, {"ok": True})
    bull.finish_with(others["5"].lease, "str")
    assert failing(bull.tick(2000), bull.take()["4"]) == "retried" and bull.tick(5999).take() == {}
    assert failing(bull.tick(1), bull.take()["4"]) == "buried"
    golden.holds("ended")

    altered(bull, "requeue", "dead", "4")
    golden.holds("retried")
    again = bull.take()["4"]
    assert again.failures == 2 and failing(bull, again) == "buried"
    golden.holds("failed again")
