"""What the wire of Bull cannot be protected from: each finding that the model declares, as the original brings it about."""

import json

from engine.models.foreign.bull import FINDINGS, BullModel
from tests.engine.desk import LEASE_MS
from tests.engine.helpers.bull_desk import BullDesk, bull, node
from tests.engine.helpers.node_bull import NodeBull

__all__ = ["bull", "node"]


def test_each_finding_is_brought_about_here() -> None:
    shown = {name.removeprefix("test_").replace("_", " ") for name in globals() if name.startswith("test_")}
    assert {finding.name for finding in FINDINGS} <= shown and BullModel.FINDINGS is FINDINGS


def test_unfenced_ends(bull: BullDesk, node: NodeBull) -> None:
    """A Node worker stalls, its job runs here, and then it completes the job all the same: our end is refused."""
    node.add({})
    assert node.pop() == "1"
    bull.swept().redis.delete(bull.wire.lock("1"))
    bull.sweeps(3, 600)
    (job,) = bull.take().values()
    node.complete("1", {"by": "node"})
    assert bull.finish(job.lease) == [("stale", "")]
    assert json.loads(bull.redis.hget(bull.wire.job("1"), "returnvalue") or "") == {"by": "node"}
    # The lease runs out, and the job that is completed does not run again.
    assert bull.past(LEASE_MS + 1).take() == {} and not node.lists()


def test_pop_before_lock(bull: BullDesk, node: NodeBull) -> None:
    """More than a second between the two commands: the job runs on both sides."""
    node.add({})
    assert node.pop(lock=False) == "1"
    bull.sweeps(3, 600)
    assert list(bull.take()) == ["1"]
    # Its lock comes too late, so it learns of it; had our lock lapsed as well, it would run the job.
    assert not node.lock("1")
    bull.redis.delete(bull.wire.lock("1"))
    assert node.lock("1")


def test_stalled_check(bull: BullDesk, node: NodeBull) -> None:
    """Node has read in `active` a job that fails here before its turn comes: nobody has locked it, so Node may run it at once."""
    bull.add(attempts=2, backoff_ms=60_000)
    (job,) = bull.take().values()
    listed = node.lists()["active"]
    assert not node.lock(listed[0])
    bull.retry(job.lease, delay_ms=60_000)
    assert bull.redis.zrange(bull.wire.delayed, 0, -1) == ["1"] and node.lock(listed[0])


def test_overwriting_resume(bull: BullDesk, node: NodeBull) -> None:
    node.add({}, delay=1000)
    node.pause()
    node.add({})
    node.now_ms += 1000
    assert node.promote() == "1"
    node.resume()
    assert node.lists() == {"wait": ["2"]} and bull.redis.exists(bull.wire.job("1"))
    assert list(bull.take()) == ["2"] and bull.take() == {}


def test_promotion_during_the_pause(bull: BullDesk, node: NodeBull) -> None:
    node.add({}, delay=1000)
    bull.pause()
    node.now_ms += 1000
    node.promote()
    assert bull.take() == {} and node.pop() == "1"


def test_equal_due_times(bull: BullDesk, node: NodeBull) -> None:
    bull.redis.set(bull.wire.id, 4094)
    assert [node.add({}, delay=5), node.add({}, delay=5)] == ["4095", "4096"]
    node.now_ms += 5
    assert [node.promote(), node.promote()] == ["4096", "4095"] and list(bull.take()) == ["4096", "4095"]


def test_clocks_of_clients(bull: BullDesk, node: NodeBull) -> None:
    bull.add(delay_ms=60_000)
    node.now_ms += 60_000
    assert node.promote() == "1" and list(bull.take()) == ["1"]


def test_ids_that_are_no_numbers(bull: BullDesk, node: NodeBull) -> None:
    """Node ends job NaN, of which there is none; its stalled check finds the other one in `active` again and again."""
    bull.add(id="order-7")
    assert node.pop(lock=False) == "order-7"
    node.lock("NaN")
    node.complete("NaN", {})
    assert node.lists() == {"active": ["order-7"]} and not bull.redis.exists(bull.wire.completed)
