"""Faults of a server by a command to it: clients are thrown out, scripts forgotten, one of them does not end, memory is full."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from chaos.errors import HarnessError
from chaos.faults.asking import number_of, refusals, setting, tell
from chaos.faults.network_base import HOLD_LEASES, HOLD_S
from chaos.faults.server import ANSWER_TIMEOUT_S, ServerFault
from chaos.probe import Address, ask

#: How often, and for how long.
EVERY_S = 0.1
STORM_S = 2.0


class ClientsKilled(ServerFault):
    """inject: CLIENT KILL TYPE normal every 100 ms for two seconds. witness: each process has connected again, and the server has
    counted at least as many new connections. heal: none is killed any more. healed: everybody is answered."""

    def prepare(self) -> None:
        self._killed = 0
        self._connections = number_of(self.port, "stats", "total_connections_received")

    def act(self) -> str:
        self.scene.wait(self._kill, timeout_s=STORM_S, poll_s=EVERY_S)
        return f"CLIENT KILL TYPE normal for {STORM_S:g} s, {self._killed} connections"

    def observe(self) -> tuple[bool, str]:
        clients = self.scene.clients()
        self.scene.wait(lambda: len(self._connected(clients)) == len(clients), timeout_s=ANSWER_TIMEOUT_S)
        connected = self._connected(clients)
        more = number_of(self.port, "stats", "total_connections_received") - self._connections
        words = f"{more} new connections; connected again: {', '.join(connected) or 'nobody'}"
        return len(connected) == len(clients) <= more, words

    def mend(self) -> str:
        return "no connection is killed any more"

    def _connected(self, clients: list[str]) -> list[str]:
        return [name for name in clients if self.scene.watch.view(name).connected_ns > self.since_ns]

    def _kill(self) -> bool:
        """Kill once more; never true."""
        self._killed += int(self.harm("CLIENT", "KILL", "TYPE", "normal") or 0)
        return False


NOSCRIPT = "NOSCRIPT"

#: How often.
FLUSH_EVERY_S = 0.05

#: A process that was refused has written so by then.
REFUSED_TIMEOUT_S = 10.0


class ScriptsFlushed(ServerFault):
    """inject: SCRIPT FLUSH every 50 ms for two seconds. witness: the server's count of NOSCRIPT replies rises, processes were
    refused with it, and each of them was answered all the same. heal: nothing more is flushed. healed: everybody is answered."""

    def prepare(self) -> None:
        self._flushes = 0
        self._refusals = refusals(self.port, NOSCRIPT)

    def act(self) -> str:
        self.scene.wait(self._flushed, timeout_s=STORM_S, poll_s=FLUSH_EVERY_S)
        return f"SCRIPT FLUSH, {self._flushes} times in {STORM_S:g} s"

    def observe(self) -> tuple[bool, str]:
        missing = self.scene.unanswered_since(self.since_ns, REFUSED_TIMEOUT_S)
        self.scene.wait(lambda: bool(self.refused(NOSCRIPT)), timeout_s=REFUSED_TIMEOUT_S)
        more, whom = refusals(self.port, NOSCRIPT) - self._refusals, self.refused(NOSCRIPT)
        words = f"{more} NOSCRIPT replies, to {', '.join(whom) or 'nobody'}; answered: "
        return more > 0 and bool(whom) and not missing, words + (f"all but {', '.join(missing)}" if missing else "everybody")

    def mend(self) -> str:
        return "nothing is flushed any more"

    def _flushed(self) -> bool:
        """Flush once more; never true."""
        self.harm("SCRIPT", "FLUSH")
        self._flushes += 1
        return False


BUSY = "BUSY"

#: From when on the server says that it is busy; by default only after five seconds.
THRESHOLD_MS = 200

#: It would end by itself, should the harness not live to kill it.
SCRIPT = 'EVAL "for i = 1, 1e10 do end" 0'
SCRIPT_TIMEOUT_S = 60.0

#: A server that works answers within this, and how long one is waited for that is to be busy, or not to be any more.
PROBE_PATIENCE_S = 0.3
BUSY_TIMEOUT_S = 15.0


class ScriptBusy(ServerFault):
    """inject: a script that does not end, and busy-reply-threshold 200 ms. witness: the server says that it is busy, and no call
    is answered meanwhile. heal: SCRIPT KILL. healed: everybody is answered; processes were refused with BUSY, and the server
    counted more such replies than the harness itself got."""

    def prepare(self) -> None:
        self._ours = 0
        self._address: Address = self.scene.servers.address()
        self._before = setting(self.port, "busy-reply-threshold")
        self._refusals = refusals(self.port, BUSY)

    def act(self) -> str:
        self.harm("CONFIG", "SET", "busy-reply-threshold", THRESHOLD_MS)
        if not self.scene.pretend:
            threading.Thread(target=self._run, name="busy-script", daemon=True).start()
        self.scene.wait(self._is_busy, timeout_s=BUSY_TIMEOUT_S, poll_s=0.05)
        self._busy_ns = time.monotonic_ns()
        return f"a script without an end, busy-reply-threshold {THRESHOLD_MS} ms"

    def observe(self) -> tuple[bool, str]:
        silent, words = self.nobody_answered(self._busy_ns, min(HOLD_S, self.scene.lease_ms / 1_000 * HOLD_LEASES))
        # Asked again: also a busy server is late now and then.
        busy = self.scene.wait(self._is_busy, timeout_s=BUSY_TIMEOUT_S, poll_s=0.05)
        return busy and silent, f"the server is {'busy' if busy else 'not busy'}; {words}"

    def mend(self) -> str:
        if not self.scene.wait(self._is_freed, timeout_s=BUSY_TIMEOUT_S):
            raise HarnessError("the server is still busy after SCRIPT KILL")
        tell(self.port, "CONFIG", "SET", "busy-reply-threshold", self._before)
        return "the script was killed"

    def observe_healed(self) -> tuple[bool, str]:
        whom, more = self.refused(BUSY), refusals(self.port, BUSY) - self._refusals - self._ours
        return bool(whom) and more > 0, f"; {more} BUSY replies, to {', '.join(whom) or 'nobody'}"

    def _run(self) -> None:
        with suppress(OSError):
            ask(self._address, SCRIPT, SCRIPT_TIMEOUT_S)

    def _is_busy(self) -> bool:
        busy = self._ping().startswith("-BUSY")
        self._ours += busy
        return busy

    def _is_freed(self) -> bool:
        """Kill the script; true once the server answers as ever."""
        with suppress(OSError):
            ask(self._address, "SCRIPT KILL", PROBE_PATIENCE_S)
        reply = self._ping()
        self._ours += reply.startswith("-BUSY")
        return reply == "+PONG"

    def _ping(self) -> str:
        try:
            return ask(self._address, "PING", PROBE_PATIENCE_S)
        except OSError:
            return ""


#: What is refused, and whose.
OOM = "OOM"

#: So much less than it uses is the server given. What is done frees memory, so it is given less again and again.
BELOW_BYTES = 65_536
AGAIN_S = 0.1

#: It stays at least so long, and at most so much longer until somebody was refused.
OOM_HOLD_S = 2.5
OOM_TIMEOUT_S = 5.0


class MemoryFull(ServerFault):
    """inject: CONFIG SET maxmemory just below what the server uses, with noeviction, and again whenever it uses less. witness:
    its count of OOM replies rises, and calls of processes were refused with OOM. heal: maxmemory as before. healed: everybody is
    answered, and something new is accepted again."""

    def prepare(self) -> None:
        self._before = setting(self.port, "maxmemory")
        self._policy = setting(self.port, "maxmemory-policy")
        self._refusals = refusals(self.port, OOM)
        self._given_bytes = 0

    def act(self) -> str:
        self.harm("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self._press()
        return f"maxmemory {self._given_bytes}, before {self._before}"

    def observe(self) -> tuple[bool, str]:
        self.scene.wait(self._pressed, timeout_s=OOM_HOLD_S, poll_s=AGAIN_S)
        self.scene.wait(lambda: self._pressed() or bool(self.refused(OOM)), timeout_s=OOM_TIMEOUT_S, poll_s=AGAIN_S)
        more, whom = refusals(self.port, OOM) - self._refusals, self.refused(OOM)
        return more > 0 and bool(whom), f"{more} OOM replies; refused: {', '.join(whom) or 'nobody'}"

    def mend(self) -> str:
        self._created = self.scene.watch.created()
        for name, value in (("maxmemory", self._before), ("maxmemory-policy", self._policy)):
            tell(self.port, "CONFIG", "SET", name, value)
        return f"maxmemory {self._before}"

    def observe_healed(self) -> tuple[bool, str]:
        accepted = self.scene.wait(lambda: self.scene.watch.created() > self._created, timeout_s=ANSWER_TIMEOUT_S)
        return accepted, f"; {'new ones' if accepted else 'nothing new'} accepted"

    def _pressed(self) -> bool:
        """Keep the memory full; never true."""
        self._press()
        return False

    def _press(self) -> None:
        # The buffers of replicas and of the file are no reason to refuse anything.
        used_bytes, apart_bytes = (number_of(self.port, "memory", name) for name in ("used_memory", "mem_not_counted_for_evict"))
        used_bytes -= apart_bytes
        if not self._given_bytes or used_bytes <= self._given_bytes:
            self._given_bytes = used_bytes - BELOW_BYTES
            self.harm("CONFIG", "SET", "maxmemory", self._given_bytes)
