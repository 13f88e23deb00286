"""Rules 7 and 18 to 20 beside an oracle: random jobs, claims, ends, limits and pauses; nothing too much, nothing stuck."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.helpers.lanes_oracle import Oracle
from tests.engine.helpers.lanes_state import check, markers, members, names_of, parked
from tests.engine.using import LEASE_MS, Bury, Desk, Failure, Finish, LeasedJob, Limit, Release
from tests.walks import examples

#: Each example starts from an empty server, and does real I/O.
SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)

NAMES = ("mail", "sms", "push")
KEYS = ("", "a", "b", "c")
#: Windows of one length a target: what becomes of a window whose length changes is not told.
TARGETS = {"n:mail": 700, "n:sms": 300, "k:*": 500, "k:a": 500, "k:b": 500}


class Walk:
    """One random walk of both."""

    def __init__(self, desk: Desk, dice: random.Random) -> None:
        self.desk, self.random, self.oracle = desk, dice, Oracle()
        self.made = 0
        self.ended: set[str] = set()
        self.asked: set[str] = set()
        self.log: list[str] = []

    def step(self) -> None:
        moves = {
            **{self.enqueue: 8, self.claim: 10, self.end: 8, self.finish_and_claim: 4, self.limit: 2},
            **{self.pause: 1, self.resume: 1, self.time: 8, self.sweep: 2},
        }
        (move,) = self.random.choices(list(moves), weights=list(moves.values()))
        self.log = [*self.log[-20:], f"{self.desk.now_ms} {move.__name__}"]
        before_ms, before, self.asked = self.desk.now_ms, self.told_of(), set()
        move()
        if self.desk.now_ms == before_ms:
            # Rule 22: what a call has made claimable, or a claim has left, is told.
            gained = {name for name in self.told_of() if name not in before or name in self.asked}
            assert gained <= set(markers(self.desk)), (gained, "has work that nobody is told of")

    def told_of(self) -> set[str]:
        """Classes with work that somebody must be told of; of jobs that were delayed, the sweeps know when."""
        return {
            name for name in NAMES if any(not job.due_ms for job in self.oracle.claimable((name,), self.desk.now_ms).values())
        }

    def enqueue(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            job, name, key = f"j{self.made}", self.random.choice(NAMES), self.random.choice(KEYS)
            self.made += 1
            priority, delay_ms = self.random.choice((3, 5, 5, 8)), self.random.choice((0, 0, 0, 400))
            self.desk.enqueue(job, name=name, key=key, priority=priority, delay_ms=delay_ms, crashes_max=255, attempts=1000)
            self.oracle.add(job, name, key, priority, self.desk.now_ms + delay_ms if delay_ms else 0)

    def classes(self) -> tuple[str, ...]:
        """Classes to claim from. A worker has taken their markers."""
        classes = tuple(self.random.sample(NAMES, self.random.randint(1, 3)))
        self.asked = set(classes)
        self.desk.redis.delete(*map(self.desk.keys.wake, classes))
        return classes

    def claim(self) -> None:
        classes, limit = self.classes(), self.random.choice((1, 2, 5, 30))
        self.judge(self.desk.claim(self.random.choice("ab"), limit, classes=classes), classes, limit)

    def judge(self, found: list[LeasedJob], classes: tuple[str, ...], limit: int) -> None:
        for job in found:
            self.oracle.claimed(job.lease.job, job.lease, classes, self.desk.now_ms)
        may = self.oracle.claimable(classes, self.desk.now_ms)
        assert len(found) == limit or not may, ("left behind", list(may))

    def leased(self, most: int) -> list[str]:
        names = [name for name, job in self.oracle.jobs.items() if job.lease]
        return self.random.sample(names, min(len(names), self.random.randint(1, most)))

    def end(self) -> None:
        for name in self.leased(3):
            lease: Any = self.oracle.jobs[name].lease
            how = self.random.choice(("finish", "finish", "retry", "bury", "release"))
            if how == "retry":
                delay_ms = self.random.choice((0, 200))
                assert self.desk.retry(lease, delay_ms=delay_ms) == ("ok", "retried")
                self.oracle.ended(name, due_ms=self.desk.now_ms + delay_ms)
                continue
            operation = {"finish": Finish((lease,)), "bury": Bury((Failure(lease, "no"),)), "release": Release((lease,))}[how]
            assert self.desk.run(operation).items[0][0] == "ok"
            self.oracle.ended(name, due_ms=0 if how == "release" else None, unstarted=how == "release")
            self.ended |= {name} if how != "release" else set()

    def finish_and_claim(self) -> None:
        names, classes, limit = self.leased(5), self.classes(), self.random.choice((1, 5))
        leases: Any = tuple(self.oracle.jobs[name].lease for name in names)
        reply = self.desk.run(Finish(leases, self.desk.claim_operation("a", limit, classes=classes)))
        for name in names:
            self.oracle.ended(name)
        self.ended |= set(names)
        self.judge(list(reply.claimed.jobs), classes, limit)

    def limit(self) -> None:
        target, bounds = self.random.choice(list(TARGETS)), dict[str, Any]()
        if self.random.random() < 0.7:
            bounds["concurrency"] = self.random.randint(1, 3)
        if self.random.random() < 0.4:
            window = self.random.choice(("fixed", "sliding"))
            bounds |= {"rate": self.random.randint(1, 4), "per_ms": TARGETS[target], "window": window}
        self.desk.set_limit(target, **bounds)
        self.oracle.limits.pop(target, None)
        if bounds:
            self.oracle.limits[target] = Limit(**bounds)

    def pause(self) -> None:
        name, length_ms = self.random.choice((*NAMES, "*")), self.random.choice((0, 300, 900))
        self.desk.pause(name, length_ms)
        self.oracle.pauses[name] = self.desk.now_ms + length_ms if length_ms else 0

    def resume(self) -> None:
        for name in list(self.oracle.pauses):
            self.desk.resume(name)
            del self.oracle.pauses[name]

    def time(self) -> None:
        self.desk.tick(self.random.choice((1, 17, 100, 250, 499)))

    def sweep(self) -> None:
        for lease, _ in self.desk.sweep().leases:
            self.oracle.ended(lease.job, due_ms=0)

    def check(self) -> None:
        check(self.desk, room=True, held=False)
        for limit_id in {*names_of(self.desk, self.desk.keys.held("*")), *self.oracle.held}:
            assert set(members(self.desk, self.desk.keys.held(limit_id))) == self.oracle.held.get(limit_id, set()), limit_id

    def wind_up(self) -> None:
        """Let every job end, under the limits that there are."""
        self.resume()
        for _ in range(400):
            if not self.oracle.jobs:
                break
            self.sweep()
            self.finish_and_claim()
            self.desk.tick(LEASE_MS // 20)
        assert self.oracle.jobs == {} and len(self.ended) == self.made
        self.check()
        assert self.desk.redis.exists(self.desk.keys.active, self.desk.keys.due) == 0
        assert names_of(self.desk, self.desk.keys.lane("*")) == []


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4))])
def test_rules_18_to_20_a_random_walk_agrees_with_the_oracle(desk: Desk, seed: int) -> None:
    walk = Walk(desk, random.Random(seed))
    try:
        for number in range(180):
            walk.step()
            if number % 6 == 0:
                walk.check()
        walk.wind_up()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}; before: {walk.log}") from error


@pytest.mark.walk
@settings(max_examples=examples(4), suppress_health_check=SLOW)
@given(dice=st.randoms(use_true_random=True), steps=st.integers(30, 80))
def test_rules_18_to_20_a_walk_that_hypothesis_draws_agrees_with_the_oracle(desk: Desk, dice: random.Random, steps: int) -> None:
    """A walk that fails is made as short as it gets."""
    walk = Walk(desk.begin(), dice)
    for _ in range(steps):
        walk.step()
    walk.wind_up()


@pytest.mark.parametrize("seed", range(100, 103))
def test_rule_10_a_clock_that_steps_back_an_hour_holds_no_job_of_a_random_walk_up(desk: Desk, seed: int) -> None:
    """Leases, windows, rests and pauses are left an hour ahead; all is over within the longest of them and a lease."""
    walk = Walk(desk, random.Random(seed))
    for _ in range(120):
        walk.step()
    for name in [name for name, until_ms in walk.oracle.pauses.items() if until_ms == 0]:
        desk.resume(name)
    desk.swept(500).pause("mail", 900).held("y", 30, classes=NAMES).swept().tick(-3_600_000)
    passed_ms = 0
    # What is in hand when the clock steps is lost with its worker.
    while desk.redis.exists(desk.keys.active) or names_of(desk, desk.keys.lane("*")):
        assert passed_ms < 3 * LEASE_MS, parked(desk)
        desk.tick(LEASE_MS // 20)
        passed_ms += LEASE_MS // 20
        desk.sweep()
        while found := desk.claim("z", 30, classes=NAMES):
            desk.finish(*[job.lease for job in found])
        check(desk, room=True, held=False)
