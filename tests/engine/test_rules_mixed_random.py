"""Everything at once beside an oracle, under Hypothesis and an injected clock: jobs of all kinds come, run, fail, crash and are
ended by hand, while limits, pauses, schedules and the time change. After each step every job's state, what is counted and every
key are what a plain model of the promises says (helpers/mixed_oracle.py), and at the end every job has ended.

The walks of lanes, of families and of schedules go deeper: test_rules_lanes_random.py and its neighbours.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.desk import Desk
from tests.engine.helpers.mixed_state import IDLE, keys_by_kind
from tests.engine.helpers.mixed_walk import ACTIONS, NAMES, PER_MS, MixedWalk
from tests.walks import examples

#: Each example starts from an empty server, and does real I/O.
SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)

#: One of those that there are by then.
PICK = st.integers(0, 30)
NAME = st.sampled_from(NAMES)
WHOM = st.sampled_from((*NAMES, "*"))
SCHEDULE = st.sampled_from("xy")
STATES = st.sampled_from(("waiting", "blocked", "delayed", "dead", "finished"))
#: What a job may ask for; most ask for little.
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "key": st.sampled_from("ab"), "priority": st.sampled_from((3, 8)), "lifo": st.just(True), "attempts": st.integers(1, 2),
    "crashes_max": st.integers(2, 3), "unique": st.sampled_from(("u", "v", "w")),
}  # fmt: skip
MORE: dict[str, st.SearchStrategy[Any]] = {
    **OPTIONS, "delay_ms": st.sampled_from((400, 4_000)), "dedup": st.sampled_from(("c", "d")),
    "on_parent_failure": st.just("ignore"),
}  # fmt: skip


def asked(options: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """At most three of the options."""
    names = st.lists(st.sampled_from(sorted(options)), max_size=3, unique=True)
    return names.flatmap(lambda wanted: st.fixed_dictionaries({name: options[name] for name in wanted}))


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """A method of the walk, with what it is given."""
    return st.tuples(st.just(name), *arguments)


#: How often, and what: the first is what a walk that fails is made of when it is made as short as it gets.
STEPS = (
    (5, step("late", st.sampled_from(("finish", "retry", "bury", "release", "extend", "skip", "discard")), st.integers(0, 4))),
    (1, step("extend", PICK)), (2, step("mark", PICK)),
    (8, step("enqueue", NAME, st.none() | st.none() | PICK, st.lists(PICK, max_size=2), asked(MORE))),
    (8, step("enqueue", NAME, st.none(), st.just([]), asked(OPTIONS))),
    (3, step("enqueue", NAME, st.none(), st.just([]), st.fixed_dictionaries({"delay_ms": st.sampled_from((400, 4_000))}))),
    (7, step("claim", st.just("a"), st.sampled_from((2, 10)), st.just(NAMES))),
    (2, step("claim", st.just("b"), st.just(1), st.lists(NAME, min_size=1, unique=True).map(tuple))),
    (2, step("finish_and_claim", st.sampled_from("ab"), st.sampled_from((1, 10)), st.lists(PICK, min_size=1, max_size=3))),
    (5, step("end", st.sampled_from(("finish", "release", "skip", "discard", "bury")), st.just(0), PICK)),
    (5, step("end", st.just("retry"), st.sampled_from((0, 300)), PICK)),
    (7, step("time", st.sampled_from((1, 300, 3_000)), st.sampled_from((1, 4)))), (6, step("sweep_and_tick")),
    (7, step("alter", st.sampled_from(sorted(ACTIONS)), PICK)), (3, step("alter", st.just("cancel"), PICK)),
    (3, step("limit", st.sampled_from(sorted(PER_MS)), st.integers(0, 2), st.sampled_from((0, 0, 1, 3)), st.just("sliding"))),
    (1, step("limit", st.sampled_from(sorted(PER_MS)), st.integers(0, 1), st.integers(1, 2), st.just("fixed"))),
    (1, step("pause", WHOM, st.sampled_from((300, 5_000, 0)))), (2, step("resume", WHOM)),
    (1, step("clean", STATES, st.sampled_from((2_000, 0)))),
    (3, step("put_schedule", SCHEDULE, NAME, *(st.sampled_from((2, 5)), st.booleans()), st.fixed_dictionaries({
        "missed": st.sampled_from(("all", "once", "skip")), "overlap": st.sampled_from(("skip", "allow")),
    }), asked(OPTIONS))),
    (2, step("change_schedule", SCHEDULE, st.sampled_from(("run_now", "disable", "enable", "enable", "remove")))),
    (1, st.integers(0, 3).map(lambda number: ("sweep_and_tick",) if number else ("obliterate",))),
)  # fmt: skip
STEP = st.sampled_from([at for at, (weight, _) in enumerate(STEPS) for _ in range(weight)]).flatmap(lambda at: STEPS[at][1])


@pytest.mark.walk
@settings(max_examples=examples(10), suppress_health_check=SLOW)
@given(steps=st.lists(STEP, min_size=50, max_size=90))
def test_everything_at_once_agrees_with_the_oracle(desk: Desk, steps: list[tuple[Any, ...]]) -> None:
    walk = MixedWalk(desk)
    for name, *arguments in steps:
        getattr(walk, name)(*arguments)
        walk.check()
    walk.wind_up()
    left = set(keys_by_kind(desk))
    assert left <= IDLE, ("left of a queue whose jobs have ended", left - IDLE)
