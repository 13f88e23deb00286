"""Clocks that jump, of a server or of a worker, and numbers that come to their end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis

from bench import models
from bench.models import LANES
from chaos.errors import HarnessError
from chaos.faults.base import Scene, Seen, preload_of
from chaos.plan import PlannedFault
from chaos.tail import Tail
from chaos.topology.base import client_of
from engine import EngineError

#: How far a clock jumps: by minutes, or by an hour.
JUMPS_S = (60, 180, 300, 3_600)

#: The clock is wrong for so long: a few sweeps, and renewals of every lease.
HOLD_S = 6.0

#: A jump is seen when the clock is this near to where it was set.
NEAR_S = 1.0

ANSWER_TIMEOUT_S = 15.0

#: By when the schedules have made up for the ticks that the clock has jumped over.
TICK_TIMEOUT_S = 30.0


class ServerClockJump:
    """inject: the server's clock goes back and is set right later, or goes forward for good; by how much, the seed draws.
    witness: its TIME is so far from ours, and was right before; everybody is answered meanwhile. heal: it is set right; one that
    went forward stays, as a clock that was behind until then. healed: its TIME is there, everybody is answered, and the schedules
    have caught up.

    Forward and back again is left out: what was delayed by a clock that is ahead is due when that time comes, an hour later
    perhaps, and no server could know better (docs/protocol.md, rule 3).
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._preload = preload_of(scene, planned)
        drawn = random.Random(f"ironclaim {planned.fault} {scene.crew.spec.seed}")
        self._jump_s = drawn.choice(JUMPS_S) * drawn.choice((1, -1))
        self._injected_ns = 0
        self._healed_ns = 0

    def inject(self) -> Seen:
        off_s = self._off_s()
        self._injected_ns = time.monotonic_ns()
        self._preload.set_wall_offset_ns("server", self._jump_s * 1_000_000_000)
        detail = f"the server's clock, which was {off_s:+.1f} s from ours, is set to {self._jump_s:+d} s"
        return Seen(self._injected_ns, abs(off_s) < NEAR_S, detail)

    def witness(self) -> Seen:
        self._scene.wait(lambda: False, timeout_s=HOLD_S)
        missing = self._scene.unanswered_since(self._injected_ns, ANSWER_TIMEOUT_S)
        off_s = self._off_s()
        detail = f"TIME of the server is {off_s:+.1f} s from ours; answered: all but {', '.join(missing) or 'nobody'}"
        return Seen(time.monotonic_ns(), abs(off_s - self._jump_s) < NEAR_S and not missing, detail)

    def heal(self) -> Seen:
        if self._jump_s < 0:
            self._preload.set_wall_offset_ns("server", 0)
        self._healed_ns = time.monotonic_ns()
        return Seen(self._healed_ns, True, "set right again" if self._jump_s < 0 else "it stays there")

    def witness_healed(self) -> Seen:
        missing = self._scene.unanswered_since(self._healed_ns, ANSWER_TIMEOUT_S)
        off_s, wanted_s = self._off_s(), max(self._jump_s, 0)
        ticked = self._scene.wait(self._is_on_time, timeout_s=TICK_TIMEOUT_S, poll_s=0.2)
        detail = f"TIME of the server is {off_s:+.1f} s from ours; answered: all but {', '.join(missing) or 'nobody'}"
        detail += f"; schedules {'are on time' if ticked else 'have not caught up'}"
        return Seen(time.monotonic_ns(), abs(off_s - wanted_s) < NEAR_S and not missing and ticked, detail)

    def _off_s(self) -> float:
        """How far the server's clock is from ours. Raises HarnessError."""
        address = self._scene.servers.address()
        try:
            with redis.Redis(address.host, address.port, socket_timeout=5) as client:
                seconds, micros = client.time()
        except redis.RedisError as error:
            raise HarnessError(f"the server does not tell its time: {error}") from error
        return float(seconds + micros / 1e6 - time.time())

    def _is_on_time(self) -> bool:
        """True when no schedule is behind the server's clock by more than one tick."""
        spec = self._scene.crew.spec
        if not spec.schedules:
            return True
        with models.queue(spec.model, spec.queue, url=self._scene.servers.url) as queue:
            now_ms = (time.time() + self._off_s()) * 1_000
            behind = [one for one in queue.schedules.list() if one.next_ms < now_ms - 2 * NEAR_S * 1_000]
        return not behind


#: By when a handler of the worker has ended and said what its clock shows.
CLOCK_TIMEOUT_S = 15.0


class WorkerClockJump:
    """inject: the worker's clock is set forward or back, by how much the seed draws. witness: what its handlers write down of
    their clock is so far from ours. heal: it is set right. healed: its handlers write down the right time again."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._target = planned.target
        self._preload = preload_of(scene, planned)
        drawn = random.Random(f"ironclaim {planned.fault} {scene.crew.spec.seed}")
        self._jump_s = drawn.choice(JUMPS_S) * drawn.choice((1, -1))
        self._clocks = Tail(scene.crew.history / f"{planned.target}.sink.jsonl")
        self._off_s = 0.0
        self._changed_ns = 0

    def inject(self) -> Seen:
        known = self._is_off(0)
        self._changed_ns = time.monotonic_ns()
        if self._scene.child(self._target) is None:
            return Seen(self._changed_ns, False, f"{self._target} is not alive")
        self._preload.set_wall_offset_ns(self._target, self._jump_s * 1_000_000_000)
        return Seen(
            self._changed_ns, known, f"the clock of {self._target}, {self._off_s:+.1f} s from ours, to {self._jump_s:+d} s"
        )

    def witness(self) -> Seen:
        seen = self._is_off(self._jump_s)
        self._scene.wait(lambda: False, timeout_s=HOLD_S)
        return Seen(time.monotonic_ns(), seen, f"handlers of {self._target} ran by a clock {self._off_s:+.1f} s from ours")

    def heal(self) -> Seen:
        self._changed_ns = time.monotonic_ns()
        if self._scene.child(self._target) is not None:
            self._preload.set_wall_offset_ns(self._target, 0)
        return Seen(self._changed_ns, True, f"the clock of {self._target} is set right")

    def witness_healed(self) -> Seen:
        seen = self._is_off(0)
        self._clocks.close()
        return Seen(time.monotonic_ns(), seen, f"handlers of {self._target} run by a clock {self._off_s:+.1f} s from ours")

    def _is_off(self, wanted_s: int) -> bool:
        """True once the worker has written down a clock that is so far from ours, since it was changed last."""

        def read() -> bool:
            for row in self._clocks.read():
                if row.get("kind") == "clock" and row["t_ns"] > self._changed_ns:
                    ours_ns = row["t_ns"] + time.time_ns() - time.monotonic_ns()
                    self._off_s = (row["wall_ns"] - ours_ns) / 1e9
                    if abs(self._off_s - wanted_s) < NEAR_S:
                        return True
            return False

        return self._scene.wait(read, timeout_s=CLOCK_TIMEOUT_S, poll_s=0.02)


T = TypeVar("T")

#: The last fence that a job gets (rule 6).
FENCE_LAST = 2**53 - 1

#: Fences are set so that the next claim gives one below the last, then the last, then none: job after job.
FENCES = (FENCE_LAST - 2, FENCE_LAST - 1, FENCE_LAST)

#: From here on Lua writes a number with an exponent unless it is formatted. The bound of sequences, 2^48, lies beyond it.
SEQUENCE_EDGE = 10**14
SEQUENCE_MARGIN = 40

#: So many jobs of each kind of fence are enough.
ENOUGH = 4

#: Few jobs are delayed at a time.
STRIKES_S = 20.0
STRIKE_S = 0.1

#: By when those jobs are due and claimed.
CLAIM_TIMEOUT_S = 15.0

#: Set the fence of a job that waits for its time, on condition that nobody has claimed it. In the engine's own format `run:<id>`
#: is a string: fence, nonce, the lengths of two empty fields, and the claims, of which there were none. KEYS: active, run:<id>.
#: ARGV: id, fence, 1 = the engine's own format.
SET_FENCE = """
if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
if ARGV[3] == '1' then
  redis.call('SET', KEYS[2], ARGV[2] .. '  ' .. string.char(0, 0) .. 'claims 1:0')
else
  redis.call('HSET', KEYS[2], 'fence', ARGV[2])
end
return 1
"""

#: Move a sequence forward to shortly before its edge. KEYS: seq. ARGV: where.
SET_SEQUENCE = (
    "if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end return 1"
)


class ClockWrap:
    """inject: jobs that wait for their time get fences near the last one, by the raw key, and the sequence of the engine's own
    format comes near its edge. witness: such jobs were claimed under the fences up to the last, and none under one beyond; one
    whose fences are used up was buried, which is how the engine refuses it; the sequence has passed its edge. heal: no fence is
    set any more. healed: jobs are finished, and everybody is answered."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        spec = scene.crew.spec
        self._queue = models.queue(spec.model, spec.queue, url=scene.servers.url)
        self._keys: Any = self._queue.model.keys
        self._own = spec.model == LANES
        self._client = client_of(scene.servers.url, 5.0)
        #: Job -> the fence that it was given.
        self._given: dict[str, int] = {}
        self._histories: list[Tail] = []
        self._refused: set[str] = set()
        self._healed_ns = 0
        del planned

    def inject(self) -> Seen:
        t_ns = time.monotonic_ns()
        # What is recorded from now on.
        self._histories = [Tail(self._scene.crew.history / f"{name}.jsonl") for name in self._scene.clients()]
        self._read()
        if self._own:
            self._ask(lambda: self._client.eval(SET_SEQUENCE, 1, self._keys.seq, SEQUENCE_EDGE - SEQUENCE_MARGIN))
        enough = self._scene.wait(self._strike, timeout_s=STRIKES_S, poll_s=STRIKE_S)
        return Seen(t_ns, enough, f"{len(self._given)} jobs got fences near 2^53{self._words()}")

    def witness(self) -> Seen:
        self._scene.wait(lambda: self._seen() == set(FENCES) and self._is_past(), timeout_s=CLAIM_TIMEOUT_S, poll_s=0.05)
        seen, highest = self._seen(), max(self._fences().values(), default=0)
        ok = seen == set(FENCES) and highest <= FENCE_LAST and self._is_past()
        claimed = f"claimed under fences up to {highest}; {len(self._refused & set(self._given))} refused"
        return Seen(time.monotonic_ns(), ok, f"{len(self._fences())} of {len(self._given)} {claimed}{self._words()}")

    def heal(self) -> Seen:
        self._healed_ns = time.monotonic_ns()
        return Seen(self._healed_ns, True, "no fence is set any more")

    def witness_healed(self) -> Seen:
        finished = self._scene.watch.finished()
        missing = self._scene.unanswered_since(self._healed_ns, CLAIM_TIMEOUT_S)
        goes_on = self._scene.wait(lambda: self._scene.watch.finished() > finished, timeout_s=CLAIM_TIMEOUT_S)
        for history in self._histories:
            history.close()
        self._client.close()
        self._queue.close()
        detail = f"jobs {'are' if goes_on else 'are not'} finished; answered: all but {', '.join(missing) or 'nobody'}"
        return Seen(time.monotonic_ns(), goes_on and not missing, detail)

    def _strike(self) -> bool:
        """Give fences to delayed jobs, to the three kinds in turn; True once there are enough."""
        for job in self._ask(lambda: self._queue.jobs.list("delayed")):
            fence = FENCES[len(self._given) % len(FENCES)]
            if job.id not in self._given and self._set_fence(job.id, fence):
                self._given[job.id] = fence
        return len(self._given) >= ENOUGH * len(FENCES)

    def _set_fence(self, job: str, fence: int) -> bool:
        keys = (self._keys.active, self._keys.run(job))
        return bool(self._ask(lambda: self._client.eval(SET_FENCE, len(keys), *keys, job, fence, int(self._own))))

    def _fences(self) -> dict[str, int]:
        """The fences under which these jobs were claimed, by job."""
        claimed = [view.claimed for view in self._scene.watch.views.values()]
        return {job: max(found) for job in self._given if (found := [fence for one in claimed for fence in one.get(job, ())])}

    def _seen(self) -> set[int]:
        """The fences given of which the world shows what came of them: the next one, or a refusal of the last."""
        self._read()
        after = {self._given[job] for job, fence in self._fences().items() if fence == self._given[job] + 1}
        return after | {self._given[job] for job in self._refused if self._given.get(job) == FENCE_LAST}

    def _read(self) -> None:
        """Note the jobs that claims have set aside."""
        for history in self._histories:
            for row in history.read():
                items = row.get("items") or () if row.get("f") in ("claim", "reap") else ()
                self._refused |= {item["job"] for item in items if item.get("result") == "corrupt"}

    def _is_past(self) -> bool:
        return not self._own or int(self._ask(lambda: self._client.get(self._keys.seq)) or 0) > SEQUENCE_EDGE

    def _words(self) -> str:
        return f"; sequence {self._ask(lambda: self._client.get(self._keys.seq))}" if self._own else ""

    def _ask(self, call: Callable[[], T]) -> T:
        """What the server answers. Raises HarnessError."""
        try:
            return call()
        except (redis.RedisError, EngineError) as error:
            raise HarnessError(f"numbers cannot be set: {error}") from error
