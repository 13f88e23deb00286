"""What faults share that are done to a server which lives on: the primary of the run's keys, and everybody who is to be answered.

Such a fault is carried out by commands to the server, which say nothing of their effect. That is seen in what the server counts
(INFO), in its state in the kernel, and in the histories of the processes: whom it answered, and what it refused.
"""

from __future__ import annotations

import time
from typing import Any

from chaos.errors import HarnessError
from chaos.faults.base import ASK_TIMEOUT_S, Scene, Seen
from chaos.faults.commands import tell
from chaos.plan import PlannedFault

#: Clients that lost a reply or their server try again at least every half second.
ANSWER_TIMEOUT_S = 15.0


class ServerFault:
    """The frame of a fault of a server that lives on. Its subclasses define how to `act`, what to `observe`, how to `mend`;
    what to `prepare` before, and what else shows that it has healed (`observe_healed`)."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self.scene = scene
        self.planned = planned
        self.port = 0
        self.since_ns = 0
        self.healed_ns = 0

    def prepare(self) -> None:
        """Look at what must be known before it is done."""

    def act(self) -> str:
        """Do it; in words."""
        raise NotImplementedError

    def observe(self) -> tuple[bool, str]:
        """Whether its effect was seen, in words."""
        raise NotImplementedError

    def mend(self) -> str:
        """Undo what was done, also a part of it; in words."""
        raise NotImplementedError

    def observe_healed(self) -> tuple[bool, str]:
        """Whether what else must be seen once everybody was answered was seen, in words that go on from a semicolon."""
        return True, ""

    def inject(self) -> Seen:
        try:
            self.port = self.scene.servers.address().port
        except OSError as error:
            raise HarnessError(f"{self.planned.fault}: {error}") from error
        self.prepare()
        self.since_ns = time.monotonic_ns()
        try:
            return Seen(self.since_ns, True, self.act())
        except BaseException:
            # Not on record yet: nobody else knows that there is something to heal.
            self.mend()
            raise

    def witness(self) -> Seen:
        ok, words = self.observe()
        return Seen(time.monotonic_ns(), ok, words)

    def heal(self) -> Seen:
        # Before the act: a process that is back within a millisecond was back after the heal.
        self.healed_ns = time.monotonic_ns()
        return Seen(self.healed_ns, True, self.mend())

    def witness_healed(self) -> Seen:
        missing = self.scene.unanswered_since(self.healed_ns, ANSWER_TIMEOUT_S)
        took_ms = (time.monotonic_ns() - self.healed_ns) / 1e6
        also, words = self.observe_healed()
        answered = f"all but {', '.join(missing)}" if missing else "everybody"
        return Seen(time.monotonic_ns(), also and not missing, f"answered within {took_ms:.0f} ms: {answered}{words}")

    def harm(self, *words: Any) -> Any:
        """A command that harms the server; None in the mutant whose faults do nothing. Raises HarnessError."""
        return None if self.scene.pretend else tell(self.port, *words)

    def refused(self, code: str) -> list[str]:
        """The processes of which a call was completed since the fault began that the server had refused with this error."""
        self.scene.watch.poll()
        return [name for name in self.scene.clients() if self.scene.watch.view(name).refused_ns.get(code, 0) > self.since_ns]

    def nobody_answered(self, in_force_ns: int, hold_s: float) -> tuple[bool, str]:
        """Whether nobody was answered what was sent since then, once so much time has passed, in words."""
        scene = self.scene
        scene.wait(lambda: False, timeout_s=in_force_ns / 1e9 + hold_s - time.monotonic(), poll_s=0.01)
        clients = scene.clients()
        scene.wait(lambda: len(scene.silent_since(in_force_ns, clients)) == len(clients), timeout_s=ASK_TIMEOUT_S)
        silent = scene.silent_since(in_force_ns, clients)
        return len(silent) == len(clients), f"no call answered: {', '.join(silent) or 'nobody'}"
