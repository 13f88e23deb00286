"""SIGKILL an app of the HTTP face while requests wait for its answers. Whoever sent them sends them again, to another app."""

from __future__ import annotations

import signal
import time
from typing import Any

from chaos.faults.base import ASK_TIMEOUT_S, LOST_MS, Scene, Seen
from chaos.faults.network_base import ANSWER_TIMEOUT_S
from chaos.faults.worker_kill import REAP_TIMEOUT_S, REPLACEMENT_TIMEOUT_S
from chaos.plan import PRODUCER, PlannedFault

#: So many requests are to be in hand.
WANTED = 2


class AppKill:
    """inject: SIGSTOP, and SIGKILL once requests of the producer wait for its answers. witness: waitpid said -9, and requests
    had no answer.

    heal: when they were answered by another app (or their time is over), start it again at its address. healed: it has answered
    the producer.
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._target = planned.target
        self._in_hand: set[str] = set()
        self._started_ns = 0

    def inject(self) -> Seen:
        scene, child = self._scene, self._scene.child(self._target)
        t_ns = time.monotonic_ns()
        if child is None:
            return Seen(t_ns, False, f"{self._target} is not alive")
        scene.signal(child.pid, signal.SIGSTOP)
        try:
            scene.wait(lambda: len(self._unanswered(t_ns)) >= WANTED, timeout_s=ASK_TIMEOUT_S)
        except BaseException:
            # Interrupted before the fault is on record: nobody else knows that there is something to heal.
            scene.signal(child.pid, signal.SIGCONT)
            raise
        self._in_hand = self._unanswered(t_ns)
        child.exit_expected = True
        scene.signal(child.pid, signal.SIGKILL)
        return Seen(t_ns, True, f"SIGKILL to pid {child.pid}, {len(self._in_hand)} requests in hand")

    def witness(self) -> Seen:
        child = self._scene.crew.children.get(self._target)
        if child is None or not self._scene.wait(lambda: not child.alive(), timeout_s=REAP_TIMEOUT_S):
            if child is not None:
                child.exit_expected = False
            return Seen(time.monotonic_ns(), False, f"{self._target} did not die")
        code = child.process.returncode
        detail = f"waitpid returned {code}; {len(self._in_hand)} requests had no answer"
        return Seen(time.monotonic_ns(), code == -signal.SIGKILL and bool(self._in_hand), detail)

    def heal(self) -> Seen:
        scene, killed_ns = self._scene, time.monotonic_ns()
        view = scene.watch.view(PRODUCER)
        scene.wait(lambda: self._in_hand.isdisjoint(view.unanswered), timeout_s=ANSWER_TIMEOUT_S)
        self._started_ns = time.monotonic_ns()
        left = len(self._in_hand.intersection(view.unanswered))
        words = f"{len(self._in_hand) - left} of {len(self._in_hand)} requests in hand were answered"
        if scene.child(self._target) is None:
            scene.crew.start_replacement(self._target, self._target)
        took_s = (self._started_ns - killed_ns) / 1e9
        return Seen(self._started_ns, not left, f"{words} in {took_s:.1f} s; {self._target} started again")

    def witness_healed(self) -> Seen:
        scene = self._scene
        # Of all crews only that of chaos/http_drill.py has apps.
        crew: Any = scene.crew
        url = crew.apps[self._target].url

        def answered() -> bool:
            return scene.watch.view(PRODUCER).connected_to_ns.get(url, 0) > self._started_ns

        ok = scene.wait(answered, timeout_s=REPLACEMENT_TIMEOUT_S)
        return Seen(time.monotonic_ns(), ok, f"{self._target} {'has' if ok else 'has not'} answered the producer")

    def _unanswered(self, since_ns: int) -> set[str]:
        """The producer's operations that were sent since then and have no answer, though there was time for one."""
        old_ns = time.monotonic_ns() - LOST_MS * 1_000_000
        calls = self._scene.watch.view(PRODUCER).unanswered
        return {op for op, (_, sent_ns) in calls.items() if since_ns < sent_ns < old_ns}
