"""The leases of a worker end at the server long before their time, by a hand from outside, while its handlers run."""

from __future__ import annotations

import time
from typing import Any

import redis

from bench import models
from chaos.errors import HarnessError
from chaos.faults.base import Scene, Seen
from chaos.foreign_keys import BullKeys
from chaos.plan import PlannedFault
from chaos.topology.clients import client_of
from chaos.watch import Token
from engine.models.foreign.foreign import ForeignKeys

#: For so long at most leases are ended, until jobs have been claimed elsewhere while their handlers ran. Most handlers are short,
#: and leases are taken away once a second.
STRIKES_S = 12.0

#: So many of these are enough.
ENOUGH = 3

#: How often the leases that the worker has got meanwhile are ended.
STRIKE_S = 0.03

#: By when the late ends are answered, and the worker has claimed again.
ANSWER_TIMEOUT_S = 15.0

#: End the lease of a job, on condition that it is the one that is meant. `run:<id>` is a string in the engine's own format, and a
#: hash beside others. KEYS: active, run:<id>, and the job's lock where the format has one. ARGV: id, fence, nonce.
EXPIRE = """
local run = redis.pcall('GET', KEYS[2])
local token = ARGV[2] .. ' ' .. ARGV[3] .. ' '
if type(run) == 'table' then
  run = table.concat(redis.call('HMGET', KEYS[2], 'fence', 'nonce'), ' ') .. ' '
end
if not run or string.sub(run, 1, #token) ~= token then return 0 end
if KEYS[3] then redis.call('DEL', KEYS[3]) end
return redis.call('ZADD', KEYS[1], 'XX', 'CH', 1, ARGV[1])
"""


class LeaseExpired:
    """inject: the deadline of each lease of the worker is set back to long ago, by the raw key. witness: another worker claimed
    such a job under a later fence while the handler of the first still ran. heal: no lease is ended any more. healed: the server
    has refused the end that the first one sent of such a job, and the worker has claimed again.

    The stages `witness` and `heal` name every lease that was ended: those alone may be taken away before their time (J1).
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._target = planned.target
        spec = scene.crew.spec
        with models.queue(spec.model, spec.queue, url=scene.servers.url) as queue:
            self._keys: Any = queue.model.keys
        self._model: str = spec.model
        self._client = client_of(scene.servers.url, 5.0)
        self._struck: dict[str, Token] = {}
        self._taken: list[Token] = []
        self._claims = 0

    def inject(self) -> Seen:
        t_ns = time.monotonic_ns()
        if self._scene.child(self._target) is None:
            return Seen(t_ns, False, f"{self._target} is not alive")
        ended = self._scene.wait(lambda: bool(self._strike()), timeout_s=STRIKES_S, poll_s=STRIKE_S)
        return Seen(t_ns, ended, f"ended {len(self._struck)} leases of {self._target}")

    def witness(self) -> Seen:
        def enough() -> bool:
            self._strike()
            self._taken = self._taken_at_work()
            return len(self._taken) >= ENOUGH

        self._scene.wait(enough, timeout_s=STRIKES_S, poll_s=STRIKE_S)
        detail = f"ended {len(self._struck)} leases of {self._target}; others claimed {len(self._taken)} while its handler ran"
        return Seen(time.monotonic_ns(), bool(self._taken), detail, tuple(self._struck.values()))

    def heal(self) -> Seen:
        self._claims = self._claimed()
        self._client.close()
        return Seen(time.monotonic_ns(), True, "no lease is ended any more", tuple(self._struck.values()))

    def witness_healed(self) -> Seen:
        self._scene.wait(lambda: self._answered() and self._claimed() > self._claims, timeout_s=ANSWER_TIMEOUT_S)
        refused, claims = self._refused(), self._claimed() - self._claims
        detail = f"refused {len(refused)} ends of leases that others had taken over; {self._target} claimed {claims} jobs since"
        return Seen(time.monotonic_ns(), claims > 0 and (bool(refused) or not self._taken), detail)

    def _strike(self) -> int:
        """End the leases of all jobs that the worker runs, each job once; how many there were. Raises HarnessError."""
        running = [token for token in self._scene.watch.view(self._target).running if token.job not in self._struck]
        try:
            hit = [token for token in running if self._expire(token)]
        except redis.RedisError as error:
            raise HarnessError(f"the leases of {self._target} cannot be ended: {error}") from error
        self._struck |= {token.job: token for token in hit}
        return len(hit)

    def _expire(self, token: Token) -> bool:
        keys = [self._keys.active, self._keys.run(token.job)]
        if self._model == "bull":
            foreign: ForeignKeys = self._keys
            keys.append(BullKeys(foreign.wire).lock(token.job))
        return bool(self._client.eval(EXPIRE, len(keys), *keys, *token))

    def _taken_at_work(self) -> list[Token]:
        """Leases that were ended whose job another process has got while the handler of the first one ran."""
        running = set(self._scene.watch.view(self._target).running)
        now = self._scene.watch.claimed_elsewhere(self._target, running & set(self._struck.values()))
        return [*self._taken, *(token for token in now if token not in self._taken)]

    def _answered(self) -> bool:
        """Every one, though one refusal is enough: an engine that accepts them all is not waited for in vain."""
        return all(token in self._scene.watch.view(self._target).ended for token in self._taken)

    def _refused(self) -> list[Token]:
        ended = self._scene.watch.view(self._target).ended
        return [token for token in self._taken if ended.get(token, ("", "", 0))[1] == "stale"]

    def _claimed(self) -> int:
        return sum(map(len, self._scene.watch.view(self._target).claimed.values()))
