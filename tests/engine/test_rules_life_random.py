"""Rules 5, 6, 12 and 16 beside an oracle, under Hypothesis and an injected clock: runs, failures, crashes, leases, late ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.ops.claims import Bury, Extend, Failure, Finish, Release, Retry
from engine.ops.jobs import Lease
from engine.ops.looks import Listing
from tests.engine.desk import LEASE_MS, Desk
from tests.engine.helpers.life_oracle import LifeOracle
from tests.walks import examples

#: Each example starts from an empty server, and does real I/O.
SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)


class Life:
    """One walk of both. Every choice is Hypothesis's, and a walk that fails is made as short as it gets."""

    def __init__(self, desk: Desk, dice: Random) -> None:
        self.desk, self.dice, self.oracle = desk, dice, LifeOracle(LEASE_MS)
        #: Leases that have ended, and how: a late copy of an end hears that, and changes nothing.
        self.over: list[tuple[Lease, str]] = []
        self.renewals = 0
        desk.begin()
        desk.sweep()

    def step(self) -> None:
        moves = (
            self.enqueue,
            self.enqueue,
            self.claim,
            self.claim,
            self.end,
            self.end,
            self.extend,
            self.mark,
            self.time,
            self.late,
        )
        self.dice.choice(moves)()
        self.check()

    def enqueue(self) -> None:
        job = f"j{len(self.oracle.jobs)}"
        delay_ms = self.dice.choice((0, 0, 500, LEASE_MS))
        options: dict[str, Any] = {
            "priority": self.dice.choice((5, 1, 9)),
            "lifo": self.dice.choice((False, True)),
            "attempts": self.dice.randint(1, 3),
            "crashes_max": self.dice.randint(2, 3),
        }
        self.desk.enqueue(job, delay_ms=delay_ms, **options)
        self.oracle.add(job, delay_until_ms=self.desk.now_ms + delay_ms if delay_ms else 0, **options)

    def claim(self) -> None:
        limit = self.dice.randint(1, 3)
        wanted = self.oracle.next_claims(limit, self.desk.now_ms)
        found = self.desk.claim(self.dice.choice("ab"), limit)
        assert [job.lease.job for job in found] == wanted
        for job in found:
            life = self.oracle.jobs[job.lease.job]
            assert (job.claims, job.failures, job.crashes) == (life.claims + 1, life.failures, life.crashes)
            assert job.deadline_ms == self.desk.now_ms + LEASE_MS
            self.oracle.claim(job.lease.job, job.lease, self.desk.now_ms)

    def leased(self) -> Lease | None:
        leases = [life.lease for life in self.oracle.jobs.values() if life.lease is not None]
        return self.dice.choice(leases) if leases else None

    def end(self) -> None:
        lease = self.leased()
        if lease is None:
            return
        job, now_ms = lease.job, self.desk.now_ms
        how = self.dice.choice(("finish", "retry", "bury", "release"))
        if how == "retry":
            delay_ms = self.dice.choice((0, 300))
            outcome = self.oracle.retry(job, delay_ms, now_ms)
            assert self.desk.retry(lease, delay_ms=delay_ms) == ("ok", outcome)
        else:
            operation, outcome = self.ends(lease)[how]
            assert self.desk.run(operation).items == (("ok", outcome),)
            {"finish": self.oracle.finish, "bury": self.oracle.bury, "release": lambda job, _: self.oracle.release(job)}[how](
                job, now_ms
            )
        self.over.append((lease, outcome))

    def ends(self, lease: Lease) -> dict[str, tuple[Any, str]]:
        return {
            "finish": (Finish((lease,)), "finished"),
            "retry": (Retry((Failure(lease, "boom", 100),)), "retried"),
            "bury": (Bury((Failure(lease, "no"),)), "buried"),
            "release": (Release((lease,)), "released"),
        }

    def extend(self) -> None:
        lease = self.leased()
        if lease is not None:
            self.renewals += 1
            renewed = self.desk.run(self.desk.extend_operation(lease, renewal=self.renewals)).items
            assert renewed == (("ok", self.desk.now_ms + LEASE_MS),)
            self.oracle.extend(lease.job, self.desk.now_ms)

    def mark(self) -> None:
        lease = self.leased()
        if lease is not None:
            self.oracle.jobs[lease.job].marked = True
            assert self.desk.mark(lease) in ("ok", "repeated")

    def late(self) -> None:
        """A token that has ended, or was taken away, does nothing more, whatever it is used for (rule 5)."""
        if not self.over:
            return
        lease, outcome = self.dice.choice(self.over[-4:])
        how = self.dice.choice(("finish", "retry", "bury", "release", "extend"))
        operation = Extend((lease,), 1000, LEASE_MS, self.desk.now_ms + 1000) if how == "extend" else self.ends(lease)[how][0]
        before = self.desk.dump()
        ((result, said),) = self.desk.run(operation).items
        newest = not any(other.job == lease.job and other.fence > lease.fence for other, _ in self.over)
        again = self.oracle.jobs[lease.job].lease is not None
        if newest and not again and outcome != "reaped" and how != "extend":
            assert (result, said) == ("repeated", outcome)
        else:
            assert result != "ok"
        assert self.desk.dump() == before

    def time(self) -> None:
        """Sweeps come often enough that none looks like the end of a stall (rule 11)."""
        step_ms = self.dice.choice((1, 300, LEASE_MS // 3))
        for _ in range(self.dice.choice((1, 4))):
            self.desk.tick(step_ms)
            wanted = self.oracle.sweep(self.desk.now_ms)
            reaped = self.desk.sweep()
            assert sorted(reaped.leases) == wanted
            self.oracle.promote(self.desk.now_ms)
            self.over += [(lease, "reaped") for lease, _ in wanted]

    def check(self) -> None:
        states: dict[str, list[tuple[str, int]]] = self.desk.run(Listing(0, 1000)).states
        assert {state: sorted(jobs) for state, jobs in states.items() if jobs} == self.oracle.states()

    def wind_up(self) -> None:
        """Let every job end."""
        for _ in range(100):
            self.time()
            self.claim()
            for life in list(self.oracle.jobs.values()):
                if life.lease is not None:
                    assert self.desk.finish(life.lease) == [("ok", "finished")]
                    self.oracle.finish(life.lease.job, self.desk.now_ms)
            if set(self.oracle.states()) <= {"done", "dead"}:
                break
        self.check()
        assert set(self.oracle.states()) <= {"done", "dead"}
        assert self.desk.redis.exists(self.desk.keys.active, self.desk.keys.due) == 0


@pytest.mark.walk
@settings(max_examples=examples(8), suppress_health_check=SLOW)
@given(dice=st.randoms(use_true_random=True), steps=st.integers(30, 80))
def test_rules_05_06_and_12_whatever_becomes_of_jobs_agrees_with_the_oracle(desk: Desk, dice: Random, steps: int) -> None:
    life = Life(desk, dice)
    for _ in range(steps):
        life.step()
    life.wind_up()
