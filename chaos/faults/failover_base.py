"""What faults share in which another server becomes the primary: the decision, the clients that follow it, and the old primary.

The old primary comes back, or was there all the time, and no client of ours may write to it once its clients have heard of the
new one. That is counted at the server itself: scripts that it ran, as only clients of the engine run any.
"""

from __future__ import annotations

import time
from typing import Any

from chaos.catalogue import HEARD_MS
from chaos.errors import HarnessError
from chaos.faults.base import Scene, Seen
from chaos.faults.commands import PATIENCE_S, tell
from chaos.faults.noticed import record
from chaos.plan import PlannedFault
from chaos.topology.base import Replicated
from engine.testing.server import ask_server

#: By when the sentinels, or the nodes of the cluster, have decided.
DECISION_TIMEOUT_S = 30.0

#: By when everybody has followed; the judge and the report hold the time that it took against five seconds.
FOLLOW_TIMEOUT_S = 20.0

#: How long the old primary is looked at once clients must have heard.
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
        """Wait until every client has followed, and count what the old primary ran for them since they must have heard."""

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
        words = f"{count} scripts of clients ran at server-{self.old} after they must have heard of the new primary"
        record(self.scene, self.planned, "stray", seen=count == 0, detail=words)


def scripts_run(port: int) -> int:
    """How many scripts a server has run since it started; 0 when it does not answer its operator."""
    try:
        lines = ask_server(port, "INFO commandstats", PATIENCE_S).splitlines()
    except OSError:
        return 0
    told = [line for line in lines if line.startswith(tuple(f"cmdstat_{name}:" for name in SCRIPTS))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in told)
