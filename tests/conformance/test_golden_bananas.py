"""The whole keyspace after one scripted life of jobs, next to what the documents and dumps say it must be, in each layout."""

from pathlib import Path

import pytest

from chaos.foreign_keys import BananasKeys
from tests.conformance.keyspace import differences, dump, expected
from tests.engine.models.bananas_desk import BananasDesk, desk

__all__ = ["desk"]

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.feature("BN01", "BN05", "BN09", "BN10", "BN11", "BN12", "BN14", "BN19", model="bananas")
def test_a_life_of_jobs(desk: BananasDesk) -> None:
    desk.queue.schedules.put("nightly", "report", {"day": 1}, cron="* * * * *", priority=8)
    for name in ("held", "good", "flaky", "hopeless"):
        desk.put(name, name=name, attempts=1 if name == "hopeless" else 3)
    leases = {leased.lease.job: leased.lease for leased in desk.take(names=("held", "good", "flaky", "hopeless"))}
    desk.redis.lpush(desk.list_key(), "lost")
    assert desk.claimed(worker="b").corrupt == ("lost",)
    desk.put("later", delay_ms=60_000).put("high", priority=9).put("first").put("second")
    desk.put("gpu", route="gpu", priority=1)
    # The sweep that finds the schedule due comes 20 s after this one, as after a stall, so it takes no lease (rule 11).
    desk.swept().move(20_000).turned().move(1_000).succeed(leases["good"], b'{"ok":true}')
    desk.fail(leases["flaky"])
    desk.fail(leases["hopeless"], "no & never")
    desk.redis.delete(BananasKeys(layout=desk.layout).cron_lock("nightly"))
    found = dump(desk.redis, without="ironclaim")
    assert differences(expected(GOLDEN / f"bananas_{desk.layout}.json", {}), found) == []
