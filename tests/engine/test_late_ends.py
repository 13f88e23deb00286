"""What the log says of ends that came after their lease was lost, or taken for lost."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.logs import Source
from engine.worker.runs import LateEnds
from tests.engine.ops import Claimed, Ended, EndResult, Failure, Finish, FinishedAndClaimed, Lease, Release, Retry

LEASES = tuple(Lease(job, 7, f"n:{job}") for job in "ab")
OK: tuple[EndResult, str] = ("ok", "finished")
STALE: tuple[EndResult, str] = ("stale", "")
CANCELLED: tuple[EndResult, str] = ("stale", "cancelled")
COUNTS = "job a: the end of the run with fence 7 counts: nobody had taken the job meanwhile (finished)"
REFUSED = "job b: the end of the run with fence 7 was refused: its lease was over, so the job runs again, unless it is gone"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[tuple[str, str, Any]]]]:
    with caplog.at_level(logging.INFO, logger="ironclaim.worker"):
        yield lambda: [(one.levelname, one.getMessage(), getattr(one, "job_id", "")) for one in caplog.records]


def test_an_end_of_a_lost_lease_is_told_as_the_server_took_it(said: Callable[[], list[Any]]) -> None:
    ends = LateEnds(Source("w"))
    ends.lost(LEASES[0])
    ends.lost(LEASES[1])
    ends.answered(Finish(LEASES), Ended(0, (OK, STALE)))
    assert said() == [("INFO", COUNTS, "a"), ("WARNING", REFUSED, "b")]
    ends.answered(Finish(LEASES[:1]), Ended(0, (OK,)))
    assert len(said()) == 2, "each is told once"


def test_a_refusal_is_told_although_nobody_had_noticed_the_loss(said: Callable[[], list[Any]]) -> None:
    LateEnds(Source("w")).answered(Finish(LEASES), FinishedAndClaimed(0, Ended(0, (OK, STALE)), Claimed(0, "leased", 0, ())))
    failed = Retry(tuple(Failure(lease, "x") for lease in LEASES))
    LateEnds(Source("w")).answered(failed, Ended(0, (("ok", "retried"), CANCELLED)))
    cancelled = "job b: the end of the run with fence 7 was refused, for the job was cancelled"
    assert said() == [("WARNING", REFUSED, "b"), ("INFO", cancelled, "b")]


def test_what_ends_as_it_should_and_what_never_ran_are_not_told(said: Callable[[], list[Any]]) -> None:
    ends = LateEnds(Source("w"))
    ends.answered(Finish(LEASES), Ended(0, (OK, OK)))
    ends.answered(Release(LEASES), Ended(0, (STALE, STALE)))
    assert said() == []
