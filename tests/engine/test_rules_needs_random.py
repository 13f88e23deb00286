"""Rule 25 by chance: random families of jobs, run, failed, buried, crashed and swept in any order, beside a small model of who
may run and how each job ends."""

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.using import LEASE_MS, Bury, Desk, Failure, Lease
from tests.walks import examples

pytestmark = pytest.mark.feature("BQ35")


class Plan(NamedTuple):
    """A job of a family: its parents, by their places before it; whether it goes on without those that are lost; how its runs
    end, the last one for good; whether it is enqueued by two copies; and how many steps follow."""

    parents: frozenset[int]
    ignores: bool
    ends: tuple[str, ...]
    twice: bool
    steps: int


def plans(size: int) -> st.SearchStrategy[list[Plan]]:
    return st.tuples(
        *[
            st.builds(
                Plan,
                st.frozensets(st.integers(0, place - 1), max_size=3) if place else st.just(frozenset[int]()),
                st.booleans(),
                st.tuples(
                    st.lists(st.sampled_from(("retry", "crash")), max_size=2).map(tuple),
                    st.sampled_from(("finish", "finish", "finish", "bury")),
                ).map(lambda ends: (*ends[0], ends[1])),
                st.booleans(),
                st.integers(0, 3),
            )
            for place in range(size)
        ]
    ).map(list)


class Family:
    """A family on a desk, and the model beside it: how each job has ended, and how often it has run."""

    def __init__(self, desk: Desk, members: list[Plan]) -> None:
        self.desk = desk
        self.members = members
        self.fate: dict[int, str] = {}
        self.runs = [0] * len(members)

    def enqueue(self, place: int) -> None:
        plan = self.members[place]
        needs = tuple(f"j{parent}" for parent in sorted(plan.parents))
        operation = self.desk.enqueue_operation(
            f"j{place}", needs=needs, on_parent_failure="ignore" if plan.ignores else "bury", attempts=5, crashes_max=9
        )
        call = self.desk.call(operation)
        for _ in range(2 if plan.twice else 1):
            assert self.desk.send(call).created

    def step(self) -> bool:
        """Run the first job that may run; False when there is none."""
        self.desk.sweep()
        claimed = self.desk.claim(limit=1)
        for leased in claimed:
            place = int(leased.lease.job[1:])
            plan = self.members[place]
            for parent in plan.parents:
                assert self.fate.get(parent) == "finish" or (plan.ignores and self.fate.get(parent) == "bury"), (place, parent)
            assert place not in self.fate
            end = plan.ends[self.runs[place]]
            self.runs[place] += 1
            self._end(leased.lease, end)
            if end in ("finish", "bury"):
                self.fate[place] = end
        self._spread()
        return bool(claimed)

    def _end(self, lease: Lease, end: str) -> None:
        match end:
            case "finish":
                assert self.desk.finish(lease) == [("ok", "finished")]
            case "bury":
                assert self.desk.run(Bury((Failure(lease, "no"),))).items == (("ok", "buried"),)
            case "retry":
                assert self.desk.retry(lease, 10) == ("ok", "retried")
                self.desk.tick(10)
            case _:
                self.desk.sweep_past(LEASE_MS + 1)

    def _spread(self) -> None:
        """In the model who needs a lost job is lost with it."""
        for place, plan in enumerate(self.members):
            if place not in self.fate and not plan.ignores and any(self.fate.get(parent) == "bury" for parent in plan.parents):
                self.fate[place] = "bury"


@pytest.mark.walk
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 7).flatmap(plans))
def test_each_job_of_a_family_runs_after_its_parents_and_ends_as_it_must(desk: Desk, members: list[Plan]) -> None:
    family = Family(desk.begin(), members)
    for place, plan in enumerate(members):
        family.enqueue(place)
        for _ in range(plan.steps):
            family.step()
    idle = 0
    while idle < len(members) + 1:
        idle = 0 if family.step() else idle + 1
    raw: Any = desk.redis.zrange(desk.keys.dead, 0, -1)
    assert {f"j{place}" for place, end in family.fate.items() if end == "bury"} == {job.decode() for job in raw}
    assert set(family.fate) == set(range(len(members))), "each has ended"
    kept = {desk.keys.blocked, desk.keys.handing} | {key.decode() for key in desk.redis.scan_iter(desk.keys.needs("*"))}
    assert desk.redis.exists(*kept, desk.keys.due, desk.keys.active, desk.keys.lane("main")) == 0
