"""The faults of a drill of a job queue. They hit the whole of a worker, with the processes that it has forked, as when its
container is killed or stopped. Their witnesses are histories, the kernel, and probes through the proxies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from chaos.faults.base import STOPS_MAX, Fault, Scene, Seen, Stopped, did_not_die, process_states, reaped
from chaos.faults.network_base import LostFault, NetworkFault
from chaos.plan import PRODUCER, PlannedFault
from chaos.probe import ask, refused
from chaos.processes import send
from chaos.targets.watch import TargetWatch
from chaos.toxiproxy import blackhole
from chaos.watch import Token

#: A fault of the network lasts this long.
HOLD_S = 4.0

#: By when a process that was hit, or that replaces one, is expected to work again. Later it is told as a finding, not as a doubt.
AGAIN_TIMEOUT_S = 30.0

STATE_TIMEOUT_S = 3.0

#: By when a worker among several has a job in hand, while there is load.
AIM_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class TargetScene(Scene):
    """What these faults look at and act on; `freeze_ms`: how long a frozen worker stands still."""

    watch: TargetWatch
    freeze_ms: int = 0


def tree(pid: int) -> list[int]:
    """A process and all that it has started, at any depth: some libraries give each job a process in a session of its own."""
    try:
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def send_to_tree(pid: int, number: int) -> None:
    """Send a signal to a process and to all that it has started. One that is being stopped may have forked meanwhile."""
    reached: set[int] = set()
    while fresh := [one for one in tree(pid) if one not in reached]:
        for one in fresh:
            send(one, number)
        reached.update(fresh)


def stands_still(pid: int) -> bool:
    """Whether all threads of a process and of all that it has started are stopped."""
    states = [process_states(one) for one in tree(pid)]
    return bool(states) and all(state == {"T"} for state in states if state)


def stop_in_mid_job(scene: TargetScene, target: str) -> Stopped | None:
    """Stop a worker in the middle of a job; None when it is not alive. These workers have few jobs at once, and their histories
    are read a moment late: a stop that caught none is undone and tried again."""
    until_s, running = time.monotonic() + AIM_TIMEOUT_S, scene.watch.view(target).running
    for attempt in range(1, STOPS_MAX + 1):
        aimed = scene.wait(lambda: bool(running), timeout_s=until_s - time.monotonic(), poll_s=0.001)
        child, t_ns = scene.child(target), time.monotonic_ns()
        if child is None:
            return None
        stop(scene, child.pid)
        if running or not aimed or attempt == STOPS_MAX:
            return Stopped(child, t_ns, attempt, aimed, tuple(running), not running)
        scene.signal(child.pid, signal.SIGCONT)
    raise AssertionError("the last attempt returns")


def stop(scene: TargetScene, pid: int) -> None:
    """Stop a worker, and read what it has written until then."""
    scene.signal(pid, signal.SIGSTOP)
    try:
        scene.wait(lambda: stands_still(pid), timeout_s=STATE_TIMEOUT_S, poll_s=0.001)
        scene.watch.poll()
    except BaseException:
        # Not on record yet: nobody else knows that there is something to heal.
        scene.signal(pid, signal.SIGCONT)
        raise


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts."""
    return process_states(pid) <= {"Z", "X"}


class WorkerKill:
    """inject: SIGSTOP, and SIGKILL once that has caught handlers running. witness: waitpid said -9, none of its processes is
    left, and handlers were cut off. heal: a replacement is started at once. healed: it was started; the detail says when it
    began to work."""

    def __init__(self, scene: TargetScene, planned: PlannedFault) -> None:
        self._scene, self._planned = scene, planned
        self._pids: list[int] = []
        self._killed = False

    def inject(self) -> Seen:
        scene = self._scene
        stopped = stop_in_mid_job(scene, self._planned.target)
        if stopped is None:
            return Seen(time.monotonic_ns(), False, f"{self._planned.target} is not alive")
        stopped.child.exit_expected = True
        self._pids = tree(stopped.child.pid)
        killed_ns = time.monotonic_ns()
        scene.signal(stopped.child.pid, signal.SIGKILL)
        return Seen(killed_ns, True, f"SIGKILL to {len(self._pids)} processes, attempt {stopped.attempt}")

    def witness(self) -> Seen:
        scene, target = self._scene, self._planned.target
        child = reaped(scene, target, lambda: all(map(is_gone, self._pids)))
        t_ns = time.monotonic_ns()
        if child is None:
            return did_not_die(target)
        self._killed = True
        scene.watch.poll()
        cut_off = tuple(scene.watch.view(target).running)
        code = child.process.returncode
        detail = f"waitpid returned {code}; {len(cut_off)} handlers cut off"
        return Seen(t_ns, code == -signal.SIGKILL and bool(cut_off), detail, cut_off)

    def heal(self) -> Seen:
        if not self._killed:
            return Seen(time.monotonic_ns(), True, f"{self._planned.target} lives: nothing to heal")
        self._scene.crew.start_replacement(self._planned.replacement, self._planned.target)
        return Seen(time.monotonic_ns(), True, f"{self._planned.replacement} started")

    def witness_healed(self) -> Seen:
        name = self._planned.replacement if self._killed else self._planned.target
        return works_again(self._scene, name, since_ns=0)


class WorkerFreeze:
    """inject: SIGSTOP while handlers run. witness: all threads of all its processes stand still, until others have started its
    jobs or the time is up. heal: SIGCONT. healed: it goes on."""

    def __init__(self, scene: TargetScene, planned: PlannedFault) -> None:
        self._scene, self._planned = scene, planned
        self._pid, self._stopped_ns = 0, 0
        self._frozen: tuple[Token, ...] = ()

    def inject(self) -> Seen:
        stopped = stop_in_mid_job(self._scene, self._planned.target)
        self._stopped_ns = time.monotonic_ns()
        if stopped is None:
            return Seen(self._stopped_ns, False, f"{self._planned.target} is not alive")
        self._pid, self._stopped_ns, self._frozen = stopped.child.pid, stopped.t_ns, stopped.running
        return Seen(self._stopped_ns, True, f"SIGSTOP to {len(tree(self._pid))} processes, {len(self._frozen)} handlers running")

    def witness(self) -> Seen:
        scene, target = self._scene, self._planned.target
        if not self._pid:
            return Seen(time.monotonic_ns(), False, f"{target} was not stopped")
        still = scene.wait(lambda: stands_still(self._pid), timeout_s=STATE_TIMEOUT_S)
        until_s = self._stopped_ns / 1e9 + scene.freeze_ms / 1_000
        scene.wait(lambda: len(self._taken()) == len(self._frozen), timeout_s=until_s - time.monotonic(), poll_s=0.02)
        t_ns = time.monotonic_ns()
        lasted_s = (t_ns - self._stopped_ns) / 1e9
        detail = f"stood still for {lasted_s:.1f} s; others started {len(self._taken())} of its {len(self._frozen)} jobs"
        return Seen(t_ns, still and stands_still(self._pid) and bool(self._frozen), detail, self._frozen)

    def heal(self) -> Seen:
        if self._pid:
            self._scene.signal(self._pid, signal.SIGCONT)
        return Seen(time.monotonic_ns(), True, f"SIGCONT to {self._planned.target}")

    def witness_healed(self) -> Seen:
        goes_on = self._scene.wait(lambda: not stands_still(self._pid), timeout_s=STATE_TIMEOUT_S)
        seen = works_again(self._scene, self._planned.target, since_ns=time.monotonic_ns())
        return Seen(seen.t_ns, goes_on, seen.detail)

    def _taken(self) -> list[Token]:
        return self._scene.watch.started_since(self._frozen, self._stopped_ns, but=self._planned.target)


def works_again(scene: TargetScene, name: str, since_ns: int) -> Seen:
    """Wait until a worker starts a handler. That it does not says something about the queue, not about the fault: it is told."""
    begun_ns = time.monotonic_ns()
    worked = scene.wait(lambda: scene.watch.last_start_ns(name) > since_ns, timeout_s=AGAIN_TIMEOUT_S)
    t_ns = time.monotonic_ns()
    words = f"{name} started a handler after {(t_ns - begun_ns) / 1e9:.1f} s" if worked else f"{name} started no handler"
    return Seen(t_ns, name in scene.crew.children, words)


def answered_again(fault: NetworkFault) -> Seen:
    """The proxies carry traffic again; when worker and producer did, too, is told."""
    scene: TargetScene = fault.scene  # type: ignore[assignment]
    carried = all(ask(fault.network.proxy(name), "PING") == "+PONG" for name in fault.targets)
    worker = works_again(scene, fault.workers[0], since_ns=fault.healed_ns)
    sent = scene.wait(lambda: scene.watch.enqueued_since(PRODUCER, fault.healed_ns), timeout_s=AGAIN_TIMEOUT_S)
    return Seen(worker.t_ns, carried, f"{worker.detail}; {PRODUCER} {'was' if sent else 'was not'} answered again")


def hold(fault: NetworkFault) -> None:
    """Stay until the time of the fault is over."""
    fault.scene.wait(lambda: False, timeout_s=fault.in_force_ns / 1e9 + HOLD_S - time.monotonic(), poll_s=0.01)


class NetDown(NetworkFault):
    """inject: the proxies cut what they carry and refuse. witness: they refuse. heal: they listen. healed: they carry again."""

    def act(self) -> Seen:
        return self.strike(lambda: self.network.cut(self.targets), "connections cut, new ones refused")

    def observe(self) -> Seen:
        refusing = [name for name in self.targets if refused(self.network.proxy(name))]
        hold(self)
        return Seen(
            time.monotonic_ns(), len(refusing) == len(self.targets), f"refused connections: {', '.join(refusing) or 'nobody'}"
        )

    def observe_healed(self) -> Seen:
        return answered_again(self)


class NetRequestLost(LostFault):
    """inject: a black hole for requests. witness: a write through each proxy has no answer, and is not at the server. heal and
    healed: as above."""

    stream = "upstream"

    def act(self) -> Seen:
        return self.strike(lambda: self.network.poison(self.targets, [blackhole(self.stream)]), f"black hole {self.stream}")

    def observe(self) -> Seen:
        probes = [self.probe(name) for name in self.targets]
        hold(self)
        return Seen(time.monotonic_ns(), all(lost for lost, _ in probes), "; ".join(words for _, words in probes))

    def observe_healed(self) -> Seen:
        return answered_again(self)


class NetReplyLost(NetRequestLost):
    """The same for replies: the write through each proxy has no answer, and is at the server."""

    stream, arrives = "downstream", True


FAULTS: Mapping[str, Callable[[TargetScene, PlannedFault], Fault]] = {
    "worker-kill": WorkerKill,
    "worker-freeze": WorkerFreeze,
    "net-down": NetDown,
    "net-request-lost": NetRequestLost,
    "net-reply-lost": NetReplyLost,
}
