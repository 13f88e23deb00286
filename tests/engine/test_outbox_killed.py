"""A relay that is killed by SIGKILL, again and again, at seeded moments: every committed row becomes exactly one job."""

import os
import random
import signal
import sys
import time
from typing import Any

import pytest
import redis

from engine import Job, Queue, outbox
from engine.queue.settings import TEST_CLOCK_LEAST_MS
from engine.testing import run_all
from tests.engine.helpers.databases import Database
from tests.engine.using import EXPIRE, wait_until, warm

MOMENTS = 20
#: What must be among the moments: the steps between which an outbox can be half done.
NAMED = ("before bulk", "after bulk", "before commit", "after commit", "before call", "after call")
#: A batch of four rows takes at least fourteen steps, and a moment has at least twelve rows.
STEPS = 40


class Yard:
    """A queue whose handler notes what it has run, in front of a database."""

    def __init__(self, queue: Queue, database: Database, url: str) -> None:
        self.queue, self.database, self.url = queue, database, url
        self.redis: Any = redis.Redis.from_url(url)
        self.ran, self.committed, self.number = list[str](), list[str](), 0

        @queue.job("ship")
        def ship(job: Job, number: int) -> None:
            self.ran.append(job.id)

        self.ship = ship

    def trade(self, rng: random.Random, rows: int) -> None:
        """Transactions of some rows each, until so many are committed; some are rolled back."""
        connection, left = self.database.connect(), rows
        while left > 0:
            jobs = []
            for _ in range(rng.randint(1, 3)):
                self.number += 1
                jobs.append(outbox.add(connection, self.ship, self.number))
            if rng.random() < 0.3:
                connection.rollback()
            else:
                connection.commit()
                self.committed += jobs
                left -= len(jobs)
        connection.close()

    def start(self, *options: str) -> Any:
        words = ["-m", "tests.engine.helpers.outbox_relay", "--kind", self.database.kind]
        words += ["--address", self.database.address, "--url", self.url, *options]
        reader, writer = os.pipe()
        with open(writer, "wb") as output:
            relay = warm.start(words, env=os.environ, output=output, errors=sys.__stderr__)
        relay.stdout = os.fdopen(reader, "rb")
        return relay

    def kill(self, step: int | str, *options: str, outside: bool = False) -> list[str]:
        """Have a relay killed at this step, or the first of this name: by itself, or by this process, which finds it a little
        further on. Its steps."""
        relay = self.start("--kill-at", "" if outside else str(step), *options)
        assert relay.stdout is not None
        steps: list[str] = []
        for line in relay.stdout:
            steps.append(line.decode().split(" ", 1)[1].strip())
            if outside and len(steps) == step:
                relay.kill()
        assert relay.wait(120) == -signal.SIGKILL
        relay.stdout.close()
        return steps


@pytest.fixture
def yard(queue: Queue, database: Database, ironclaim_url: str) -> Any:
    made = Yard(queue, database, ironclaim_url)
    yield made
    made.redis.close()


@pytest.mark.slow
def test_rule_23_every_committed_row_is_one_job_when_its_relay_is_killed_at_twenty_moments(yard: Yard) -> None:
    """After each kill the jobs run, and a minute passes before the next relay comes: no id is known any more."""
    rng, now_ms = random.Random(23), TEST_CLOCK_LEAST_MS
    yard.queue.use_test_clock(now_ms)
    died: list[str] = []
    moments: list[str | int] = [*NAMED, *(rng.randint(1, STEPS) for _ in range(MOMENTS - len(NAMED)))]
    rng.shuffle(moments)
    for number, moment in enumerate(moments):
        yard.trade(rng, 12)
        # By another process, which does not hit the very step, or by its own hand.
        outside = isinstance(moment, int) and number % 2 == 0
        died.append(yard.kill(moment, "--clock-ms", str(now_ms), outside=outside)[-1])
        run_all(yard.queue)
        now_ms += 60_000
        yard.queue.use_test_clock(now_ms)
        yard.redis.eval(EXPIRE, 0, 1, now_ms, 0)
        assert len(yard.ran) == len({*yard.ran}), (moments, died)
    assert {*NAMED} <= {*died}, died
    outbox.relay(yard.database.connect, yard.queue, burst=True)
    run_all(yard.queue)
    assert sorted(yard.ran) == sorted(yard.committed) and yard.database.states() == {}
    yard.redis.eval(EXPIRE, 0, 1, now_ms + 30_000, 0)
    assert yard.redis.keys("*dedup*") == []


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_rule_23_a_relay_that_is_restarted_60_s_after_its_jobs_have_ended_sends_none_again(yard: Yard) -> None:
    """By the server's own clock."""
    yard.trade(random.Random(1), 12)
    assert yard.kill("after bulk")[-1] == "after bulk"
    sent = yard.queue.counts().waiting
    assert 0 < sent < len(yard.committed)
    run_all(yard.queue)
    ended_s, jobs = time.monotonic(), [yard.queue.model.keys.job(job) for job in yard.ran]
    wait_until(lambda: time.monotonic() - ended_s > 60 and not yard.redis.exists(*jobs), "a minute has passed", 120)
    assert yard.start("--burst").wait(120) == 0
    run_all(yard.queue)
    assert len(yard.ran) > sent and sorted(yard.ran) == sorted(yard.committed) and yard.database.states() == {}
