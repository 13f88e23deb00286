"""Churn: millions of jobs through one queue, to see what they leave in the server's memory, and how that is fragmented.

The queue fills and empties again and again, with payloads of all sizes, so that the allocator has holes to fill. Before the first
round and after the last one what is kept of finished jobs is removed, and their tombstones are waited out (rule 3). Then the
server holds the same as before; what is there nevertheless is a leak.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import redis

from bench import models
from bench.micro.jobs import Claims
from bench.micro.memory import settled
from bench.micro.payload import NAME
from chaos import runs
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.progress import Progress
from chaos.run import prune
from chaos.slopes import MB
from chaos.soaking import LEAKING, STEADY, WORDS
from engine import EngineError, Queue
from engine.ops.claims import Finish
from engine.testing import EmbeddedServer, ServerFailed

#: A round fills the queue with so many, or with less, so that there are enough rounds.
ROUND_JOBS = 50_000
ROUNDS_MIN = 10

#: So many go in one call. Sizes of payloads are even on a logarithmic scale between the bounds.
PIECE = 1_000
PAYLOAD_BYTES = (32, 8_192)

#: MB that may be used afterwards beyond what was before: tables of the server shrink lazily.
LEFT_MAX_MB = 1.0

#: Tombstones live for 20 s and a little more; then the server has to find them. A few keys of the queue itself may expire too.
EXPIRING_MAX = 10
EXPIRY_TIMEOUT_S = 300.0
LOOK_S = 0.5

FILE = "churn.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """The server's memory: what it has allocated, what is resident, and how many times the former the latter is."""

    used_mb: float
    rss_mb: float
    fragmentation: float

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Memory:
        """By INFO."""
        used, resident = info["used_memory"], info["used_memory_rss"]
        return cls(used / MB, resident / MB, resident / used)


@dataclass(frozen=True, slots=True)
class Churned:
    """What came of it: the memory of the empty queue, of the fullest one, and of the empty one again."""

    jobs: int
    before: Memory
    peak: Memory
    after: Memory

    @property
    def left_mb(self) -> float:
        """What is used in the end beyond what was before."""
        return self.after.used_mb - self.before.used_mb

    @property
    def code(self) -> int:
        """See `churn`."""
        return LEAKING if self.left_mb > LEFT_MAX_MB else STEADY

    def words(self) -> Iterator[str]:
        """The table, and the last line."""
        yield f"{'':8} {'used MB':>10} {'resident MB':>12} {'fragmentation':>14}"
        for name, one in (("before", self.before), ("peak", self.peak), ("after", self.after)):
            yield f"{name:8} {one.used_mb:10.2f} {one.rss_mb:12.2f} {one.fragmentation:14.2f}"
        bound = f"a leak is more than {LEFT_MAX_MB:g} MB"
        yield f"churn: {WORDS[self.code]}, {self.left_mb:+.3f} MB are left of {self.jobs:,} jobs ({bound})"


def rounds_of(jobs: int) -> list[int]:
    """How many jobs each round has."""
    each = min(ROUND_JOBS, jobs // ROUNDS_MIN)
    whole, rest = divmod(jobs, each)
    return [each] * whole + ([rest] if rest else [])


def fill(queue: Queue, jobs: int, randomness: random.Random) -> None:
    """Enqueue so many, of all sizes."""
    least, most = PAYLOAD_BYTES
    text = (string.ascii_letters * (most // len(string.ascii_letters) + 1))[:most]
    for begin in range(0, jobs, PIECE):
        sizes = [round(least * (most / least) ** randomness.random()) for _ in range(min(PIECE, jobs - begin))]
        queue.enqueue_many([{"name": NAME, "payload": {"pad": text[:size]}} for size in sizes])


def empty(queue: Queue, claims: Claims) -> int:
    """Work all of them off, and remove what is kept of them; how many there were."""
    done = 0
    for leases in claims.take_all():
        queue.driver.run(queue.model.call(Finish(leases)))
        done += len(leases)
    queue.clean("finished")
    return done


def churned(queue: Queue, server: redis.Redis, jobs: int, seed: int, progress: Progress, interrupts: Interrupts) -> Churned:
    """All rounds. Raises Interrupted, EngineError and redis.RedisError."""
    randomness, claims, so_far = random.Random(f"ironclaim churn {seed}"), Claims(queue), 0
    each = rounds_of(jobs)

    def memory() -> Memory:
        settled(server)
        info: Any = server.info("memory")
        return Memory.of(info)

    def at_rest() -> Memory:
        end_s = time.monotonic() + EXPIRY_TIMEOUT_S
        while (expiring := keys_that_expire(server)) > EXPIRING_MAX:
            interrupts.check()
            if time.monotonic() > end_s:
                raise HarnessError(f"churn: {expiring} keys still wait for their expiry after {EXPIRY_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_S)
        return memory()

    # A round of which nothing counts: scripts, connections and tables are there when it is looked.
    fill(queue, each[0], randomness)
    empty(queue, claims)
    before = peak = at_rest()
    for number, of_round in enumerate(each, start=1):
        interrupts.check()
        fill(queue, of_round, randomness)
        peak = max(peak, memory(), key=lambda one: one.used_mb)
        if (done := empty(queue, claims)) != of_round:
            raise HarnessError(f"churn: {done} of {of_round} jobs of round {number} could be worked off")
        so_far += of_round
        if number % max(1, len(each) // 10) == 0:
            progress.say(f"{so_far:,} jobs")
    return Churned(jobs, before, peak, at_rest())


def keys_that_expire(server: redis.Redis) -> int:
    """How many keys have an expiry."""
    keyspace: Any = server.info("keyspace")
    return sum(database["expires"] for database in keyspace.values())


def churn(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Run it. Returns the exit code: 0 steady, 1 leaking, 2 unknown. Raises HarnessError and ServerMissing."""
    now_s, progress = time.time(), Progress(sys.stdout)
    folder = runs.create(arguments.runs.absolute(), runs.run_id("churn", arguments.seed, "", now_s))
    prune(progress, arguments, now_s)
    progress.say(f"churn of {arguments.jobs:,} jobs in {folder.path}")
    try:
        with (
            EmbeddedServer(log=folder.logs / "server.log") as at,
            models.queue(models.LANES, "churn", url=at.url) as queue,
            redis.Redis.from_url(at.url, decode_responses=True) as server,
        ):
            found = churned(queue, server, arguments.jobs, arguments.seed, progress, interrupts)
    except (ServerFailed, EngineError, redis.RedisError) as error:
        raise HarnessError(f"churn: {type(error).__name__}: {error}") from error
    content = {"schema": SCHEMA, "id": folder.path.name, **asdict(found), "left_mb": found.left_mb}
    (folder.path / FILE).write_text(json.dumps(content) + "\n")
    folder.release()
    for line in found.words():
        progress.say(line)
    return found.code
