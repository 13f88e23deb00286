"""SIGSTOP a worker past its leases, then SIGCONT: a zombie that finishes jobs which others have claimed since."""

from __future__ import annotations

import signal
import time

from chaos.faults.base import STATE_TIMEOUT_S, Scene, Seen, process_states, stop_at_work
from chaos.plan import PlannedFault
from chaos.watch import ProcessView, Token

#: The zombie is kept at most lease and this long: a sweep is due every second, and a second sweep may be needed.
OVERTIME_S = 4.0

#: Handlers were about to end when the worker froze, so their ends follow at once.
ANSWER_TIMEOUT_S = 10.0


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
        scene.wait(lambda: len(self._answers()) == len(self._taken), timeout_s=ANSWER_TIMEOUT_S)
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
