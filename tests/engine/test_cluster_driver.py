"""Rule 27 at the engine's own driver, which talks to one node: what a cluster tells it there is sent again and said clearly."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from chaos.topology.embedded_cluster import EmbeddedCluster
from engine.errors import OutcomeUnknown, ServerUnavailable
from engine.models.lanes import Lanes
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import DEADLINE_MS_MAX, ConnectOptions, Endpoint
from engine.redis.exchange import Trouble, trouble_of_reply
from engine.redis.scripts import Script
from tests.engine.using import PATIENCE_MS, Call, Claim, Count, Enqueue, Options, refused

#: Of calls that fail in the end.
SHORT_MS = 300


@pytest.fixture
def cluster(three_primaries: EmbeddedCluster) -> EmbeddedCluster:
    """An empty cluster with no move on its way."""
    three_primaries.end_moves(slot(three_primaries))
    three_primaries.flush()
    return three_primaries


MODEL = Lanes("driven")


def slot(cluster: EmbeddedCluster) -> int:
    return cluster.slot_of(MODEL.keys.prefix)


Drive = Callable[..., SyncDriver]


@pytest.fixture
def owner(cluster: EmbeddedCluster) -> int:
    """The node of the queue."""
    return cluster.owner_of(slot(cluster))


@pytest.fixture
def drive(cluster: EmbeddedCluster) -> Iterator[Drive]:
    """Makes a driver of a node, which is closed in the end."""
    with ExitStack() as made:

        def make(node: int, *scripts: Script, deadline_ms: int = DEADLINE_MS_MAX, pause: Any = time.sleep) -> SyncDriver:
            endpoint = Endpoint(cluster.urls[node], options=ConnectOptions(timeout_ms=PATIENCE_MS, deadline_ms=deadline_ms))
            return made.enter_context(closing(SyncDriver(endpoint, scripts or MODEL.scripts.values(), pause=pause)))

        yield make


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def enqueue(job: str) -> Enqueue:
    return Enqueue(job, "work", b"{}", b"nonce---", Options(), not_after_ms=now_ms() + 60_000)


@pytest.mark.parametrize("start", ["Script attempted", "Attempted"], ids=["redis", "valkey"])
def test_rule_27_a_script_that_missed_a_key_in_the_middle_may_have_been_applied_and_is_sent_again(start: str) -> None:
    message = f"ERR {start} to access a non local key in a cluster node script: 0a1b, on @user_script:12."
    assert trouble_of_reply(message) is Trouble.UNANSWERED


@pytest.mark.slow
def test_rule_27_a_node_without_the_queue_is_named_with_the_one_that_has_it(cluster: Any, owner: int, drive: Drive) -> None:
    said = f"nothing was applied, last error MOVED {slot(cluster)} 127.0.0.1:{cluster.ports[owner]}"
    refused(ServerUnavailable, said, drive((owner + 1) % 3, deadline_ms=SHORT_MS).run, MODEL.call(enqueue("j1")))


def test_rule_27_a_call_in_a_move_says_where_the_slot_goes_and_applies_nothing(cluster: Any, owner: int, drive: Drive) -> None:
    target, driver = (owner + 1) % 3, drive(owner, deadline_ms=SHORT_MS)
    cluster.begin_move(slot(cluster), target)
    said = f"nothing was applied, last error ASK {slot(cluster)} 127.0.0.1:{cluster.ports[target]}"
    refused(ServerUnavailable, said, driver.run, MODEL.call(enqueue("j1")))
    cluster.end_moves(slot(cluster))
    assert cluster.client(owner).dbsize() == 0


def test_rule_27_a_call_that_meets_a_move_goes_through_when_the_move_is_given_up(cluster: Any, owner: int, drive: Drive) -> None:
    driver = drive(owner, pause=lambda pause_s: cluster.end_moves(slot(cluster)))
    driver.run(MODEL.call(enqueue("j1")))
    cluster.begin_move(slot(cluster), (owner + 1) % 3)
    assert driver.run(MODEL.call(enqueue("j2"))).result == "created"


def test_rule_27_a_slot_that_nobody_serves_is_said_to_be_down(cluster: Any, owner: int, drive: Drive) -> None:
    driver = drive(owner, deadline_ms=SHORT_MS)
    assert driver.server_now_ms() > 0
    node = cluster.client(owner)
    node.execute_command("CLUSTER DELSLOTS", slot(cluster))
    try:
        refused(ServerUnavailable, "nothing was applied, last error CLUSTERDOWN", driver.run, MODEL.call(enqueue("j1")))
    finally:
        node.execute_command("CLUSTER ADDSLOTS", slot(cluster))


def test_rule_27_a_script_that_missed_a_key_after_writes_is_sent_again_to_the_end(cluster: Any, owner: int, drive: Drive) -> None:
    text = "#!lua\nredis.call('INCR', KEYS[1])\nreturn redis.call('GET', KEYS[1] .. 'absent')"
    script = Script("half_way", text, ("counter",), ())
    call = Call(script, (MODEL.keys.seq,), (), lambda raw: raw, Count())
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        """At the third its time is over, however long that took."""
        pauses.append(pause_s)
        if len(pauses) == 3 and in_flight._delivery is not None:
            in_flight._delivery.deadline_ms = 0

    driver = drive(owner, script, pause=pause)
    driver.run(call)
    cluster.begin_move(slot(cluster), (owner + 1) % 3)
    in_flight = driver.start(call)
    driver.carry([in_flight])
    refused(OutcomeUnknown, "access a non local key", in_flight.sent)
    assert int(cluster.client(owner).get(MODEL.keys.seq)) == 1 + 4


def test_rule_27_a_claim_that_meets_a_move_is_no_fault_of_its_script(cluster: Any, owner: int, drive: Drive) -> None:
    """The claim has every key that it declares, so it runs, and finds out by itself that the slot is on the move."""
    driver = drive(owner)
    driver.run(MODEL.call(enqueue("j1")))
    call = MODEL.call(Claim("c" * 16, 1, 10, 60_000, now_ms() + 40_000, "a worker", 1000, ("work",)))
    lacking = set(call.keys) - {key.decode() for key in cluster.begin_move(slot(cluster), (owner + 1) % 3).keys_left()}
    cluster.end_moves(slot(cluster))
    for key in lacking:
        furnish(cluster.client(owner), key)
    cluster.begin_move(slot(cluster), (owner + 1) % 3)
    driver.deadline_ms = SHORT_MS
    refused((ServerUnavailable, OutcomeUnknown), "", driver.run, call)
    driver.deadline_ms = DEADLINE_MS_MAX
    cluster.end_moves(slot(cluster))
    assert [job.lease.job for job in driver.run(call).jobs] == ["j1"]


def furnish(client: Any, key: str) -> None:
    """A key of the type that the scripts expect, with nothing in it that concerns them."""
    kind = key.removeprefix(MODEL.keys.prefix).split(":")[0]
    if kind == "claim":
        client.set(key, "0")
    elif kind in ("sweep", "stats", "parked"):
        client.hset(key, "other", "1")
    else:
        client.zadd(key, {"w:other": 4_102_444_800_000})
