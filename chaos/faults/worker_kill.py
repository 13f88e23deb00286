"""SIGKILL a worker in mid-job. Its jobs must run elsewhere once their leases end; then a replacement takes its place."""

from __future__ import annotations

import signal
import time

from chaos.faults.base import Scene, Seen, stop_at_work
from chaos.plan import PlannedFault
from chaos.watch import Token

#: A killed process is reaped within microseconds; nobody waits longer than this for one that was not.
REAP_TIMEOUT_S = 10.0

#: Past the recovery bound the judge has its answer; this much later the replacement starts all the same.
OVERTIME_S = 2.0

#: A fresh worker has to import, connect and claim.
REPLACEMENT_TIMEOUT_S = 30.0


class WorkerKill:
    """inject: SIGSTOP, and SIGKILL once that is seen to have caught handlers running. witness: waitpid said -9, and the history
    shows handlers cut off.

    heal: when the jobs in hand have started elsewhere (or the bound has passed), start the replacement. healed: it claimed.
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._planned = planned
        self._in_hand: tuple[Token, ...] = ()
        self._reaped_ns = 0

    def inject(self) -> Seen:
        scene, target = self._scene, self._planned.target
        stopped = stop_at_work(scene, target)
        if stopped is None:
            return Seen(time.monotonic_ns(), False, f"{target} is not alive")
        child = stopped.child
        child.exit_expected = True
        scene.signal(child.pid, signal.SIGKILL)
        tries = f", attempt {stopped.attempt}" + ("" if stopped.aimed else ", though no handler was seen running")
        return Seen(stopped.t_ns, True, f"SIGKILL to pid {child.pid}{tries}")

    def witness(self) -> Seen:
        scene, target = self._scene, self._planned.target
        child = scene.crew.children.get(target)
        if child is None or not scene.wait(lambda: not child.alive(), timeout_s=REAP_TIMEOUT_S, poll_s=0.0002):
            if child is not None:
                child.exit_expected = False
            return Seen(time.monotonic_ns(), False, f"{target} did not die")
        self._reaped_ns = time.monotonic_ns()
        scene.watch.poll()
        cut_off = len(scene.watch.view(target).running)
        self._in_hand = tuple(scene.watch.definitely_held(target))
        code = child.process.returncode
        detail = f"waitpid returned {code}; {cut_off} handlers cut off, {len(self._in_hand)} jobs in hand"
        return Seen(self._reaped_ns, code == -signal.SIGKILL and cut_off > 0, detail, self._in_hand)

    def heal(self) -> Seen:
        scene, planned = self._scene, self._planned
        if not self._reaped_ns:
            return Seen(time.monotonic_ns(), True, f"{planned.target} lives: nothing to heal")
        left_s = self._reaped_ns / 1e9 + scene.recovery_bound_ms / 1_000 + OVERTIME_S - time.monotonic()
        scene.wait(self._all_started_elsewhere, timeout_s=left_s)
        recovered = len(scene.watch.started_elsewhere(planned.target, self._in_hand))
        t_ns = time.monotonic_ns()
        took_s = (t_ns - self._reaped_ns) / 1e9
        scene.crew.start_replacement(planned.replacement, planned.target)
        ran = f"{recovered} of {len(self._in_hand)} jobs in hand ran elsewhere in {took_s:.1f} s"
        return Seen(t_ns, True, f"{ran}; {planned.replacement} started")

    def witness_healed(self) -> Seen:
        scene, planned = self._scene, self._planned
        name = planned.replacement if self._reaped_ns else planned.target
        before = sum(map(len, scene.watch.view(name).claimed.values()))

        def claimed() -> bool:
            return sum(map(len, scene.watch.view(name).claimed.values())) > before

        ok = scene.wait(claimed, timeout_s=REPLACEMENT_TIMEOUT_S)
        return Seen(time.monotonic_ns(), ok, f"{name} claimed" if ok else f"{name} did not claim")

    def _all_started_elsewhere(self) -> bool:
        return len(self._scene.watch.started_elsewhere(self._planned.target, self._in_hand)) == len(self._in_hand)
