"""The only server ends, in order or not, and comes back with all that it has answered for."""

from __future__ import annotations

import random
import signal
import time

from chaos.errors import HarnessError
from chaos.faults.base import Scene, Seen
from chaos.plan import PlannedFault
from chaos.probe import address_of, refused
from chaos.topology.single import Durable

#: How it ends: each is drawn for some plans.
SIGNALS = (signal.SIGKILL, signal.SIGTERM)

#: A server that was told to end is gone within this.
END_TIMEOUT_S = 8.0

#: It stays away for as long as takes clients to try again, in vain.
DOWN_S = 1.5

#: By when all that was answered stands in the server's file.
WRITTEN_TIMEOUT_S = 20.0

#: So much that is new is at least to come where load is let come, and by when it does on a machine that pauses.
LOAD_LEAST = 5
LOAD_TIMEOUT_S = 15.0

#: Clients that lost their server try again at least every half second.
ANSWER_TIMEOUT_S = 15.0


class ServerEnd:
    """The frame of a fault that ends the only server, which is started again on its port. Its subclasses define `number`, the
    signal that ends it; what to `prepare` before; what to do with its files once it has ended (`change_files`); and what else
    must be seen of the new one (`observe_healed`)."""

    number: signal.Signals = signal.SIGKILL

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self.scene = scene
        self.planned = planned
        self.servers: Durable = scene.servers
        self.healed_ns = 0
        self._run_id = ""

    def prepare(self) -> None:
        """Do what comes before the end."""

    def change_files(self) -> str:
        """Do what happens to the files of the server that has ended; in words."""
        return "its own files"

    def observe_healed(self) -> tuple[bool, str]:
        """Whether what else must be seen of the new server was seen, in words that go on from a semicolon."""
        return True, ""

    def inject(self) -> Seen:
        self._run_id = self.servers.run_id()
        self.prepare()
        t_ns = time.monotonic_ns()
        self.end()
        return Seen(t_ns, True, f"{self.number.name} to the server of run id {self._run_id[:8]}")

    def witness(self) -> Seen:
        gone = self.is_gone()
        self.scene.wait(lambda: False, timeout_s=DOWN_S)
        silent = refused(address_of(self.servers.url))
        detail = f"the server {'ended' if gone else 'did not end'}; connections {'refused' if silent else 'accepted'}"
        return Seen(time.monotonic_ns(), gone and silent, detail)

    def heal(self) -> Seen:
        words = self.start_again()
        # Once it answers: what was sent before that was not answered by the one that ended.
        self.healed_ns = time.monotonic_ns()
        return Seen(self.healed_ns, True, words)

    def witness_healed(self) -> Seen:
        missing = self.scene.unanswered_since(self.healed_ns, ANSWER_TIMEOUT_S)
        t_ns, now = time.monotonic_ns(), self.servers.run_id()
        detail = f"run id {now[:8]}, before {self._run_id[:8]}; answered within {(t_ns - self.healed_ns) / 1e6:.0f} ms: "
        detail += f"all but {', '.join(missing)}" if missing else "everybody"
        also, words = self.observe_healed()
        return Seen(t_ns, now != self._run_id and not missing and also, detail + words)

    def end(self) -> None:
        """End the server."""
        self.servers.end(self.number, self.scene.signal)

    def note_written(self) -> int:
        """Wait until all that the server has answered by now stands in its file, be it on the disk or not; the instant before.
        Raises HarnessError."""
        t_ns = time.monotonic_ns()
        answered_bytes = sum(self.servers.file_bytes())
        if not self.scene.wait(lambda: self.servers.file_bytes()[0] >= answered_bytes, timeout_s=WRITTEN_TIMEOUT_S):
            raise HarnessError(f"{self.planned.fault}: the server had not written {WRITTEN_TIMEOUT_S:g} s later what it answered")
        return t_ns

    def let_load_come(self, hold_s: float) -> None:
        """Wait for so long, and until something new was answered."""
        before = self.scene.watch.created()
        self.scene.wait(lambda: False, timeout_s=hold_s)
        self.scene.wait(lambda: self.scene.watch.created() >= before + LOAD_LEAST, timeout_s=LOAD_TIMEOUT_S)

    def is_gone(self) -> bool:
        """True when the server's process has ended as the signal ends it, waited for."""
        wanted = -signal.SIGKILL if self.number == signal.SIGKILL else 0
        return self.scene.wait(lambda: self.servers.reaped() is not None, timeout_s=END_TIMEOUT_S) and (
            self.servers.reaped() == wanted
        )

    def start_again(self) -> str:
        """Start the server if it has ended; one that would not end goes on. In words."""
        if self.servers.reaped() is None:
            self.servers.ended = False
            return "the server lives: nothing to heal"
        words = self.change_files()
        self.servers.start()
        return f"started again with {words}"


class ServerRestart(ServerEnd):
    """inject: SIGKILL, or SIGTERM for an orderly end. witness: the process is gone as planned, and connections are refused. heal:
    it is started again on its port, with its own files. healed: another run id, and everybody is answered."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self.number = random.Random(f"{planned.fault} {planned.delay_ms}").choice(SIGNALS)
