"""SIGKILL a process of subscribers with deliveries that it has not acknowledged. Another goes on with the same subscribers."""

from __future__ import annotations

import signal
import time

from chaos.channels.crew import ChannelScene
from chaos.channels.watch import Reader
from chaos.faults.base import Seen
from chaos.plan import PlannedFault

#: How long an instant is waited for at which something is in hand.
AIM_TIMEOUT_S = 4.0

#: A killed process is reaped within microseconds; nobody waits longer than this for one that was not.
REAP_TIMEOUT_S = 3.0

#: Messages wait for the replacement for at least this long.
AWAY_S = 1.5

#: An interpreter has to start, connect and fetch.
REPLACEMENT_TIMEOUT_S = 30.0

#: By when it was given what was in hand. Some of that never comes: its acknowledgement was on its way, and did arrive.
AGAIN_TIMEOUT_S = 3.0


class SubscriberKill:
    """inject: SIGKILL while something is delivered and not acknowledged. witness: waitpid said -9.

    heal: a replacement is started, with the same names. healed: it was given again what was in hand.
    """

    def __init__(self, scene: ChannelScene, planned: PlannedFault) -> None:
        self._scene = scene
        self._planned = planned
        self._in_hand: dict[Reader, int] = {}
        self._reaped_ns = 0

    def inject(self) -> Seen:
        scene, target = self._scene, self._planned.target
        view = scene.watch.channels(target)
        aimed = scene.wait(lambda: bool(view.unread), timeout_s=AIM_TIMEOUT_S, poll_s=0.001)
        child = scene.child(target)
        t_ns = time.monotonic_ns()
        if child is None:
            return Seen(t_ns, False, f"{target} is not alive")
        child.exit_expected = True
        scene.signal(child.pid, signal.SIGKILL)
        return Seen(t_ns, True, f"SIGKILL to pid {child.pid}" + ("" if aimed else ", though nothing was seen in hand"))

    def witness(self) -> Seen:
        scene, target = self._scene, self._planned.target
        child = scene.crew.children.get(target)
        if child is None or not scene.wait(lambda: not child.alive(), timeout_s=REAP_TIMEOUT_S, poll_s=0.0002):
            if child is not None:
                child.exit_expected = False
            return Seen(time.monotonic_ns(), False, f"{target} did not die")
        self._reaped_ns = time.monotonic_ns()
        scene.watch.poll()
        self._in_hand = {place: clock for place, (clock, _) in scene.watch.channels(target).unread.items()}
        code = child.process.returncode
        detail = f"waitpid returned {code}; {len(self._in_hand)} subscribers had not acknowledged"
        return Seen(self._reaped_ns, code == -signal.SIGKILL, detail)

    def heal(self) -> Seen:
        planned = self._planned
        if not self._reaped_ns:
            return Seen(time.monotonic_ns(), True, f"{planned.target} lives: nothing to heal")
        self._scene.wait(lambda: False, timeout_s=AWAY_S)
        t_ns = time.monotonic_ns()
        self._scene.crew.start_replacement(planned.replacement, planned.target)
        return Seen(t_ns, True, f"{planned.replacement} started")

    def witness_healed(self) -> Seen:
        scene, planned = self._scene, self._planned
        name = planned.replacement if self._reaped_ns else planned.target
        answered = scene.wait(lambda: bool(scene.watch.channels(name).ready), timeout_s=REPLACEMENT_TIMEOUT_S)
        scene.wait(lambda: len(self._again(name)) == len(self._in_hand), timeout_s=AGAIN_TIMEOUT_S)
        again = len(self._again(name))
        detail = f"{name} {'fetches' if answered else 'does not fetch'}; {again} of {len(self._in_hand)} were given it again"
        return Seen(time.monotonic_ns(), answered, detail)

    def _again(self, name: str) -> list[Reader]:
        return self._scene.watch.delivered_again(name, self._in_hand)
