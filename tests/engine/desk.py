"""A desk for tests of the Lanes scripts: one queue on a real server under virtual time, its raw keys, and short ways to run
operations, cut scripts off after a number of writes, and dump the keyspace."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from engine import Queue, validate
from engine.models import Spec
from engine.models.envelope import read_run_fields
from engine.models.lanes_keys import LanesKeys
from engine.ops import claims
from engine.ops.admin import Limit, Pause, Resume, SetLimit, SetWorker
from engine.ops.base import Call, Operation
from engine.ops.claims import Claim, Failure, Finish, LeasedJob, Swept
from engine.ops.jobs import Enqueue, EnqueueMany, Lease, Options
from engine.ops.schedules import Tick, Ticked
from engine.ops.workers import Beat, Beaten, ReportRunTimes, RunTimes
from engine.queue.settings import TEST_CLOCK_LEAST_MS
from engine.worker.machine.sweeping import SWEEP_LIMIT, tick

#: How a tombstone begins.
TOMBSTONE = b"\xa0"
#: An hour and more after the least, so that a test may step back by one.
START_MS = TEST_CLOCK_LEAST_MS + 4_000_000
LEASE_MS, HOUR_MS = 9_000, 3_600_000
#: The ways in which a lease ends.
ENDS = ("finish", "fused", "retry", "bury", "release", "reap")
#: Every command by which scripts write.
WRITES = (
    "SET", "MSET", "SPOP", "DEL", "INCR", "INCRBY", "HSET", "HINCRBY", "ZADD", "ZREM", "ZINTERSTORE", "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE", "HDEL", "PEXPIREAT", "RPUSH", "SADD", "SREM", "XADD", "UNLINK", "LPUSH", "LREM", "RPOPLPUSH", "LSET",
    "LTRIM", "RESTORE", "LMOVE", "RENAME", "PERSIST", "PUBLISH", "EXPIRE", "PEXPIRE", "LPOP",
)  # fmt: skip

#: Put before a script's body: lets as many write commands through as the last argument says, and raises at the next one. What a
#: script does by `pcall` is what may fail, but for the ZADD of an enqueue.
#: One text for all numbers: the server compiles it once.
CUT_OFF = """
local writes, writes_max = 0, tonumber(table.remove(ARGV))
local is_write = { %s }
local function cut(ask)
  return function(command, ...)
    if is_write[command] then
      if writes == writes_max then error('CUT OFF') end
      writes = writes + 1
    end
    return ask(command, ...)
  end
end
local calls, pcalls = cut(redis.call), cut(redis.pcall)
local redis = setmetatable({ call = calls, pcall = function(command, ...)
  return (command == 'ZADD' and pcalls or redis.pcall)(command, ...)
end }, { __index = redis })
"""


#: Every key with its type, its expiry and its value, in one reply.
DUMP = """#!lua flags=no-writes,allow-cross-slot-keys
local reads = {
  string = {'GET'}, hash = {'HGETALL'}, set = {'SMEMBERS'}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, list = {'LRANGE', 0, -1},
  stream = {'XRANGE', '-', '+'},
}
local found, cursor = {}, '0'
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local kind = redis.call('TYPE', key).ok
    local read = reads[kind]
    found[#found + 1] = {key, kind, redis.call('PEXPIRETIME', key), redis.call(read[1], key, unpack(read, 2))}
  end
until cursor == '0'
return found
"""


def pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


#: What a value of each type is in a dump; others are as they were read.
SHOWN: dict[bytes, Callable[[Any], Any]] = {
    b"hash": lambda value: dict(pairs(value)), b"zset": lambda value: [(member, float(score)) for member, score in pairs(value)],
    b"set": set, b"stream": lambda value: [(at, dict(pairs(fields))) for at, fields in value],
}  # fmt: skip

#: Deletes every key that expires from the time ARGV[1] to ARGV[2] (ms, the test's clock). Keys that expire earlier live by the
#: server's own clock: their ends come nearer by ARGV[3] ms.
EXPIRE = """#!lua flags=allow-oom
local from_ms, now_ms, passed_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local at_ms = redis.call('PEXPIRETIME', key)
    if at_ms >= from_ms and at_ms <= now_ms then
      redis.call('DEL', key)
    elseif at_ms > 0 and at_ms < from_ms and passed_ms > 0 then
      redis.call('PEXPIREAT', key, string.format('%d', at_ms - passed_ms))
    end
  end
until cursor == '0'
"""


def then(method: str) -> Callable[..., Any]:
    """The same as this method, whatever comes of it: the next step follows in the same line."""

    def done(self: Any, *given: Any, **named: Any) -> Any:
        getattr(self, method)(*given, **named)
        return self

    return done


def lent(made: Any) -> Iterator[Any]:
    """What a fixture gives, closed in the end."""
    with closing(made):
        yield made


class Desk:
    """One queue under a clock that the test moves. What only prepares it returns it: the next step follows in the same line."""

    #: Keys that expire before this (ms) live by the server's own clock; whether the time that the test lets pass ends them, too.
    expires_from_ms, passes_for_all = 1, False

    def __init__(self, url: str, model: Spec | None = None, lua: Path | None = None) -> None:
        self.queue = Queue("desk", model, url=url, lua=lua)
        self.redis: Any = redis.Redis.from_url(url)
        self.keys: LanesKeys = self.queue.model.keys
        self.now_ms = START_MS
        self.queue.use_test_clock(self.now_ms)
        self._counters, self._was_cut = dict[str, int](), True

    def begin(self) -> Self:
        """Begin once more, with nothing on the server."""
        self.redis.flushall()
        self.now_ms, self._counters = START_MS, {}
        self.queue.model.now_ms = None
        self.queue.use_test_clock(self.now_ms)
        return self

    def close(self) -> None:
        self.queue.close()
        self.redis.close()

    def tick(self, ms: int) -> Self:
        """Move the clock, and delete the keys that would have expired by then."""
        self.now_ms += ms
        self.queue.use_test_clock(self.now_ms)
        self.redis.eval(EXPIRE, 0, self.expires_from_ms, self.now_ms, max(0, ms) if self.passes_for_all else 0)
        return self

    def to(self, at_ms: int) -> Self:
        """Let it be this time."""
        return self.tick(at_ms - self.now_ms)

    def later(self, ms: int) -> Swept:
        """Move the clock, and let a worker sweep then."""
        self.tick(ms)
        return self.sweep()

    def swept(self, ms: int = 0) -> Self:
        """The same, whatever the sweep tells; without a time: now."""
        (self.tick(ms) if ms else self).sweep()
        return self

    def sweeps(self, times: int, ms: int = 0) -> Self:
        """So many sweeps, each after such a time."""
        for _ in range(times):
            self.swept(ms)
        return self

    # -- operations

    def call(self, operation: Operation) -> Call[Any]:
        return self.queue.model.call(operation)

    def run(self, operation: Operation) -> Any:
        return self.queue.driver.run(self.call(operation))

    def did(self, *operations: Operation) -> Self:
        """Run them, whatever they answer."""
        for operation in operations:
            self.run(operation)
        return self

    def send(self, call: Call[Any]) -> Any:
        """Run a call that was built before: a late copy of it, at the server's present time."""
        now = str(self.now_ms).encode()
        at = call.script.arguments.index("now_ms") if call.script else 0
        return self.queue.driver.run(replace(call, arguments=(*call.arguments[:at], now, *call.arguments[at + 1 :])))

    def cut_off(self, operation: Operation, writes: int) -> bool:
        """Run the operation's script and stop it after `writes` write commands; False when it has no more than that."""
        call = self.call(operation)
        assert call.script is not None
        shebang, body = call.script.text.split("\n", 1)
        names = ", ".join(f"{name} = true" for name in WRITES)
        text = f"{shebang}\n{CUT_OFF % names}{body}"
        try:
            self.redis.eval(text, len(call.keys), *call.keys, *call.arguments, writes)  # type: ignore[arg-type]
        except redis.ResponseError as error:
            assert "CUT OFF" in str(error), error
            return True
        self._was_cut = False
        return False

    def enqueue_operation(
        self, job: str, *, name: str = "main", nonce: bytes = b"nonce---", payload: object = None, **options: Any
    ) -> Enqueue:
        data = validate.payload_bytes({"job": job} if payload is None else payload)
        return Enqueue(job, name, data, nonce, Options(**options), not_after_ms=self.now_ms + 10_000)

    def enqueue_many_operation(self, *jobs: str, delays_ms: tuple[int, ...] = (), nonce: bytes = b"nonce---") -> EnqueueMany:
        """Many jobs in one piece; the first ones are delayed."""
        late = dict(zip(jobs, delays_ms, strict=False))
        return EnqueueMany(tuple(self.enqueue_operation(job, nonce=nonce, delay_ms=late.get(job, 0)) for job in jobs))

    def enqueue_many_of(self, *jobs: tuple[str, str]) -> EnqueueMany:
        """Many jobs in one piece, each with its key."""
        return EnqueueMany(tuple(self.enqueue_operation(job, key=key) for job, key in jobs))

    def enqueue(self, *jobs: str, **options: Any) -> Self:
        for job in jobs:
            assert self.run(self.enqueue_operation(job, **options)).result == "created"
        return self

    def family(self, **options: Any) -> Self:
        """A parent `p`, and a `child` that needs it."""
        return self.enqueue("p").enqueue("child", needs=("p",), **options)

    def leased(self, *jobs: str, **options: Any) -> list[LeasedJob]:
        """Enqueue them, and let a worker claim what may run."""
        return self.enqueue(*jobs, **options).claim()

    def claim_operation(self, worker: str = "a", limit: int = 10, lease_ms: int = LEASE_MS, **more: Any) -> Claim:
        """The next claim of a worker, of the class `main` unless told; its incarnation is its letter, sixteen times."""
        until_ms = self.now_ms + lease_ms * 4 // 5
        more = {"classes": ("main",), **more}
        return Claim(worker * 16, self._count(worker), limit, lease_ms, until_ms, worker, 1000, **more)

    def claim(self, worker: str = "a", limit: int = 10, **more: Any) -> list[LeasedJob]:
        return list(self.run(self.claim_operation(worker, limit, **more)).jobs)

    def one(self, worker: str = "a", limit: int = 10, **more: Any) -> LeasedJob:
        """The same, where it is a single one."""
        (job,) = self.claim(worker, limit, **more)
        return job

    def lease(self, job: str, **options: Any) -> Lease:
        """Enqueue it, and let a worker claim it and nothing else; its lease."""
        return self.enqueue(job, **options).one().lease

    def _done(self, operation: Operation) -> Self:
        assert self.run(operation).result == "done"
        return self

    def set_limit_operation(self, target: str, **limit: Any) -> SetLimit:
        """Define a limit; without any bound: remove it."""
        return SetLimit(target, Limit(**limit) if limit else None, **self.identity())

    def set_limit(self, target: str, **limit: Any) -> Self:
        return self._done(self.set_limit_operation(target, **limit))

    def pause_operation(self, name: str = "*", length_ms: int = 0) -> Pause:
        return Pause(name, length_ms, **self.identity())

    def pause(self, name: str = "*", length_ms: int = 0) -> Self:
        return self._done(self.pause_operation(name, length_ms))

    def resume_operation(self, name: str = "*") -> Resume:
        return Resume(name, **self.identity())

    def resume(self, name: str = "*") -> Self:
        return self._done(self.resume_operation(name))

    def set_worker_operation(self, field: str, value: int | None) -> SetWorker:
        """Set something for a worker; None removes it."""
        return SetWorker(field, value, **self.identity())

    def news(self, version: int = 0, worker: str = "w") -> claims.WorkerUpdates:
        return self.run(claims.ReadWorkerUpdates(version, worker))

    def finish(self, *leases: Lease) -> list[tuple[str, str]]:
        return list(self.run(Finish(leases)).items)

    def retry(self, lease: Lease, delay_ms: int = 1000, error: str = "boom") -> tuple[str, str]:
        return self.run(claims.Retry((Failure(lease, error, delay_ms),))).items[0]

    def bury(self, *leases: Lease, error: str = "no") -> list[tuple[str, str]]:
        return list(self.run(claims.Bury(tuple(Failure(lease, error) for lease in leases))).items)

    def release(self, *leases: Lease, started: bool = False) -> list[tuple[str, str]]:
        return list(self.run(claims.Release(leases, frozenset(leases if started else ()))).items)

    def end(self, how: str, lease: Lease, *, delay_ms: int = 60_000, **claim: Any) -> list[LeasedJob]:
        """End a lease in one of the ways of `ENDS`; what the fused claim has claimed."""
        if how == "fused":
            return list(self.run(Finish((lease,), self.claim_operation(**claim))).claimed.jobs)
        if how == "reap":
            assert [reaped for reaped, _ in self.sweep_past(LEASE_MS + 1)] == [lease]
        elif how == "retry":
            self.retry(lease, delay_ms=delay_ms)
        else:
            {"finish": self.finish, "bury": self.bury, "release": self.release}[how](lease)
        return []

    def extend_operation(self, *leases: Lease, renewal: int = 1) -> claims.Extend:
        return claims.Extend(leases, renewal, LEASE_MS, self.now_ms + LEASE_MS // 3)

    def mark(self, lease: Lease) -> claims.MarkResult:
        return self.run(claims.Mark(lease)).result

    def sweep_operation(
        self, worker: str = "s", *, limit: int = SWEEP_LIMIT, sleep_max_ms: int = 1000, done_max: int = 1000, yields: bool = False
    ) -> claims.Sweep:
        """The next sweep of a worker."""
        return claims.Sweep(worker * 16, self._count(f"sweeps of {worker}"), limit, sleep_max_ms, done_max, yields)

    def orphans_operation(self, worker: str = "s", *, limit: int = 100) -> claims.Sweep:
        """The next look of a worker for leases that others have left behind."""
        return claims.Sweep(worker * 16, self._count(f"sweeps of {worker}"), limit, 1000, 0, orphans=True)

    def beat_operation(
        self, worker: str = "a", *, ttl_ms: int = 30_000, lease_ms: int = LEASE_MS, sweep_ms: int = 1000, about: str = "{}"
    ) -> Beat:
        """The next beat of a worker."""
        return Beat(worker * 16, self._count(f"beats of {worker}"), ttl_ms, self.now_ms + ttl_ms, lease_ms, sweep_ms, about)

    def beat(self, worker: str = "a", **more: Any) -> Beaten:
        return self.run(self.beat_operation(worker, **more))

    def took_operation(self, *items: RunTimes, worker: str = "a") -> ReportRunTimes:
        """The next report of a worker of how long its handlers took; without items: one run of `main`."""
        given = items or (RunTimes("main", "ok", 5_000, 5_000, ((45, 1),)),)
        return ReportRunTimes(worker * 16, self._count(f"reports of {worker}"), self.now_ms + 30_000, given)

    def sweep(self, worker: str = "s", *, yields: bool = False) -> Swept:
        return self.run(self.sweep_operation(worker, yields=yields))

    def ticks(self, worker: str = "s") -> list[Tick]:
        """The calls that a scheduler makes now of what is due."""
        swept = self.run(self.sweep_operation(worker))
        return [tick(due, swept.srv_us // 1000, worker * 16, self._count("ticks")) for due in swept.due]

    def turn(self, worker: str = "s") -> list[Ticked]:
        """What one scheduler does once."""
        return [self.run(operation) for operation in self.ticks(worker)]

    def sweep_past(self, ms: int) -> list[tuple[Lease, int]]:
        """Let time pass as it does while workers sweep, often enough that no sweep looks like the end of a stall (rule 11); all
        that was reaped."""
        self.sweep()
        reaped: list[tuple[Lease, int]] = []
        while ms > 0:
            self.tick(min(ms, LEASE_MS // 3))
            ms -= LEASE_MS // 3
            reaped += self.sweep().leases
        return reaped

    finished, released, retried = map(then, ("finish", "release", "retry"))
    held, beaten, turned, past, sent = map(then, ("claim", "beat", "turn", "sweep_past", "send"))
    buried, crashed, cut, marked = map(then, ("bury", "crash", "cut_off", "mark"))

    def crash(self, job: str, *, worker: str = "x", mark: bool = True) -> tuple[Lease, int]:
        """Claim a job that waits alone, mark it, and lose its lease: the lease that was reaped, and the crashes."""
        leased = self.one(worker)
        assert leased.lease.job == job
        assert not mark or self.mark(leased.lease) == "ok"
        ((lease, crashes),) = self.sweep_past(LEASE_MS + 1)
        return lease, crashes

    def identity(self) -> dict[str, Any]:
        """What each change by hand has that is sent now, and no other."""
        return {"op_id": self._op_id(), "not_after_ms": self.now_ms + 10_000}

    def _op_id(self) -> str:
        return f"{self._count('operations'):016x}"

    def _count(self, name: str) -> int:
        self._counters[name] = self._counters.get(name, 0) + 1
        return self._counters[name]

    def crash_all(self, *jobs: str) -> Self:
        """Lose the leases of jobs once, unmarked: each has a crash behind it and waits again."""
        assert {leased.lease.job for leased in self.claim("x")} == set(jobs)
        assert {crashes for _, crashes in self.sweep_past(LEASE_MS + 1)} == {1}
        return self

    # -- raw keys

    def dump(self) -> dict[str, Any]:
        """Every key with its type, value and expiry."""
        found: Any = sorted(self.redis.eval(DUMP, 0), key=lambda each: each[0])
        return {key.decode(): (kind.decode(), SHOWN.get(kind, lambda raw: raw)(value), ms) for key, kind, ms, value in found}

    @contextmanager
    def unchanged(self, why: str = "") -> Iterator[None]:
        """What is done inside leaves every key as it was."""
        before = self.dump()
        yield
        assert self.dump() == before, why

    def refuses(self, operation: Operation, said: str = "WRONGTYPE", error: type[Exception] = Exception) -> None:
        """The operation raises what says so, and writes nothing."""
        with self.unchanged(), pytest.raises(error, match=said):
            self.run(operation)

    def full(self, is_full: bool = True) -> AbstractContextManager[None]:
        """The server has no memory left."""
        return full(self.redis) if is_full else nullcontext()

    def each_cut(self, first: int = 0) -> Iterator[int]:
        """After how many writes to `cut_off` a script: ever more, each time from an empty server, until it runs to its end."""
        for writes in range(first, 100):
            self.begin()
            self._was_cut = True
            yield writes
            if not self._was_cut:
                return
        raise AssertionError("the script never ran to its end")

    def places(self, job: str) -> set[str]:
        """The structures that hold a job: lane, due, active, dead, blocked, or `ended` for a tombstone."""
        found = {name for name in ("active", "dead", "blocked") if self.redis.zscore(getattr(self.keys, name), job) is not None}
        if any(self.redis.zscore(key, job) is not None for key in self.redis.scan_iter(self.keys.lane("*"), count=1000)):
            found.add("lane")
        if any(member.decode()[10:] == job for member in self.redis.zrange(self.keys.due, 0, -1)):  # type: ignore[union-attr]
            found.add("due")
        raw = self.redis.get(self.keys.job(job))
        if isinstance(raw, bytes) and raw[:1] == TOMBSTONE:
            found.add("ended")
        return found

    def run_hash(self, job: str) -> dict[str, str]:
        """All but the seal, which repeats a piece of the envelope."""
        return run_texts(self.redis, self.keys.run(job))


@contextmanager
def full(client: Any) -> Iterator[None]:
    """The server has no memory left."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


def run_fields(client: redis.Redis, key: str) -> dict[str, bytes]:
    """The fields of `run:<id>`; none where there is no such key."""
    raw: Any = client.execute_command("GET", key, NEVER_DECODE=True)
    return read_run_fields(raw) if raw else {}


def run_texts(client: redis.Redis, key: str) -> dict[str, str]:
    """The same as texts, without the seal, which repeats a piece of the envelope."""
    return {name: value.decode(errors="backslashreplace") for name, value in run_fields(client, key).items() if name != "seal"}


def write_run(client: redis.Redis, key: str, **fields: str | int) -> None:
    """Change fields of `run:<id>`, which is there or not."""
    found = run_fields(client, key) | {name: str(value).encode() for name, value in fields.items()}
    fence, nonce, seal, owner = (found.pop(name, b"") for name in ("fence", "nonce", "seal", "owner"))
    start = (fence or b"0") + b" " + nonce + b" " + bytes((len(seal), len(owner))) + seal + owner
    client.set(key, start + b"".join(b"%b %d:%b" % (name.encode(), len(value), value) for name, value in found.items() if value))


@pytest.fixture
def desk(ironclaim_url: str) -> Iterator[Desk]:
    """An empty desk."""
    yield from lent(Desk(ironclaim_url))
