"""The wall clock of one worker jumps, forward or back: nothing that it does may depend on that."""

from __future__ import annotations

import random
import time

from chaos.faults.base import Scene, Seen, preload_of
from chaos.faults.server_clock_jump import HOLD_S, JUMPS_S, NEAR_S
from chaos.plan import PlannedFault
from chaos.tail import Tail

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
