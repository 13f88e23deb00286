"""Numbers that only grow come to their end: fences near 2^53 - 1, where the numbers of Lua stop being exact, and sequences that
get a digit more than Lua writes out by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis

from bench import models
from bench.models import LANES
from chaos.errors import HarnessError
from chaos.faults.base import Scene, Seen
from chaos.plan import PlannedFault
from chaos.tail import Tail
from chaos.topology.clients import client_of
from engine import EngineError

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
