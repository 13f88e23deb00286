"""Both drivers over a network that loses, cuts and delays, one call and many in a pipeline: each call is applied once, and what
happens to one is no matter of its neighbours (rules 3, 28 and 31)."""

import asyncio
import select
import time
from functools import partial
from typing import Any

import pytest
import redis

from engine import OutcomeUnknown, Queue, ScriptFault, ServerUnavailable
from engine.redis.exchange import PIPELINE_MAX, Sent
from tests.engine.ops import Count, Counts, Enqueue, Operation, Options, Wait
from tests.engine.using import DEADLINE_S, HASTE_MS, PATIENCE_MS, Relay, Rule, claim_operation, hurried, ids_of, refused, seen


@pytest.fixture
def queue(request: pytest.FixtureRequest, kind: str, runner: asyncio.Runner, relay: Relay) -> Any:
    """A queue through the relay, with connections made; in a hurry where it waits for an answer that never comes."""
    hushed = request.node.callspec.params.get("rule") == "hush_reply"
    made = hurried(kind, runner, "q", relay.url, timeout_ms=HASTE_MS if hushed else PATIENCE_MS)
    made.counts()
    yield made
    made.close()


def enqueue(queue: Any, job: str) -> Any:
    return queue.model.call(Enqueue(job, "main", b"{}", b"nonce---", Options(), not_after_ms=queue.driver.not_after_ms()))


def results(sent: list[Any]) -> list[str]:
    return [one.reply.result if isinstance(one, Sent) else type(one).__name__ for one in sent]


def sent_again_once(relay: Relay, before: int, rule: Rule) -> bool:
    """Whether it was sent twice; a queue in a hurry may have given up another answer, too."""
    return relay.calls == before + 2 or (rule == "hush_reply" and relay.calls > before + 2)


HARMS: list[tuple[Rule, str]] = [
    ("lose_reply", "repeated"), ("hush_reply", "repeated"), ("cut_reply", "repeated"),
    ("lose_request", "created"), ("hold_request", "created"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "result"), [*HARMS, ("cut_request", "created")])
def test_a_harmed_call_is_sent_again_and_applied_once(relay: Relay, queue: Any, direct: Queue, rule: Rule, result: str) -> None:
    before = relay.calls
    relay.next(rule)
    assert queue.enqueue("work", {"n": 1}, id="j").result == result
    assert sent_again_once(relay, before, rule) and ids_of(direct, "waiting") == ["j"]
    assert queue.counts().waiting == 1, "the connection in the pool is at the right reply"


@pytest.mark.parametrize(("rule", "result"), [
    # It waits for a second, and the test of one call has seen that.
    pytest.param(*HARMS[1], marks=pytest.mark.slow), *(harm for harm in HARMS if harm[0] not in ("hush_reply", "cut_reply")),
])  # fmt: skip
def test_a_harmed_pipeline_is_sent_again_whole(relay: Relay, queue: Any, direct: Queue, rule: Rule, result: str) -> None:
    before = relay.calls
    relay.next(rule)
    jobs = [f"j{number}" for number in range(5)]
    sent = queue.driver.send_many([enqueue(queue, job) for job in jobs])
    assert results(sent) == [result] * 5 and not any(one.definite for one in sent)
    assert sent_again_once(relay, before, rule) and ids_of(direct, "waiting") == jobs


def test_a_connection_lost_in_mid_pipeline_harms_only_the_calls_behind(relay: Relay, queue: Any, direct: Queue) -> None:
    relay.next("one_reply")
    jobs = [f"j{number}" for number in range(6)]
    sent = queue.driver.send_many([enqueue(queue, job) for job in jobs])
    assert [one.definite for one in sent] == [True] + [False] * 5
    assert results(sent) == ["created"] + ["repeated"] * 5 and ids_of(direct, "waiting") == jobs


def test_an_error_in_mid_pipeline_is_its_own_calls(relay: Relay, queue: Any, direct: Queue, client: Any) -> None:
    before = relay.calls
    client.rpush(direct.model.keys.job("bad"), "no envelope")
    sent = queue.driver.send_many([enqueue(queue, job) for job in ("a", "bad", "b")])
    assert results(sent) == ["created", "WrongKeyType", "created"]
    assert "WRONGTYPE" in str(sent[1]) and sent[0].definite and sent[2].definite and relay.calls == before + 1
    assert queue.counts().waiting == 2, "the connection in the pool is at the right reply"


def test_rule_28_noscript_in_mid_pipeline_delays_its_own_call_alone(relay: Relay, queue: Any, direct: Queue, client: Any) -> None:
    before = relay.calls
    client.script_flush()
    client.script_load(direct.model.scripts["enqueue"].text)
    first, counts, last = queue.driver.send_many([enqueue(queue, "a"), queue.model.call(Count()), enqueue(queue, "b")])
    assert results([first, last]) == ["created", "created"]
    assert isinstance(counts.reply, Counts) and counts.reply.waiting == 2, "it landed behind the one that came after it"
    assert counts.definite and relay.calls == before + 2


def test_each_call_of_a_pipeline_gives_up_for_itself(relay: Relay, queue: Any, direct: Queue) -> None:
    calls = [enqueue(queue, job) for job in ("a", "b")]
    relay.standing = "one_reply"
    set_deadline(queue, 0)
    assert results(queue.driver.send_many(calls)) == ["created", "OutcomeUnknown"]
    assert sorted(ids_of(direct, "waiting")) == ["a", "b"]


def test_nothing_listens(kind: str, runner: asyncio.Runner, relay: Relay, queue: Any, closed_port: int) -> None:
    dead = hurried(kind, runner, "q", f"redis://127.0.0.1:{closed_port}/0", deadline_ms=200)
    calls = [enqueue(queue, "a"), enqueue(queue, "b")]
    relay.down()
    queue.close()
    set_deadline(queue, 200)
    many = partial(dead.enqueue_many, [{"name": "work", "payload": 1}])
    for use in (partial(dead.enqueue, "work", {}), many, partial(queue.enqueue, "work", {})):
        started_s, caught = time.monotonic(), refused(ServerUnavailable, "nothing was applied", use)
        # Pauses double from 10 ms, by half of it at least: 5 + 10 + 20 + 40, then 80 to 160, which may be past the deadline.
        assert time.monotonic() - started_s > 0.07, "it tries again until its deadline"
        assert "\n" not in str(caught)
    assert results(queue.driver.send_many(calls)) == ["ServerUnavailable"] * 2


@pytest.mark.parametrize(("rule", "applied"), [("lose_reply", ["j"]), ("lose_request", [])])
def test_what_is_lost_leaves_the_outcome_unknown(relay: Relay, queue: Any, direct: Queue, rule: Rule, applied: list[str]) -> None:
    # Made before the deadline is short, so that the server takes it however late it comes.
    call = enqueue(queue, "j")
    relay.standing = rule
    set_deadline(queue, 300)
    refused(OutcomeUnknown, r"enqueue: \d+ of \d+ sends unanswered", queue.driver.run, call)
    assert ids_of(direct, "waiting") == applied


def test_redis_errors_never_escape(kind: str, runner: asyncio.Runner, relay: Relay, queue: Any) -> None:
    """Whatever happens to a call, the caller sees the engine's errors."""
    hasty = hurried(kind, runner, "q", relay.url, timeout_ms=200, deadline_ms=200)
    for rule in ("lose_reply", "lose_request", "cut_request", "cut_reply", "hush_reply"):
        relay.standing = rule
        assert not isinstance(refused((OutcomeUnknown, ServerUnavailable), "", hasty.enqueue, "work", {}), redis.RedisError)
    hasty.close()


def test_calls_that_follow_each_other_share_one_connection(queue: Any, client: Any) -> None:
    before = client.info("stats")["total_connections_received"]
    for number in range(20):
        queue.enqueue("work", {}, id=f"j{number}")
    queue.enqueue_many([{"name": "work", "payload": number} for number in range(2000)])
    queue.counts()
    assert client.info("stats")["total_connections_received"] == before


def test_an_idle_connection_that_was_closed_costs_no_doubt(relay: Relay, kind: str, runner: asyncio.Runner, queue: Any) -> None:
    """One that was idle for a second is looked at before it is used, so the call is not sent into nothing."""
    queue.enqueue("work", {}, id="a")
    relay.break_all()
    pool = connections_of(queue, kind, runner)._idle[None]
    pool[:] = [(connection, 0) for connection, _ in pool]
    for connection, _ in pool:
        if kind == "async":
            runner.run(seen(connection._reader.at_eof))
        else:
            assert select.select([connection._sock], [], [], DEADLINE_S)[0]
    before = relay.calls
    assert queue.driver.send(queue.model.call(Count())).definite and relay.calls == before + 1


def test_a_server_that_is_restarted_between_two_calls_costs_no_doubt(relay: Relay, queue: Any) -> None:
    queue.driver.send_many([enqueue(queue, "a")])
    relay.down()
    relay.up()
    queue.close()
    assert queue.enqueue("work", {}, id="b").result == "created"


def test_flushed_scripts_are_loaded_again(queue: Any, direct: Queue, client: Any) -> None:
    for number in range(3):
        client.script_flush()
        assert queue.driver.send(queue.model.call(claim_operation(queue, classes=("none",)))).definite
        assert queue.enqueue("work", {}, id=f"j{number}").result == "created"
        client.script_flush()
        many = queue.enqueue_many([{"name": "work", "payload": 1, "id": f"m{number}"}])
        assert [job.result for job in many] == ["created"]
    assert direct.counts().waiting == 6


def test_rule_28_a_call_meets_one_idle_connection_without_its_script(
    relay: Relay, kind: str, runner: asyncio.Runner, queue: Any, client: Any
) -> None:
    connections = connections_of(queue, kind, runner)
    run: Any = runner.run if kind == "async" else lambda done: done
    for connection in [run(connections.take(0)) for _ in range(16)]:
        run(connections.give_back(connection))
    before = relay.calls
    client.script_flush()
    assert queue.enqueue("work", {}, id="j").result == "created" and relay.calls == before + 2


def test_a_pipeline_has_a_bound_and_no_blocking_call(queue: Any) -> None:
    calls = [queue.model.call(Count())] * PIPELINE_MAX
    assert len(queue.driver.send_many(calls)) == PIPELINE_MAX
    refused(ScriptFault, "101 calls, at most 100", queue.driver.send_many, [*calls, calls[0]])
    waiting: Operation = Wait(500, ("main",))
    for send in (queue.driver.run, lambda call: queue.driver.send_many([call])):
        refused(ScriptFault, "blocks 500 ms, this driver waits 0 ms", send, queue.model.call(waiting))
    assert queue.driver.send_many([]) == []


def connections_of(queue: Any, kind: str, runner: asyncio.Runner) -> Any:
    """Those of its driver; an asyncio one has some for each loop."""

    async def here() -> Any:
        return vars(queue.driver).get("_target", queue.driver)._connections

    return queue.driver._connections if kind == "sync" else runner.run(here())


def set_deadline(queue: Any, deadline_ms: int) -> None:
    driver = queue.driver
    vars(driver).get("_target", driver).deadline_ms = deadline_ms
