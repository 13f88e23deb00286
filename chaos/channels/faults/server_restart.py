"""The server ends, in order or not, and comes back with all that it has answered for."""

from __future__ import annotations

import random
import signal
import time

from chaos.channels.scene import ChannelScene
from chaos.faults.base import Seen
from chaos.plan import PlannedFault
from chaos.probe import address_of, refused

#: How it ends: each is drawn for some plans.
SIGNALS = (signal.SIGKILL, signal.SIGTERM)

#: A server that was told to end is gone within this.
END_TIMEOUT_S = 8.0

#: It stays away for as long as takes clients to try again, in vain.
DOWN_S = 1.5

#: Clients that lost their server try again at least every half second.
ANSWER_TIMEOUT_S = 15.0


class ServerRestart:
    """inject: SIGKILL, or SIGTERM for an orderly end. witness: the process is gone as planned, and connections are refused.

    heal: it is started again on its port, with its own files. healed: another run id, and every process is answered.
    """

    def __init__(self, scene: ChannelScene, planned: PlannedFault) -> None:
        self._scene = scene
        self._signal = random.Random(f"{planned.fault} {planned.delay_ms}").choice(SIGNALS)
        self._run_id = ""
        self._healed_ns = 0

    def inject(self) -> Seen:
        self._run_id = self._scene.servers.run_id()
        t_ns = time.monotonic_ns()
        self._scene.servers.end(self._signal, self._scene.signal)
        return Seen(t_ns, True, f"{self._signal.name} to the server of run id {self._run_id[:8]}")

    def witness(self) -> Seen:
        gone = is_gone(self._scene, self._signal)
        self._scene.wait(lambda: False, timeout_s=DOWN_S)
        silent = refused(address_of(self._scene.servers.url))
        detail = f"the server {'ended' if gone else 'did not end'}; connections {'refused' if silent else 'accepted'}"
        return Seen(time.monotonic_ns(), gone and silent, detail)

    def heal(self) -> Seen:
        start_again(self._scene)
        # Once it answers: what was sent before that was not answered by the one that ended.
        self._healed_ns = time.monotonic_ns()
        return Seen(self._healed_ns, True, "started again with its own files")

    def witness_healed(self) -> Seen:
        return seen_back(self._scene, self._run_id, self._healed_ns)


def is_gone(scene: ChannelScene, number: signal.Signals) -> bool:
    """True when the server's process has ended as the signal ends it, waited for."""
    wanted = -signal.SIGKILL if number == signal.SIGKILL else 0
    return scene.wait(lambda: scene.servers.reaped() is not None, timeout_s=END_TIMEOUT_S) and scene.servers.reaped() == wanted


def start_again(scene: ChannelScene) -> None:
    """Start the server if it has ended; one that would not end goes on."""
    if scene.servers.reaped() is None:
        scene.servers.ended = False
    else:
        scene.servers.start()


def seen_back(scene: ChannelScene, before: str, healed_ns: int, more: str = "", more_ok: bool = True) -> Seen:
    """The last stage: another process of the server, and every client was answered by it."""
    missing = scene.unanswered_since(healed_ns, ANSWER_TIMEOUT_S)
    t_ns = time.monotonic_ns()
    now = scene.servers.run_id()
    detail = f"run id {now[:8]}, before {before[:8]}; answered again within {(t_ns - healed_ns) / 1e6:.0f} ms: "
    detail += f"all but {', '.join(missing)}" if missing else "everybody"
    return Seen(t_ns, now != before and not missing and more_ok, detail + more)
