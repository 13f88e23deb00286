"""What a claim looks at on a foreign keyspace: so much at a time, and jobs for others in front starve nobody."""

from typing import Any

import pytest

from tests.conformance.desk import ModelDesk
from tests.conformance.models import FOREIGN, only
from tests.engine.ops import EnqueueMany, LeasedJob, Release

pytestmark = only(FOREIGN)


def put(desk: ModelDesk, name: str, count: int, first: int = 0) -> None:
    """Enqueue many jobs of a name."""
    jobs = [desk.enqueue_operation(f"{name}{at}", name=name, nonce=b"n%07d" % first) for at in range(first, first + count)]
    desk.run(EnqueueMany(tuple(jobs)))


def claims_until(desk: ModelDesk, wanted: str, most: int, **more: Any) -> int:
    """How many claims it takes until a job of this name comes."""
    for number in range(1, most + 1):
        if any(job.name == wanted for job in desk.claim("w", classes=(wanted,), **more)):
            return number
    raise AssertionError(f"{most} claims found no {wanted}")


def ids(jobs: list[LeasedJob]) -> list[str]:
    return [job.lease.job for job in jobs]


def test_jobs_for_others_in_front_starve_nobody(desk: ModelDesk) -> None:
    put(desk, "other", 450)
    assert claims_until(desk.enqueue("mine1", name="mine"), "mine", 8) <= 8
    # What comes behind them is found at once: all in front was looked at.
    assert claims_until(desk.enqueue("mine2", name="mine"), "mine", 2) <= 2
    assert len(desk.claim("o", 10, classes=("other",))) == 10


def test_what_comes_in_front_of_the_place_where_a_claim_goes_on_is_found_within_a_second(desk: ModelDesk) -> None:
    put(desk, "other", 450)
    claims_until(desk.enqueue("mine1", name="mine"), "mine", 8)
    assert desk.claim("w", classes=("mine",)) == []
    (job, *_) = desk.claim("o", 100, classes=("other",))
    desk.run(Release((job.lease,)))
    desk.enqueue("mine2", name="mine", **({"lifo": True} if desk.queue.model.name == "bull" else {}))
    assert claims_until(desk.tick(1_001), "mine", 8) <= 8


@pytest.mark.slow
def test_a_look_that_takes_long_goes_on_instead_of_beginning_again_each_second(desk: ModelDesk) -> None:
    put(desk, "other", 3_000)
    desk.enqueue("mine1", name="mine")
    for _ in range(60):
        # An idle worker looks 20 times a second.
        if desk.tick(50).claim("w", classes=("mine",)):
            return
    raise AssertionError("3 s of looks did not reach a job behind 3,000 others")


def test_a_claim_that_left_work_behind_its_window_leaves_a_marker(desk: ModelDesk) -> None:
    put(desk, "other", 250)
    desk.wakes()
    assert desk.claim("w", classes=("mine",)) == [] and desk.wakes() == 1
    for _ in range(4):
        desk.claim("w", classes=("mine",))
    desk.wakes()
    assert desk.claim("w", classes=("mine",)) == []
    assert desk.wakes() == 0, "all was looked at: an idle worker must not go round in circles"


def test_a_claim_takes_no_more_than_it_asks_for_and_all_of_them_in_their_order(desk: ModelDesk) -> None:
    put(desk, "main", 230)
    found: list[str] = []
    for limit in (1, 100, 128, 10):
        found += ids(desk.claim("w", limit))
    assert found == [f"main{number}" for number in range(230)]


@pytest.mark.parametrize(
    ("size", "claims"), [(400_000, [["big0", "big1"], ["big2"], []]), (524_277, [["big0"], ["big1"], ["big2"]])]
)
def test_rule_17_a_claim_stops_at_a_mebibyte(desk: ModelDesk, size: int, claims: list[list[str]]) -> None:
    for number in range(3):
        desk.run(desk.enqueue_operation(f"big{number}", payload={"text": "x" * size}))
    assert [ids(desk.claim("w", 10)) for _ in range(3)] == claims
