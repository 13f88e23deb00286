"""The driver over a real network that loses, cuts and delays: a call is applied once, or its end is said to be unknown."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import redis

from engine import ConnectOptions, OutcomeUnknown, Queue, ScriptFault, ServerUnavailable
from engine.queue import producing
from engine.redis.async_driver import AsyncDriver
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import DEADLINE_MS_MAX, Endpoint, Node
from engine.redis.exchange import Durability, Sent
from tests.engine.ops import Call, Count, Failure, Finish, Retry, Wait
from tests.engine.using import DEADLINE_S, Relay, Rule, claim, claim_operation, full, hurry, ids_of, refused, wait_until


@pytest.fixture
def queue(relay: Relay) -> Any:
    """A queue through the relay, with connections made."""
    with hurry(Queue("q", url=relay.url)) as made:
        made.counts()
        yield made


def calls_of(client: Any, command: str) -> int:
    """How many of them the server has executed or refused since its counters were reset."""
    return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def departed(queue: Queue) -> Any:
    """The first half of a send of the job j, which waits for nothing."""
    return queue.driver.depart(queue.model.call(producing.draft("work", {}, 1000, id="j").stamped(queue.driver.not_after_ms())))


HARMS = {"lose_reply": "repeated", "cut_reply": "repeated", "lose_request": "created", None: "created"}


@pytest.mark.parametrize(("rule", "result"), HARMS.items())
def test_a_call_arrives_in_another_thread(relay: Relay, queue: Queue, direct: Queue, rule: Rule | None, result: str) -> None:
    """The two halves of a send: the first one waits for nothing, the second one sends again if need be."""
    queue.counts()
    if rule is not None:
        relay.next(rule)
    flight = departed(queue)
    assert flight.connection is not None
    with ThreadPoolExecutor(1) as other:
        sent = other.submit(queue.driver.arrive, flight).result()
    assert (sent.reply.result, sent.definite) == (result, rule is None) and ids_of(direct, "waiting") == ["j"]
    assert queue.counts().waiting == 1, "the connection in the pool is at the right reply"


def test_a_call_that_could_not_depart_is_sent_when_it_arrives(queue: Queue, direct: Queue) -> None:
    queue.close()
    assert queue.driver.arrive(departed(queue)).reply.created and ids_of(direct, "waiting") == ["j"]


def test_without_hiredis_redis_py_packs_the_calls(queue: Queue, direct: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.redis.driver._pack", None)
    assert queue.enqueue("work", {"n": 1}, id="a").created
    queue.enqueue_many([{"name": "work", "payload": 1, "id": "b"}, {"name": "work", "payload": 1, "id": "c"}])
    assert sorted(ids_of(direct, "waiting")) == ["a", "b", "c"]


def test_a_lost_claim_reply_leases_once_and_a_lost_finish_reply_finishes_once(relay: Relay, queue: Queue, direct: Queue) -> None:
    for number in range(3):
        direct.enqueue("work", {}, id=f"j{number}")
    relay.next("lose_reply")
    claimed = claim(queue, limit=2)
    assert claimed.result == "repeated" and [job.claims for job in claimed.jobs] == [1, 1] and direct.counts().active == 2
    leases = tuple(job.lease for job in claimed.jobs)
    relay.next("lose_reply")
    reply = queue.driver.run(queue.model.call(Finish(leases, claim_operation(queue))))
    assert reply.finished.items == (("repeated", "finished"),) * 2
    assert [job.lease.job for job in reply.claimed.jobs] == ["j2"] and direct.counts().finished == 2


def test_a_late_copy_of_an_enqueue_does_not_run_the_job_again(relay: Relay, queue: Queue, direct: Queue) -> None:
    relay.next("hold_request")
    assert queue.enqueue("work", {}, id="j").result == "created"
    (job,) = claim(direct).jobs
    direct.driver.run(direct.model.call(Finish((job.lease,))))
    assert [b"repeated" in reply for reply in relay.release_held()] == [True]
    counts = direct.counts()
    assert (counts.waiting, counts.active, counts.finished) == (0, 0, 1)


@pytest.mark.feature("BL33")
def test_a_server_that_comes_back_within_the_deadline(relay: Relay, queue: Queue, direct: Queue) -> None:
    queue.driver.deadline_ms = DEADLINE_MS_MAX
    relay.down()
    back = threading.Timer(0.4, relay.up)
    back.start()
    assert queue.enqueue("work", {}, id="j").result == "created"
    back.join()
    assert ids_of(direct, "waiting") == ["j"]


def test_the_client_sends_nothing_by_itself(relay: Relay, queue: Queue, client: Any) -> None:
    """redis-py re-sends EVALSHA by default; here each send is the engine's own."""
    driver: SyncDriver = queue.driver
    client.config_resetstat()
    relay.standing = "lose_reply"
    driver.deadline_ms = 0
    refused(OutcomeUnknown, "1 of 1 sends unanswered", driver.run, queue.model.call(claim_operation(queue)))
    assert calls_of(client, "evalsha") == 1
    assert relay.calls == 2, "the count that made the connection, and this"


def test_threads_share_a_queue(relay: Relay, queue: Queue, direct: Queue) -> None:
    """Also while every tenth call, which may carry the jobs of several threads, loses its reply."""
    ten: list[Any] = ["pass"] * 9 + ["lose_reply"]
    relay.next(*ten * 40)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: queue.enqueue("work", number, id=f"j{number}").result, range(400)))
    assert results.count("created") >= 200 and set(results) == {"created", "repeated"}
    assert sorted(ids_of(direct, "waiting")) == sorted(f"j{number}" for number in range(400))


def test_a_full_server_refuses_a_job_and_takes_a_finish(direct: Queue, client: Any) -> None:
    """Rule 2."""
    for job in ("a", "b"):
        direct.enqueue("work", {}, id=job)
    first, second = claim(direct).jobs
    with full(client):
        direct.driver.deadline_ms = int(3_000 * DEADLINE_S)
        started_s = time.monotonic()
        refused(ServerUnavailable, "nothing was applied.*OOM", direct.enqueue, "work", {}, id="c")
        assert time.monotonic() - started_s < DEADLINE_S, "a refusal is not waited out"
        assert client.exists(direct.model.keys.job("c")) == 0
        # On a new connection too: its handshake loads the scripts.
        direct.driver.close()
        assert direct.driver.run(direct.model.call(Finish((first.lease,)))).items == (("ok", "finished"),)
    assert direct.enqueue("work", {}, id="c").result == "created"
    assert (direct.counts().finished, direct.counts().active, second.lease.job) == (1, 1, "b")


def test_a_new_connection_loads_the_scripts_that_the_server_lacks_and_no_others(direct: Queue, client: Any) -> None:
    """Rule 28. All of them are half a megabyte, and after a fault many connections are made at once."""
    client.script_flush()
    before = calls_of(client, "script|load")
    for job in ("a", "b"):
        direct.driver.close()
        direct.enqueue("work", {}, id=job)
        assert calls_of(client, "script|load") - before == len(direct.model.scripts)
    connections = direct.driver._connections
    for connection in [connections.take(0), connections.take(0)]:
        connections.give_back(connection)
    client.script_flush()
    call = direct.driver.start(direct.model.call(Count()))
    direct.driver.carry([call])
    assert call._sends == 2, "it meets one alone that was there before"


@pytest.mark.feature("BN31")
def test_a_connection_that_ended_in_any_way_leaves_room_for_the_next(ironclaim_url: str, client: Any, closed_port: int) -> None:
    """There is room for one, and callers take turns."""
    before = client.info("stats")["total_connections_received"]
    with Queue("q", url=ironclaim_url, connect=ConnectOptions(connections_max=1, deadline_ms=DEADLINE_MS_MAX)) as queue:
        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(lambda number: queue.enqueue("work", {}, id=f"j{number}").created, range(200)))
        assert client.info("stats")["total_connections_received"] == before + 1 and queue.counts().waiting == 200
        connections = queue.driver._connections
        connections._permit_wait_s = 0.05
        for end in (connections.give_back, connections.drop, connections.retire, connections.give_back):
            taken = connections.take(0)
            assert connections.take_idle(0) is None
            refused(redis.ConnectionError, "all 1 connections are in use", connections.take, 0)
            end(taken)
            assert (taken._sock is None) == (end != connections.give_back)
        connections.close()
        assert taken._sock is None and connections.take_idle(0) is None, "none is at hand"
        refused(redis.ConnectionError, "", connections.take_at, Node("127.0.0.1", closed_port, ""), 0)
        assert departed(queue).connection is None
        for harm in (lambda: None, client.script_flush, lambda: client.client_kill_filter(_type="normal", skipme=True)):
            harm()
            assert queue.enqueue("work", {}).created


@pytest.mark.parametrize("durable", [False, True])
def test_a_driver_waits_as_long_as_calls_block(kind: str, runner: Any, ironclaim_url: str, client: Any, durable: bool) -> None:
    """The server is silent for longer than it usually may be."""
    look: Any = Call(None, ("x",), ("GET", "x"), lambda raw: raw, Count())
    more: dict[str, Any] = {"durability": Durability(look, 60_000)} if durable else {"block_ms_max": 60_000}
    endpoint = Endpoint(ironclaim_url, options=ConnectOptions(timeout_ms=100), asynchronous=kind == "async")
    driver: Any = (AsyncDriver if kind == "async" else SyncDriver)(endpoint, (), **more)

    def send(call: Any = look) -> Any:
        return runner.run(driver.send(call)) if kind == "async" else driver.send(call)

    assert send().definite and driver.clock.known, "it knows the server's time by the greeting alone"
    client.client_pause(300)
    assert send().definite
    most_ms = 0 if durable else 60_000
    refused(ScriptFault, f"this driver waits {most_ms} ms", send, replace(look, block_ms=most_ms + 1))
    runner.run(driver.close()) if kind == "async" else driver.close()


def test_a_text_that_cannot_be_sent_is_the_callers_fault_and_harms_no_later_call(queue: Queue) -> None:
    queue.enqueue("work", {}, id="a")
    (job,) = claim(queue).jobs
    # What it raises is redis-py's affair; what follows is ours.
    refused(Exception, "", queue.driver.run, queue.model.call(Retry((Failure(job.lease, "\ud800", 0),))))
    assert queue.counts().active == 1


def test_rule_05_a_refusal_of_a_call_sent_before_is_not_definite(queue: Queue) -> None:
    """An earlier `send` of the same call stayed unanswered: what the server refuses now may be what that copy did."""
    assert queue.enqueue("work", {}).created
    (job,) = claim(queue, limit=1).jobs
    call = queue.model.call(Finish((job.lease,)))
    assert queue.driver.send(call).definite and not queue.driver.send(call, again=True).definite
    (sent,) = queue.driver.send_many([call])
    assert isinstance(sent, Sent) and sent.definite


def test_rule_31_a_server_turned_unsafe_leaves_the_end_unknown(relay: Relay, queue: Queue, direct: Queue, client: Any) -> None:
    direct.counts()
    relay.next("lose_reply")
    relay.before_call = lambda data: client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        refused(OutcomeUnknown, "maxmemory_policy", queue.enqueue, "work", {}, id="j")
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    assert ids_of(direct, "waiting") == ["j"]


def test_a_call_that_waits_for_its_reply_is_broken_off_and_not_sent_again(direct: Queue, client: Any) -> None:
    waiting = SyncDriver(direct.endpoint, direct.model.scripts.values(), block_ms_max=60_000)
    wait = direct.model.call(Wait(60_000, ("main",)))
    with ThreadPoolExecutor(1) as pool:

        def blocked() -> int:
            return client.info("clients")["blocked_clients"]

        call = pool.submit(waiting.run, wait)
        wait_until(lambda: blocked() == 1, "it blocks")
        waiting.interrupt()
        refused(OutcomeUnknown, "interrupted", call.result, DEADLINE_S)
        wait_until(lambda: not blocked(), "the server knows")
        refused(OutcomeUnknown, "interrupted", waiting.run, wait)
        assert not blocked()
