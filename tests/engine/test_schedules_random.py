"""Schedules against an oracle, under a clock that Hypothesis moves: what is put, changed, disabled, removed, and ticked by
several schedulers whose calls come late, twice, cut off or never (rules 1, 7, 10 and 24)."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.worker.machine.sweeping import tick
from tests.engine.helpers.schedules_oracle import SchedulesOracle
from tests.engine.using import START_MS, Call, Desk, Tick
from tests.walks import examples

NAMES, EVERY_MS, MISSED, LATE_MS = ("a", "b"), (1000, 7000), ("skip", "once", "all"), 5000

#: What happens next, and to whom.
STEP = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from(EVERY_MS), st.sampled_from(MISSED)),
    st.tuples(st.sampled_from(["disable", "enable", "remove"]), st.sampled_from(NAMES)),
    *(st.tuples(st.just("pass"), st.integers(0, 3000)), st.tuples(st.just("pass"), st.integers(0, 60_000))),
    *(st.tuples(st.just("step back"), st.integers(1, 20_000)), st.tuples(st.just("look"), st.sampled_from("xyz"))),
    st.tuples(st.just("send"), st.integers(0, 20)),
    st.tuples(st.just("cut off"), st.integers(0, 20), st.integers(0, 8)),
    st.just(("turn",)),
)


@pytest.mark.feature("BQ10", "MQ08", "MQ10")
@pytest.mark.walk
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=10, max_size=40))
def test_rule_24_every_tick_makes_its_job_once_whatever_happens_to_the_calls(desk: Desk, steps: list[Any]) -> None:
    desk.begin()
    oracle, calls, counters = SchedulesOracle(LATE_MS), list[tuple[Tick, Call[Any], int]](), iter(range(1, 10_000))
    made: list[str] = []

    def look(worker: str) -> list[tuple[Tick, Call[Any], int]]:
        promoted = desk.run(desk.sweep_operation(worker))
        found = [tick(due, promoted.srv_us // 1000, worker * 16, next(counters)) for due in promoted.due]
        return [(operation, desk.call(operation), desk.now_ms) for operation in found]

    def told(operation: Tick, looked_ms: int) -> None:
        """The schedule was moved on by this call: by what was known when it looked."""
        known = oracle.known[operation.schedule]
        assert known.enabled and operation.expected_ms == known.next_ms
        assert list(operation.ticks_ms) == oracle.fire(operation.schedule, looked_ms)
        made.extend(f"cron:{operation.schedule}:{tick_ms}" for tick_ms in operation.ticks_ms)

    def send(operation: Tick, call: Call[Any], looked_ms: int) -> None:
        if desk.send(call).result == "ticked":
            told(operation, looked_ms)

    for what, *more in steps:
        match what:
            case "put":
                name, every_ms, missed = more
                desk.queue.schedules.put(name, "main", None, every_ms=every_ms, missed=missed, late_ms=LATE_MS)
                oracle.put(name, every_ms, missed, desk.now_ms)
            case "disable" | "enable":
                known = getattr(desk.queue.schedules, what)(more[0])
                assert known == (more[0] in oracle.known)
                oracle.enable(more[0], what == "enable", desk.now_ms)
            case "remove":
                assert desk.queue.schedules.remove(more[0]) == (oracle.known.pop(more[0], None) is not None)
            case "pass":
                desk.tick(more[0])
            case "step back":
                desk.tick(-min(more[0], desk.now_ms - START_MS))
            case "look":
                calls += look(more[0])
            case "send" if calls:
                send(*calls[more[0] % len(calls)])
            case "cut off" if calls:
                operation, call, looked_ms = calls[more[0] % len(calls)]
                if desk.now_ms >= looked_ms:
                    before = desk.redis.hget(desk.keys.schedule(operation.schedule), "next_ms")
                    desk.cut_off(call.operation, more[1])
                    # Another copy finds what it left, before anything else happens.
                    reply = desk.send(call)
                    moved = desk.redis.hget(desk.keys.schedule(operation.schedule), "next_ms") != before
                    assert not moved or reply.result != "moved"
                    if moved:
                        told(operation, looked_ms)
            case "turn":
                for found in look("t"):
                    send(*found)
        # Made once, in the order of the oracle; and what waits is what was made, each once.
        raw: Any = desk.redis.zrange(desk.keys.lane("main"), 0, -1)
        assert sorted([job.decode() for job in raw]) == sorted(set(made))
    stored = {schedule.name: schedule for schedule in desk.queue.schedules.list()}
    assert set(stored) == set(oracle.known)
    for name, known in oracle.known.items():
        assert stored[name].enabled == known.enabled and stored[name].next_ms == (known.next_ms if known.enabled else 0)
