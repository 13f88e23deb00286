"""Workers that lose their leases: one that stands still for too long, one whose leases end too early, one that is cut off."""

from __future__ import annotations

import signal
import time
from typing import Any

import psutil
import redis

from bench import models
from chaos.errors import HarnessError
from chaos.faults.base import STATE_TIMEOUT_S, Scene, Seen, process_states, stop_at_work
from chaos.faults.server import ANSWER_TIMEOUT_S, ServerFault
from chaos.foreign_keys import BullKeys
from chaos.plan import PlannedFault
from chaos.topology.base import client_of
from chaos.watch import ProcessView, Token
from engine.models.foreign.foreign import ForeignKeys
from engine.ops.workers import read_client

#: The zombie is kept at most lease and this long: a sweep is due every second, and a second sweep may be needed.
OVERTIME_S = 4.0

#: Handlers were about to end when the worker froze, so their ends follow at once.
LATE_TIMEOUT_S = 10.0


#: A stop at whose instant no handler of others ends for so long is one of all: the worker holds what they wait for.
STALL_S = 2.0

#: So many such stops are undone and tried again.
STALLS_MAX = 3

#: Handlers that start so soon after the freeze may still come to wait for what the frozen worker holds.
SOON_NS = 1_000_000_000


class WorkerFreeze:
    """inject: SIGSTOP while handlers run. witness: state T, and another worker claimed a job of a frozen handler.

    heal: SIGCONT. healed: it runs, and the server answered its late ends of those jobs.
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._planned = planned
        self._frozen: tuple[Token, ...] = ()
        self._taken: tuple[Token, ...] = ()
        self._stopped_ns = 0
        self._pid = 0
        self._stalled = 0

    def inject(self) -> Seen:
        scene, target = self._scene, self._planned.target
        stopped = stop_at_work(scene, target, self._stalls)
        if stopped is None:
            self._stopped_ns = time.monotonic_ns()
            return Seen(self._stopped_ns, False, f"{target} is not alive")
        self._pid, self._stopped_ns, self._frozen = stopped.child.pid, stopped.t_ns, stopped.running
        if stopped.missed:
            scene.signal(self._pid, signal.SIGCONT)
        detail = f"SIGSTOP to pid {self._pid}, attempt {stopped.attempt}, {len(self._frozen)} handlers running"
        return Seen(self._stopped_ns, True, detail)

    def witness(self) -> Seen:
        scene, target = self._scene, self._planned.target
        if not self._is_stopped():
            return Seen(time.monotonic_ns(), False, f"{target} is not stopped")
        deadline_s = self._stopped_ns / 1e9 + scene.lease_ms / 1_000 + OVERTIME_S
        scene.wait(self._all_taken, timeout_s=deadline_s - time.monotonic())
        self._taken = tuple(scene.watch.claimed_elsewhere(target, self._frozen))
        t_ns = time.monotonic_ns()
        ok = self._is_stopped() and bool(self._taken)
        detail = f"state T for {(t_ns - self._stopped_ns) / 1e9:.1f} s; others claimed {len(self._taken)} of its"
        detail += f" {len(self._frozen)} running jobs"
        if self._frozen and not self._taken and (waiting := self._waiting()):
            detail += (
                f"; handlers of {waiting} have run all the while: do they wait for a lock that {target} holds, as of sqlite?"
            )
        return Seen(t_ns, ok, detail, self._taken)

    def heal(self) -> Seen:
        t_ns = time.monotonic_ns()
        if child := self._scene.child(self._planned.target):
            self._scene.signal(child.pid, signal.SIGCONT)
        return Seen(t_ns, True, f"SIGCONT to {self._planned.target}")

    def witness_healed(self) -> Seen:
        scene, target = self._scene, self._planned.target
        runs = scene.wait(lambda: not self._is_stopped(), timeout_s=STATE_TIMEOUT_S) and scene.child(target) is not None
        scene.wait(lambda: len(self._answers()) == len(self._taken), timeout_s=LATE_TIMEOUT_S)
        answers = self._answers()
        words = ", ".join(sorted(f"{operation} {result}" for operation, result in answers)) or "nothing"
        detail = f"{target} runs again; late ends answered: {words}" if runs else f"{target} did not go on"
        return Seen(time.monotonic_ns(), runs and (bool(answers) or not self._taken), detail)

    def _stalls(self) -> bool:
        """Whether handlers of other workers run, and none of them ends: they wait for what the frozen one holds."""

        def others() -> list[ProcessView]:
            return [view for name, view in self._scene.watch.views.items() if name != self._planned.target]

        def ended() -> int:
            return sum(view.completed.get("handle", 0) for view in others())

        before = ended()
        if self._scene.wait(lambda: ended() > before or not any(view.running for view in others()), timeout_s=STALL_S):
            return False
        self._stalled += 1
        return self._stalled <= STALLS_MAX

    def _waiting(self) -> str:
        """The other workers that run nothing but handlers from before the freeze: they may wait for what the frozen one holds."""
        views = {name: view for name, view in self._scene.watch.views.items() if name != self._planned.target and view.running}
        return ", ".join(name for name, view in views.items() if max(view.running.values()) < self._stopped_ns + SOON_NS)

    def _is_stopped(self) -> bool:
        return process_states(self._pid) == {"T"}

    def _all_taken(self) -> bool:
        return len(self._scene.watch.claimed_elsewhere(self._planned.target, self._frozen)) == len(self._frozen)

    def _answers(self) -> list[tuple[str, str]]:
        """(operation, result) of the late ends that the server has answered."""
        ended = self._scene.watch.view(self._planned.target).ended
        return [ended[token][:2] for token in self._taken if token in ended]


#: For so long at most leases are ended, until jobs have been claimed elsewhere while their handlers ran. Most handlers are short,
#: and leases are taken away once a second.
STRIKES_S = 12.0

#: So many of these are enough.
ENOUGH = 3

#: How often the leases that the worker has got meanwhile are ended.
STRIKE_S = 0.03

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


#: How often, and for how long: several looks at the connections of workers fall into it (rule 39).
EVERY_S = 0.3
CUTS_S = 5.0


class WorkerCut(ServerFault):
    """inject: CLIENT KILL of all connections of the worker every 300 ms for five seconds; where a proxy is in between, of
    everybody's. witness: most of the times there were some, and the worker has connected again. heal: none is cut any more.
    healed: everybody is answered."""

    def prepare(self) -> None:
        self._cuts = self._connections = 0

    def act(self) -> str:
        self.scene.wait(self._cut, timeout_s=CUTS_S, poll_s=EVERY_S)
        return f"CLIENT KILL for {CUTS_S:g} s, {self._connections} connections in {self._cuts} cuts"

    def observe(self) -> tuple[bool, str]:
        target, scene = self.planned.target, self.scene

        def back() -> bool:
            scene.watch.poll()
            return scene.watch.view(target).connected_ns > self.since_ns

        connected = scene.wait(back, timeout_s=ANSWER_TIMEOUT_S)
        words = f"{self._cuts} cuts found connections; {target} {'has' if connected else 'has not'} connected again"
        return connected and self._cuts >= ENOUGH, words

    def mend(self) -> str:
        return "no connection is cut any more"

    def _cut(self) -> bool:
        """Cut what there is; never true."""
        if self.scene.network is None:
            killed = sum(int(self.harm("CLIENT", "KILL", "ID", client_id) or 0) for client_id in self._own())
        else:
            killed = sum(int(self.harm("CLIENT", "KILL", "TYPE", kind) or 0) for kind in ("normal", "pubsub"))
        self._connections += killed
        self._cuts += killed > 0
        return False

    def _own(self) -> list[int]:
        """Client ids of the worker's connections."""
        child = self.scene.child(self.planned.target)
        if child is None:
            return []
        own = {f"{one.laddr.ip}:{one.laddr.port}" for one in psutil.Process(child.pid).net_connections("tcp") if one.laddr}
        clients = [read_client(line) for line in (self.harm("CLIENT", "LIST") or b"").decode().splitlines()]
        return [client_id for client_id, address in clients if address in own]
