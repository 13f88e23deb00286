"""What foreign clients have written of progress, workers and schedules is what the queue's readers show."""

import json
from typing import Any

import pytest

from chaos.foreign_keys import BridgeKeys, MosquitoKeys
from engine import models
from tests.conformance.desk import ModelDesk
from tests.engine.helpers.bridge_client import desk as bridge
from tests.engine.using import START_MS, NoteProgress

__all__ = ["bridge"]
BRIDGE = BridgeKeys("bridge:")


def note(desk: ModelDesk, percent: float) -> None:
    """A worker of ours reports the progress of the job `j`, which it has leased."""
    (job,) = desk.claim("a")
    body = f'"percent":{percent},"message":"ours","data":{{"rows":7}}}}'.encode()
    assert desk.run(NoteProgress(job.lease, 1, body)).result == "ok"


@pytest.mark.feature("BQ25", model="bridge")
def test_the_later_progress_of_a_bridge_job_counts(bridge: ModelDesk, client: Any) -> None:
    def told() -> Any:
        return bridge.queue.results.progress(bridge.ids["j"])

    bridge.put("j")
    key = BRIDGE.progress(bridge.ids["j"])
    assert told() is None
    client.set(key, json.dumps({"percent": 12.5, "message": "théirs", "updatedAt": START_MS - 5}))
    assert (told().percent, told().message, told().data, told().at_ms) == (12.5, "théirs", None, START_MS - 5)
    note(bridge, 30)
    assert (told().percent, told().message, told().data, told().at_ms) == (30, "ours", {"rows": 7}, bridge.now_ms)
    client.set(key, json.dumps({"percent": 90, "updatedAt": bridge.now_ms + 1}))
    assert (told().percent, told().message, told().at_ms) == (90, None, bridge.now_ms + 1)
    for broken in ("", "no", "[]", '{"percent":"90","updatedAt":1}', '{"percent":1,"updatedAt":1}'):
        client.set(key, broken)
        assert told().percent == 30, broken


@pytest.mark.feature("BL11", model="bull")
def test_another_progress_of_a_bull_job_is_a_later_one(ironclaim_url: str, client: Any) -> None:
    bull = ModelDesk(ironclaim_url, models.Bull())

    def told() -> Any:
        return bull.queue.results.progress(bull.ids["j"])

    bull.put("j")
    key = f"bull:desk:{bull.ids['j']}"
    assert client.hget(key, "progress") == "0" and told() is None
    client.hset(key, "progress", "42")
    assert (told().percent, told().message, told().at_ms) == (42, None, 0)
    note(bull, 50)
    assert client.hget(key, "progress") == "50" and (told().percent, told().message) == (50, "ours")
    client.hset(key, "progress", "75.5")
    assert told().percent == 75.5
    client.hset(key, "progress", "7.")
    assert told().percent == 7
    for broken in ("", "no", "{}", "0x10", "nan", "1e999"):
        client.hset(key, "progress", broken)
        assert told().percent == 50, broken
    bull.close()


@pytest.mark.feature("BQ02", "BQ03", model="bridge")
def test_workers_of_a_bridge_registry_are_listed_behind_ours(bridge: ModelDesk, client: Any) -> None:
    bridge.beat("a", about='{"name":"ours"}')
    now_ms = bridge.now_ms
    ours = f'{{"serverId":"ours","stack":"","region":"","capabilities":[],"lastSeen":{now_ms},"pid":0,"hostname":""}}'
    assert client.get(BRIDGE.worker("ours")) == ours
    about = {"serverId": "theirs", "stack": "node", "region": "eu", "capabilities": ["gpu"], "lastSeen": now_ms - 9_000}
    client.sadd(BRIDGE.workers, "theirs", "lost", "broken")
    client.set(BRIDGE.worker("theirs"), json.dumps(about | {"pid": 77, "hostname": 'h"ost'}))
    client.set(BRIDGE.heartbeat("theirs"), now_ms - 2_000, px=30_000)
    client.set(BRIDGE.worker("lost"), json.dumps(about | {"serverId": "lost"}))
    client.set(BRIDGE.worker("broken"), "no JSON")
    client.sadd(BRIDGE.workers, "odd")
    client.set(BRIDGE.worker("odd"), '{"serverId":"odd","lastSeen":0x1,"pid":0x10,"capabilities":[no],"stack":7}')
    our, lost, odd, theirs = bridge.queue.workers.list()
    assert (odd.name, odd.alive, odd.pid, odd.attributes) == ("odd", False, 16, {"stack": "", "region": "", "capabilities": []})
    assert (our.name, our.alive) == ("ours", True)
    assert (theirs.name, theirs.alive, theirs.beat_age_ms, theirs.pid, theirs.host) == ("theirs", True, 2_000, 77, 'h"ost')
    assert theirs.attributes == {"stack": "node", "region": "eu", "capabilities": ["gpu"]}
    assert (lost.name, lost.alive, lost.beat_age_ms) == ("lost", False, 9_000)
    pages = [bridge.queue.workers.list(offset=at, limit=1) for at in range(5)]
    assert [[info.name for info in page] for page in pages] == [["ours"], ["lost"], ["odd"], ["theirs"], []]
    assert bridge.queue.workers.get("theirs") == theirs


@pytest.mark.feature("MQ30", model="mosquito")
def test_overseers_of_a_mosquito_keyspace_are_listed_behind_ours(ironclaim_url: str, client: Any) -> None:
    desk, keys = ModelDesk(ironclaim_url, models.Mosquito(layout="live")), MosquitoKeys("desk")
    desk.beat("a", about='{"name":"ours"}')
    now_s = desk.now_ms // 1000
    client.zadd(keys.overseers, {"140234": now_s - 20, "9": now_s - 200})
    client.hset(keys.overseer("140234"), mapping={"heartbeat": now_s - 20, "executors": "1,2,3"})
    client.hset(keys.executor("2"), mapping={"current_job": "5:1", "current_job_queue": "desk"})
    client.hset(keys.executor("3"), mapping={"current_job": "6:1", "current_job_queue": "other"})
    # A worker of ours for another queue is in the same registry, and is listed there.
    client.zadd(keys.overseers, {"77" * 8: now_s})
    client.hset(keys.overseer("77" * 8), mapping={"heartbeat": now_s, "executors": "77" * 8})
    found = {info.name: info for info in desk.queue.workers.list()}
    assert list(found) == ["ours", "9", "140234"]
    theirs = found["140234"]
    assert (theirs.alive, theirs.beat_age_ms, theirs.concurrency, theirs.in_hand, theirs.jobs) == (True, 20_000, 3, 1, ("5:1",))
    assert not found["9"].alive
    desk.close()


@pytest.mark.feature("BQ09", model="bridge")
def test_a_next_tick_that_a_client_has_moved_is_listed(bridge: ModelDesk, client: Any) -> None:
    for name in ("moved", "removed", "every"):
        timing: dict[str, Any] = {"every_ms": 60_000} if name == "every" else {"cron": "0 * * * *"}
        bridge.queue.schedules.put(name, "main", {}, **timing)
    client.zadd(BRIDGE.cron, {"moved": START_MS + 1_234})
    client.zrem(BRIDGE.cron, "removed")
    listed = {schedule.name: schedule.next_ms for schedule in bridge.queue.schedules.list()}
    assert listed == {"moved": START_MS + 1_234, "every": START_MS + 60_000}
    moved = bridge.queue.schedules.get("moved")
    assert moved is not None and moved.next_ms == START_MS + 1_234 and bridge.queue.schedules.get("removed") is None
