"""What all faults share: the four stages, what each stage reports, and the scene that faults act on.

A fault never believes its own injection. `inject` acts; `witness` looks at the world (the kernel, other processes' histories)
for the effect; a witness that cannot be had is reported as missing, and the judge calls the run unknown (H1).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from chaos import rows
from chaos.errors import HarnessError
from chaos.network import Network
from chaos.plan import PlannedFault
from chaos.preload.control import Preload
from chaos.processes import Child, Children
from chaos.watch import Token, Watch
from record.history import HistoryFile

#: How long the kernel may take to stop or continue all threads.
STATE_TIMEOUT_S = 10.0

#: A killed process is reaped within microseconds; nobody waits longer than this for one that was not.
REAP_TIMEOUT_S = 10.0

#: Stops that caught no handler running are undone and tried again this often.
STOPS_MAX = 20

#: A handler that started at most this long ago is very likely still running when the signal arrives.
YOUNG_MS = 100

#: A call that is this old and unanswered has lost its reply: the server answers within a millisecond or two.
LOST_MS = 50

#: How long a process may take to ask for something once a fault is in force. An idle worker asks for nothing until its wait of
#: 1 s is given up, 2 s after the reply was due.
ASK_TIMEOUT_S = 4.0

#: Young handlers that a fault would like to hit at once: more jobs in hand prove more. Each wish gets its share of the time.
YOUNG_WANTED = (4, 3, 2)


class Wait(Protocol):
    """Wait until the condition holds; False when it did not within the time."""

    def __call__(self, condition: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.005) -> bool: ...


@dataclass(frozen=True)
class Scene:
    """What a fault may look at and act on."""

    crew: Children[Any]
    watch: Watch
    wait: Wait
    #: `processes.send`, or a pretence of it in the mutant whose faults do nothing.
    signal: Callable[[int, int], None]
    lease_ms: int
    recovery_bound_ms: int
    #: The proxies between the processes and their server; None in a run whose plan has no fault of the network.
    network: Network | None = None
    #: The topology of the run, and the harness's own history: for faults of servers.
    servers: Any = None
    harness: Any = None
    #: The mutant whose faults do nothing: a server is not told what would harm it.
    pretend: bool = False
    #: What acts inside the processes; None in a run whose plan has no fault that needs it.
    preload: Preload | None = None

    def clients(self) -> list[str]:
        """The processes that live and talk to the server."""
        return [name for name, child in self.crew.children.items() if child.alive()]

    def unanswered_since(self, t_ns: int, timeout_s: float) -> list[str]:
        """Those of the living processes that no call was answered which they sent since then, waited for."""

        def missing() -> list[str]:
            return [name for name in self.clients() if self.watch.view(name).answered.sent_ns <= t_ns]

        self.wait(lambda: not missing(), timeout_s=timeout_s)
        return missing()

    def silent_since(self, t_ns: int, names: Collection[str], timeout_s: float) -> list[str]:
        """Those of the processes that have asked for something, waited for, and that no call was answered which they sent since
        then. One that asks for nothing would be silent anyway. Each may ask at another time: between two attempts at a call none
        is open, and on a busy machine an instant at which all of them ask may never come."""
        asked: set[str] = set()

        def all_have_asked() -> bool:
            self.watch.poll()
            old_ns = time.monotonic_ns() - LOST_MS * 1_000_000
            # A reply that was on its way before has come by now.
            if old_ns > t_ns:
                calls = {name: self.watch.view(name).unanswered.values() for name in names}
                asked.update(name for name in names if any(sent_ns < old_ns for _, sent_ns in calls[name]))
            return len(asked) == len(names)

        self.wait(all_have_asked, timeout_s=timeout_s)
        return [name for name in names if name in asked and self.watch.view(name).answered.sent_ns < t_ns]

    def child(self, name: str) -> Child | None:
        """The process of that name if it lives."""
        child = self.crew.children.get(name)
        return child if child and child.alive() else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one stage saw: the instant it is about (monotonic ns), whether it happened, words for people, the jobs concerned."""

    t_ns: int
    ok: bool
    detail: str
    tokens: tuple[Token, ...] = ()


class Fault(Protocol):
    """The four stages, called once each and in this order. `heal` also runs when the witness raised."""

    def inject(self) -> Seen: ...

    def witness(self) -> Seen: ...

    def heal(self) -> Seen: ...

    def witness_healed(self) -> Seen: ...


def carry_out(
    fault: Fault,
    planned: PlannedFault,
    *,
    harness: HistoryFile,
    begin_phase: Callable[[str, int], None],
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Run a fault through its stages, record each, and return the instant of the heal (monotonic ns).

    `meanwhile`: what happens while it is in force and was seen to be, such as another fault from its inject until it has healed.
    """

    def record(stage: str, seen: Seen) -> None:
        row = rows.fault(
            planned.fault,
            name=planned.name,
            stage=stage,
            target=planned.target,
            seen=seen.ok,
            detail=seen.detail,
            items=items(seen.tokens),
        )
        harness.append([row], t_ns=seen.t_ns)

    injected = fault.inject()
    try:
        record("inject", injected)
        begin_phase(planned.phase, injected.t_ns)
        record("witness", fault.witness())
        meanwhile()
    finally:
        healing = fault.heal()
        record("heal", healing)
        begin_phase(f"recover-{planned.phase}", healing.t_ns)
    record("healed", fault.witness_healed())
    return healing.t_ns


def preload_of(scene: Scene, planned: PlannedFault) -> Preload:
    """What acts inside the processes. Raises HarnessError in a run whose processes were started without it."""
    if scene.preload is None:
        raise HarnessError(f"{planned.fault}: the processes were started without the library of chaos/preload")
    return scene.preload


def items(tokens: Iterable[Token]) -> list[dict[str, Any]]:
    """Tokens as the items of a history row."""
    return [{"job": token.job, "fence": token.fence, "nonce": token.nonce} for token in tokens]


def aim(scene: Scene, target: str, *, timeout_s: float = 6.0) -> bool:
    """Wait for a good instant to hit a worker in mid-job: as many young handlers as come together, at least one running."""

    def young() -> int:
        newest_ns = time.monotonic_ns() - YOUNG_MS * 1_000_000
        return sum(start_ns > newest_ns for start_ns in scene.watch.view(target).running.values())

    for wanted in YOUNG_WANTED:
        if scene.wait(lambda wanted=wanted: young() >= wanted, timeout_s=timeout_s / (len(YOUNG_WANTED) + 1), poll_s=0.001):
            return True
    running = scene.watch.view(target).running
    return scene.wait(lambda: bool(running), timeout_s=timeout_s / (len(YOUNG_WANTED) + 1), poll_s=0.001)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A worker that SIGSTOP has stopped. `running`: the handlers that it was in; `missed`: none, though one was seen before each
    of the attempts."""

    child: Child
    t_ns: int
    attempt: int
    aimed: bool
    running: tuple[Token, ...]
    missed: bool


def stop_at_work(scene: Scene, target: str, stalls: Callable[[], bool] = lambda: False) -> Stopped | None:
    """Stop a worker while handlers run; None when it is not alive. A stop that caught none is undone and tried again: only of a
    stopped process is it known what it runs, however late we are. So is one of which `stalls` says that it stops all others,
    too. The last one stays."""
    attempt = 0
    while True:
        attempt += 1
        aimed = aim(scene, target)
        child = scene.child(target)
        t_ns = time.monotonic_ns()
        if child is None:
            return None
        stopped = _stop(scene, child.pid)
        running = tuple(scene.watch.view(target).running)
        missed = not running and aimed and stopped
        try:
            again = attempt < STOPS_MAX and (missed or (bool(running) and stalls()))
        except BaseException:
            # As in `_stop`.
            scene.signal(child.pid, signal.SIGCONT)
            raise
        if not again:
            return Stopped(child, t_ns, attempt, aimed, running, missed)
        scene.signal(child.pid, signal.SIGCONT)


def _stop(scene: Scene, pid: int) -> bool:
    """Stop a process, and read what it has written until then; True when all its threads stand still."""
    scene.signal(pid, signal.SIGSTOP)
    try:
        stopped = scene.wait(lambda: process_states(pid) == {"T"}, timeout_s=STATE_TIMEOUT_S, poll_s=0.001)
    except BaseException:
        # Interrupted before the fault is on record: nobody else knows that there is something to heal.
        scene.signal(pid, signal.SIGCONT)
        raise
    scene.watch.poll()
    return stopped


def reaped(scene: Scene, name: str, gone: Callable[[], bool] = lambda: True) -> Child | None:
    """The process of that name, which was killed, once it was waited for and is `gone`. None where it did not die: should it
    end later, that is an error of the run."""
    child = scene.crew.children.get(name)
    if child is None:
        return None
    if scene.wait(lambda: not child.alive() and gone(), timeout_s=REAP_TIMEOUT_S, poll_s=0.0002):
        return child
    child.exit_expected = False
    return None


def did_not_die(name: str) -> Seen:
    """What a witness of a kill says where `reaped` is None."""
    return Seen(time.monotonic_ns(), False, f"{name} did not die")


def process_states(pid: int) -> set[str]:
    """The kernel's state letters of all threads of a process (proc(5)); empty when it is gone."""
    states: set[str] = set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    except OSError:
        return states
    return states
