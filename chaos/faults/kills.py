"""Processes that die: a worker in mid-job, whose jobs must run elsewhere; one whose job makes it too big; and an app."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any

import psutil

from chaos.faults.base import ASK_TIMEOUT_S, LOST_MS, Scene, Seen, did_not_die, reaped, stop_at_work
from chaos.faults.network_base import ANSWER_TIMEOUT_S
from chaos.plan import PRODUCER, PlannedFault
from chaos.watch import Token

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
        child = reaped(scene, target)
        if child is None:
            return did_not_die(target)
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


#: The worker is killed when it has grown by so much.
BOUND_BYTES = 96 << 20

#: Should nobody kill it, its handler stops here.
GROWTH_MAX_BYTES = 4 * BOUND_BYTES

#: By when a handler has begun to grow and has reached the bound.
GROWTH_TIMEOUT_S = 20.0


class WorkerOom(WorkerKill):
    """inject: the next handler of the worker takes memory without end, and the worker gets SIGKILL at its bound. witness: its
    resident memory was at the bound by then, waitpid said -9, and handlers were cut off. heal: when the jobs in hand have started
    elsewhere (or the bound has passed), start the replacement. healed: it claimed."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._bound_bytes = 0
        self._resident_bytes = 0

    def inject(self) -> Seen:
        scene, target = self._scene, self._planned.target
        child = scene.child(target)
        if child is None:
            return Seen(time.monotonic_ns(), False, f"{target} is not alive")
        process = psutil.Process(child.pid)
        self._bound_bytes = process.memory_info().rss + BOUND_BYTES
        grow_file = scene.crew.grow_file(target)
        grow_file.write_text(str(GROWTH_MAX_BYTES))

        def full() -> bool:
            self._resident_bytes = process.memory_info().rss
            return self._resident_bytes >= self._bound_bytes

        grew = scene.wait(full, timeout_s=GROWTH_TIMEOUT_S, poll_s=0.002)
        grow_file.unlink(missing_ok=True)
        t_ns = time.monotonic_ns()
        if grew:
            child.exit_expected = True
            scene.signal(child.pid, signal.SIGKILL)
        return Seen(t_ns, grew, f"{self._words()}; {'SIGKILL' if grew else 'nothing'} to pid {child.pid}")

    def witness(self) -> Seen:
        seen = super().witness()
        return replace(
            seen, ok=seen.ok and self._resident_bytes >= self._bound_bytes > 0, detail=f"{self._words()}; {seen.detail}"
        )

    def _words(self) -> str:
        return f"resident {self._resident_bytes >> 20} MiB, bound {self._bound_bytes >> 20} MiB"


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
        child = reaped(self._scene, self._target)
        if child is None:
            return did_not_die(self._target)
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
