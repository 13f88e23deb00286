"""What faults share in which another server becomes the primary: the decision, the clients that follow it, and the old primary.

The old primary comes back, or was there all the time, and no client of ours may write to it once its clients have been told of
the new one. That is counted at the server itself: scripts that it ran, as only clients of the engine run any.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from chaos.catalogue import HEARD_MS
from chaos.errors import HarnessError
from chaos.faults.asking import PATIENCE_S, counted_losses, record, record_noticed, tell
from chaos.faults.base import Scene, Seen, process_states
from chaos.plan import PlannedFault
from chaos.topology.base import Replicated
from chaos.topology.embedded_sentinel import info
from chaos.topology.several import WithSentinels, replication_offset
from engine.testing.server import ask_server

#: By when the sentinels, or the nodes of the cluster, have decided.
DECISION_TIMEOUT_S = 30.0

#: By when everybody has followed; the judge and the report hold the time that it took against five seconds.
FOLLOW_TIMEOUT_S = 20.0

#: How long the old primary is looked at once clients must have been told.
WATCHED_S = 2.0

#: Sentinels correct the role of a server that was away only after eight seconds, and then it copies everything.
WHOLE_TIMEOUT_S = 60.0

#: How often servers are asked.
ASK_S = 0.02

#: Commands that run a script.
SCRIPTS = ("evalsha", "eval", "fcall")


class Failover:
    """The frame of a fault that moves the primary. Its subclasses define how to `act` (called with the primary in `old`), how to
    `mend`, and what happens right after the decision (`decided`)."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self.scene = scene
        self.planned = planned
        self.servers: Replicated = scene.servers
        self.old = -1
        self.new: int | None = None
        #: When the majority named the new primary; 0 = it did not.
        self.decided_ns = 0
        self.healed_ns = 0

    def act(self) -> Seen:
        raise NotImplementedError

    def decided(self) -> str:
        """What is done at once after the decision; words for people."""
        return ""

    def mend(self) -> str:
        """Undo what was done to the old primary; words for people."""
        raise NotImplementedError

    def inject(self) -> Seen:
        primary = self.servers.primary()
        if primary is None:
            raise HarnessError(f"{self.planned.fault}: nobody is primary before the fault")
        self.old = primary
        self.servers.moving = True
        return self.act()

    def witness(self) -> Seen:
        began_ns = time.monotonic_ns()
        self.scene.wait(self._is_decided, timeout_s=DECISION_TIMEOUT_S, poll_s=ASK_S)
        t_ns = time.monotonic_ns()
        if self.new is None:
            return Seen(t_ns, False, f"server-{self.old} is still the primary, or nobody is")
        self.decided_ns = t_ns
        self.servers.known, self.servers.moving = self.new, False
        more = self.decided()
        named = f"server-{self.new} in place of server-{self.old} named after {(t_ns - began_ns) / 1e6:.0f} ms"
        return Seen(t_ns, True, named + (f"; {more}" if more else ""))

    def heal(self) -> Seen:
        words = self._watch_clients() if self.decided_ns else ""
        self.healed_ns = time.monotonic_ns()
        return Seen(self.healed_ns, True, self.mend() + words)

    def witness_healed(self) -> Seen:
        whole = self.scene.wait(self.servers.is_whole, timeout_s=WHOLE_TIMEOUT_S, poll_s=0.1)
        missing = self.scene.unanswered_since(self.healed_ns, FOLLOW_TIMEOUT_S)
        t_ns = time.monotonic_ns()
        took_ms = (t_ns - self.healed_ns) / 1e6
        detail = f"{'all servers in step' if whole else 'not all servers are in step'} {took_ms:.0f} ms later"
        detail += f"; answered: all but {', '.join(missing)}" if missing else "; everybody answered"
        return Seen(t_ns, whole and not missing, detail)

    def tell(self, server: int, *words: Any) -> Any:
        """A command to a server itself. Raises HarnessError."""
        return tell(self.servers.ports[server], *words)

    def _is_decided(self) -> bool:
        now = self.servers.primary()
        self.new = now if now not in (None, self.old) else None
        return self.new is not None

    def _watch_clients(self) -> str:
        """Wait until every client has followed, and count what the old primary ran for them since they must have been told."""

        def answered() -> bool:
            return all(self.scene.watch.view(name).answered.sent_ns > self.decided_ns for name in self.scene.clients())

        heard_s = self.decided_ns / 1e9 + HEARD_MS / 1e3
        soon = self.scene.wait(answered, timeout_s=heard_s - time.monotonic())
        took_ms = (time.monotonic_ns() - self.decided_ns) / 1e6
        self.scene.wait(lambda: False, timeout_s=heard_s - time.monotonic())
        before = scripts_run(self.servers.ports[self.old]) if self.servers.alive(self.old) else 0
        missing = [] if soon else self.scene.unanswered_since(self.decided_ns, FOLLOW_TIMEOUT_S)
        took_ms = took_ms if soon else (time.monotonic_ns() - self.decided_ns) / 1e6
        self.scene.wait(lambda: False, timeout_s=WATCHED_S)
        after = scripts_run(self.servers.ports[self.old]) if self.servers.alive(self.old) else 0
        self.stray(after - before)
        followed = f"all but {', '.join(missing)}" if missing else "everybody"
        return f"; {followed} answered again within {took_ms:.0f} ms; {after - before} scripts at the old one"

    def stray(self, count: int) -> None:
        """Record how many scripts clients ran at a server that is no primary, for the judge."""
        words = f"{count} scripts of clients ran at server-{self.old} after they must have been told of the new primary"
        record(self.scene, self.planned, "stray", seen=count == 0, detail=words)


def scripts_run(port: int) -> int:
    """How many scripts a server has run since it started; 0 when it does not answer its operator."""
    try:
        lines = ask_server(port, "INFO commandstats", PATIENCE_S).splitlines()
    except OSError:
        return 0
    told = [line for line in lines if line.startswith(tuple(f"cmdstat_{name}:" for name in SCRIPTS))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in told)


#: How long the primary takes no writes at most.
PAUSE_MS = 15_000

#: By when replicas have what the primary has.
CATCH_UP_TIMEOUT_S = 10.0


class FailoverClean(Failover):
    """inject: with sentinels the primary is told to take no writes, its replicas catch up, and SENTINEL FAILOVER; a cluster
    does the same by itself (CLUSTER FAILOVER). witness: the majority names another server, and the old primary follows it.

    heal: the old primary takes calls again, and refuses writes. healed: all in step, and everybody is answered.
    """

    def act(self) -> Seen:
        t_ns = time.monotonic_ns()
        if isinstance(self.servers, WithSentinels):
            self.tell(self.old, "CLIENT", "PAUSE", PAUSE_MS, "WRITE")
            self.scene.wait(self._caught_up, timeout_s=CATCH_UP_TIMEOUT_S, poll_s=ASK_S)
        self.servers.failover()
        return Seen(t_ns, True, f"failover from server-{self.old}, which took no writes meanwhile")

    def decided(self) -> str:
        if isinstance(self.servers, WithSentinels) and self.new is not None:
            self.servers.follow(self.old, self.new)
            return f"server-{self.old} follows it"
        return ""

    def mend(self) -> str:
        if isinstance(self.servers, WithSentinels):
            self.tell(self.old, "CLIENT", "UNPAUSE")
        return f"server-{self.old} takes calls again"

    def _caught_up(self) -> bool:
        ports = self.servers.ports
        return len({replication_offset(ports[server]) for server in (self.old, *self.servers.replicas())}) == 1


#: Load that is answered and replicated to nobody.
HELD_S = 1.5

FREEZE_TIMEOUT_S = 3.0

#: What a replica needs to be allowed to copy.
COPYING = ("psync", "sync")


class FailoverLossy(Failover):
    """inject: the primary lets no replica copy (ACL) and cuts those that do; after some load it is stopped (SIGSTOP). witness: it
    had answered more than its replicas have, all its threads stand still, and the majority names another server.

    Right after that it goes on (SIGCONT), and whoever was not told may still write to it. heal: it lets others copy again.
    healed: it follows the new primary, everybody is answered, and some process has noticed what is gone.
    """

    def act(self) -> Seen:
        self._noticed_before = counted_losses(self.scene, self.servers.ports[self.old])
        t_ns = time.monotonic_ns()
        self.tell(self.old, "ACL", "SETUSER", "default", *(f"-{name}" for name in COPYING))
        self.tell(self.old, "CLIENT", "KILL", "TYPE", "replica")
        self.scene.wait(lambda: False, timeout_s=HELD_S)
        ports = self.servers.ports
        has = max(replication_offset(ports[server]) for server in self.servers.replicas())
        self._ahead_bytes = replication_offset(ports[self.old]) - has
        self.scene.signal(self.servers.pid(self.old), signal.SIGSTOP)
        return Seen(t_ns, True, f"no replication for {HELD_S:g} s, {self._ahead_bytes} bytes; then SIGSTOP to server-{self.old}")

    def witness(self) -> Seen:
        pid = self.servers.pid(self.old)
        frozen = self.scene.wait(lambda: process_states(pid) == {"T"}, timeout_s=FREEZE_TIMEOUT_S)
        seen = super().witness()
        return Seen(seen.t_ns, seen.ok and frozen and self._ahead_bytes > 0, seen.detail)

    def decided(self) -> str:
        self.scene.signal(self.servers.pid(self.old), signal.SIGCONT)
        return f"SIGCONT to server-{self.old}"

    def witness_healed(self) -> Seen:
        seen = super().witness_healed()
        if self.new is not None:
            record_noticed(self.scene, self.planned, self.servers.ports[self.new], self._noticed_before)
        return seen

    def mend(self) -> str:
        self.scene.signal(self.servers.pid(self.old), signal.SIGCONT)
        self.tell(self.old, "ACL", "SETUSER", "default", *(f"+{name}" for name in COPYING))
        return f"server-{self.old} may be copied again"


#: A killed process is reaped at once; nobody waits longer than this for one that was not.
REAP_TIMEOUT_S = 3.0


class PrimaryKill(Failover):
    """inject: SIGKILL. witness: the process ended by it, and the majority names another server.

    heal: once every client was answered by that one, the old is started again, with nothing. healed: it follows the new primary,
    everybody is answered, and no client ran a script at it.
    """

    def act(self) -> Seen:
        t_ns = time.monotonic_ns()
        pid = self.servers.pid(self.old)
        self.servers.kill(self.old, self.scene.signal)
        return Seen(t_ns, True, f"SIGKILL to server-{self.old}, pid {pid}")

    def witness(self) -> Seen:
        gone = self.scene.wait(lambda: not self.servers.alive(self.old), timeout_s=REAP_TIMEOUT_S, poll_s=0.001)
        if not gone:
            self.servers.down.discard(self.old)
            return Seen(time.monotonic_ns(), False, f"server-{self.old} did not die")
        seen = super().witness()
        killed = self.servers.ending(self.old) == -signal.SIGKILL
        return Seen(seen.t_ns, seen.ok and killed, seen.detail)

    def mend(self) -> str:
        if self.servers.alive(self.old):
            return f"server-{self.old} lives: nothing to heal"
        self.servers.start_again(self.old)
        return f"server-{self.old} started again, empty"

    def witness_healed(self) -> Seen:
        seen = super().witness_healed()
        count = scripts_run(self.servers.ports[self.old])
        self.stray(count)
        return Seen(seen.t_ns, seen.ok, f"{seen.detail}; {count} scripts at the old one since it is back")


class PrimaryCut(Failover):
    """inject: the primary refuses PING (ACL), by which sentinels find out who lives, and nothing else. witness: it still
    answers as a primary, and the majority names another server.

    heal: once every client was answered by that one, it takes PING again. healed: it follows the new primary, everybody is
    answered.
    """

    def act(self) -> Seen:
        t_ns = time.monotonic_ns()
        self.tell(self.old, "ACL", "SETUSER", "default", "-ping")
        return Seen(t_ns, True, f"server-{self.old} answers its sentinels no more, and its clients as before")

    def decided(self) -> str:
        self._role = info(self.servers.ports[self.old], "replication").get("role", "")
        return f"server-{self.old} still says that it is {self._role}"

    def witness(self) -> Seen:
        self._role = ""
        seen = super().witness()
        return Seen(seen.t_ns, seen.ok and self._role == "master", seen.detail)

    def mend(self) -> str:
        self.tell(self.old, "ACL", "SETUSER", "default", "+ping")
        return f"server-{self.old} answers its sentinels again"
