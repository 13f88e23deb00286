"""The faults of a server: it stands still, is killed or started again, and what those of other servers share."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

from chaos.errors import HarnessError
from chaos.faults.asking import record, tell
from chaos.faults.base import ASK_TIMEOUT_S, STATE_TIMEOUT_S, Scene, Seen, process_states
from chaos.plan import PlannedFault
from chaos.probe import address_of, refused
from chaos.topology.single import Durable
from engine.testing.server import process_id

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
        silent = scene.silent_since(in_force_ns, clients, ASK_TIMEOUT_S)
        return len(silent) == len(clients), f"no call answered: {', '.join(silent) or 'nobody'}"


#: How long, but at most this part of a lease: each is renewed when a third of it is over, so at most two are.
PAUSE_S = 4.0
PAUSE_LEASES = 4 / 9


class ServerPause(ServerFault):
    """inject: SIGSTOP to the server. witness: all its threads stand still, and no call is answered meanwhile. heal: SIGCONT.
    healed: it runs, and everybody is answered. (Leases that were taken from who holds them: J1, early reap.)"""

    def prepare(self) -> None:
        self._pid = process_id(self.port)

    def act(self) -> str:
        self.scene.signal(self._pid, signal.SIGSTOP)
        return f"SIGSTOP to the server, pid {self._pid}"

    def observe(self) -> tuple[bool, str]:
        still = self.scene.wait(lambda: process_states(self._pid) == {"T"}, timeout_s=STATE_TIMEOUT_S, poll_s=0.001)
        stopped_ns = time.monotonic_ns()
        silent, words = self.nobody_answered(stopped_ns, min(PAUSE_S, self.scene.lease_ms / 1_000 * PAUSE_LEASES))
        still = still and process_states(self._pid) == {"T"}
        paused_s = (time.monotonic_ns() - self.since_ns) / 1e9
        return still and silent, f"{'stopped' if still else 'not stopped'} for {paused_s:.1f} s; {words}"

    def mend(self) -> str:
        self.scene.signal(self._pid, signal.SIGCONT)
        return "SIGCONT to the server"

    def observe_healed(self) -> tuple[bool, str]:
        runs = self.scene.wait(lambda: process_states(self._pid).isdisjoint({"T"}), timeout_s=STATE_TIMEOUT_S)
        return runs, "" if runs else "; the server stands still"


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


#: With a file that is brought to the disk once a second, so much load is on no disk when the power goes: less than that second.
UNSYNCED_S = 0.8

#: What the server says of a file that ends in the middle of a command.
TRUNCATED = "Truncating the AOF"


class ServerKill(ServerEnd):
    """Stage `snapshot`, where a file is noted: the instant before which all that was answered is in it.

    inject: SIGKILL; where its file is brought to the disk every second, what it holds shortly before is noted first. witness: the
    process is gone by it, and connections are refused. heal: what was not on the disk is taken away; where each write is on the
    disk before it is answered, half a command is left at the end instead; and it is started again on its port. healed: another
    run id, everybody is answered, and the server said that it cut off the half command.
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._synced: dict[Path, int] = {}
        self._torn_bytes = 0
        self._log_bytes = 0

    def prepare(self) -> None:
        if self.servers.durability == "everysec":
            noted_ns = self.note_written()
            self._synced = self.servers.written_bytes()
            detail = f"{sum(self._synced.values())} bytes of its file count as brought to the disk, and none that follow"
            record(self.scene, self.planned, "snapshot", seen=True, detail=detail, t_ns=noted_ns)
            self.let_load_come(UNSYNCED_S)

    def change_files(self) -> str:
        self._log_bytes = self.servers.log_bytes()
        if self.servers.durability == "everysec":
            return f"its own file, {self.servers.cut(self._synced)} bytes of it taken away"
        self._torn_bytes = self.servers.tear()
        return f"its own file, and {self._torn_bytes} bytes of a command at the end of it"

    def observe_healed(self) -> tuple[bool, str]:
        if not self._torn_bytes:
            return True, ""
        said = TRUNCATED in self.servers.logged_since(self._log_bytes)
        return said, f"; the server {'cut off' if said else 'did not cut off'} the half command"
