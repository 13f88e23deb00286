"""When a job runs again whose worker was killed: all libraries at once, as most take a minute or more."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.peers.libraries import Library
from bench.peers.processes import STARTED, STARTED_AGAIN, Adapter, Bench, PeerFailed, Records, wait_for

#: The handler takes this long; its worker is killed after `_KILLED_AFTER_S`.
HANDLER_S = 5.0
_KILLED_AFTER_S = 1.0
_START_S = 60.0


def redelivery_s(bench: Bench, libraries: Sequence[Library], wait_s: float) -> dict[str, float | None]:
    """For each library the seconds from the SIGKILL to the second start of its job; None where that took longer than `wait_s`.

    A new worker is started right after the kill. The settings are the defaults.
    """
    bench.server.flushall()
    records = {library.name: bench.records(library, 1) for library in libraries}
    running: list[Adapter] = []
    killed_ns: dict[str, int] = {}
    try:
        for library in libraries:
            own = records[library.name]
            bench.produce(library, own, pinned=False, way="one", warm_up=0, settings=dict(library.default))
            worker = bench.start(library, own, pinned=False, role="work", settings=dict(library.default), handler_s=HANDLER_S)
            running.append(worker)
            if not wait_for(lambda own=own: own.times(STARTED)[0], _START_S, [worker]):
                raise PeerFailed(f"{library.name}: no job was started within {_START_S:.0f} s")
            time.sleep(_KILLED_AFTER_S)
            running.remove(worker)
            bench.end(worker)
            killed_ns[library.name] = time.monotonic_ns()
            running.append(bench.start(library, own, pinned=False, role="work", settings=dict(library.default), handler_s=0))
        return _wait(records, killed_ns, wait_s)
    finally:
        for worker in running:
            bench.end(worker)


def _wait(records: dict[str, Records], killed_ns: dict[str, int], wait_s: float) -> dict[str, float | None]:
    shown_s = time.monotonic()
    while True:
        found = {name: own.times(STARTED_AGAIN)[0] for name, own in records.items()}
        waiting = [name for name, at_ns in found.items() if not at_ns and time.monotonic_ns() - killed_ns[name] < wait_s * 1e9]
        if not waiting:
            return {name: (at_ns - killed_ns[name]) / 1e9 if at_ns else None for name, at_ns in found.items()}
        if time.monotonic() - shown_s >= 10:
            shown_s = time.monotonic()
            print(f"peers: redelivery: still waiting for {', '.join(waiting)}", flush=True)
        time.sleep(0.05)
