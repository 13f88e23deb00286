"""What the model of Bull declares as findings, seen on the original client: what it does to a queue, whoever else works on it."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from chaos.interop.keyspace import BullKeys
from chaos.interop.talker import Talker
from engine.models.foreign.bull import FINDINGS

pytestmark = pytest.mark.nightly

#: A timestamp long ago and a delay that ends far from now, so that both jobs are due at one time.
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def other(port: int) -> Iterator[Talker]:
    """Another Bull on the same queue."""
    with Talker("mail", port=port) as talker:
        yield talker


@pytest.fixture
def raw(ironclaim_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(ironclaim_url, decode_responses=True) as client:
        yield client


def states(keys: BullKeys) -> dict[str, list[str]]:
    """Ids by state, of states that have any."""
    return {state: [job for job, _ in jobs] for state, jobs in keys.look()[0].items() if jobs}


def test_what_is_seen_here_is_told_to_users() -> None:
    """But for what no test can time."""
    seen = {"unfenced ends", "stalled check", "overwriting resume", "promotion during the pause", "equal due times"}
    told = {finding.name for finding in FINDINGS} - {"pop before lock"}
    assert told == seen | {"clocks of clients", "ids that are no numbers"}


def test_unfenced_ends(bull: Talker, other: Talker, raw: Any, keys: BullKeys) -> None:
    bull.ask("process", 1)
    bull.ask("add", {"work_ms": 1_000, "value": "first"}, {})
    bull.until(lambda: bull.ran("active"))
    # As if it had stalled for longer than its lock lasts.
    raw.delete("bull:mail:1:lock")
    other.ask("process", 1)
    other.until(lambda: other.ran("active"))
    bull.until(lambda: bull.ran("completed"))
    other.until(lambda: other.ran("completed"))
    assert bull.ran("completed") == other.ran("completed") == [("1", "first")]


@pytest.mark.parametrize("state", ["delayed", "failed"])
def test_the_stalled_check_takes_what_has_failed_since_it_looked(bull: Talker, raw: Any, keys: BullKeys, state: str) -> None:
    bull.ask("add", {"work_ms": 600, "value": "slow"}, {})
    bull.ask("add", {"value": "early"}, {})
    # Both are in hand of a worker that has died: Bull lists them, and runs the first one.
    for _ in range(2):
        raw.rpoplpush("bull:mail:wait", "bull:mail:active")
    raw.lrem("bull:mail:active", 0, "1")
    raw.lpush("bull:mail:active", "1")
    bull.ask("process", 1)
    bull.until(lambda: bull.ran("active"))
    assert [job for job, _ in bull.ran("active")] == ["1"]
    # Meanwhile another worker fails the second one, which is to run again in an hour, or never again.
    raw.lrem("bull:mail:active", 0, "2")
    if state == "delayed":
        raw.zadd("bull:mail:delayed", {"2": (int(raw.time()[0]) + 3_600) * 1_000 * 4_096 + 2})
    else:
        raw.hset("bull:mail:2", "attemptsMade", 1)
        raw.sadd("bull:mail:failed", "2")
    bull.until(lambda: len(bull.ran("completed")) == 2)
    assert bull.ran("completed") == [("1", "slow"), ("2", "early")]
    assert "2" in states(keys)["delayed" if state == "delayed" else "dead"]


def test_an_overwriting_resume(bull: Talker, raw: Any, keys: BullKeys) -> None:
    bull.ask("pause")
    bull.ask("add", {}, {"delay": 50})
    bull.ask("add", {}, {})
    bull.until(lambda: raw.lrange("bull:mail:wait", 0, -1) == ["1"])
    bull.ask("resume")
    assert states(keys) == {"waiting": ["2"]} and raw.exists("bull:mail:1")


def test_a_promotion_during_the_pause(bull: Talker, raw: Any) -> None:
    bull.ask("process", 1)
    bull.ask("pause")
    bull.ask("add", {"value": 1}, {"delay": 50})
    bull.until(lambda: bull.ran("completed"))
    assert raw.exists("bull:mail:meta-paused")


def test_jobs_of_equal_due_times(bull: Talker, raw: Any) -> None:
    raw.set("bull:mail:id", 4_094)
    now_ms = int(raw.time()[0]) * 1_000
    for value in (1, 2):
        bull.ask("add", {"value": value}, {"timestamp": LONG_AGO_MS, "delay": now_ms + 1_500 - LONG_AGO_MS})
    assert raw.zrange("bull:mail:delayed", 0, -1) == ["4096", "4095"]
    bull.ask("process", 1)
    bull.until(lambda: len(bull.ran("completed")) == 2)
    assert bull.ran("completed") == [("4096", 2), ("4095", 1)]


def test_a_client_whose_clock_is_ahead(bull: Talker, port: int, raw: Any) -> None:
    bull.ask("add", {"value": 1}, {"delay": 60_000})
    with Talker("mail", port=port, ahead_ms=120_000) as fast:
        fast.ask("process", 1)
        fast.until(lambda: fast.ran("completed"))
    assert raw.smembers("bull:mail:completed") == {"1"}


def test_an_id_that_is_no_number(bull: Talker, raw: Any, keys: BullKeys) -> None:
    raw.hset("bull:mail:invoice-7", mapping={"data": "{}", "opts": "{}"})
    bull.ask("process", 1)
    raw.lpush("bull:mail:wait", "invoice-7")
    bull.ask("add", {"value": "next"}, {})
    bull.until(lambda: bull.ran("completed"))
    assert [job for job, _ in bull.ran("active")] == ["NaN", "1"]
    assert states(keys) == {"active": ["invoice-7"], "done": ["1"]}
