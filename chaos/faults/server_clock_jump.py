"""The wall clock of the server jumps: everything that the engine does by time goes by it."""

from __future__ import annotations

import random
import time

import redis

from bench import models
from chaos.errors import HarnessError
from chaos.faults.base import Scene, Seen, preload_of
from chaos.plan import PlannedFault

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
