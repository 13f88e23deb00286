"""The part of H1 about the network and about servers that stood still, judged by the calls of the processes that they hit.

The harness's witness that a fault took effect is not enough. While connections were cut, requests or replies were lost, or the
server stood still or was busy, no call of a target can have been both sent and answered; while the network was slow, no call can
have been answered at once; and after the heal every target must have been answered.
"""

from __future__ import annotations

from reports.facts import MS, Run
from reports.file_facts import CALL_SLOT_NS
from reports.windows import CALLERS, SERVERS, Window, processes_hit, windows

#: Faults under which no call can be answered: of the network, and of a server.
LOSSES = ("net-down", "net-request-lost", "net-reply-lost", "dns-change")
STALLS = ("server-pause", "script-busy")
LATENCY = "net-latency"

#: All proxies of a fault are set up within this after its inject.
IN_FORCE_MS = 200

#: A fault stays in force at least this long before its witness, or for the share HOLD_LEASES of a lease when that is less. A
#: loss of replies begins with short interruptions; the long one at the end is meant here.
HOLD_MS = {LATENCY: 2_000, **dict.fromkeys((*LOSSES, *STALLS), 2_500)}
HOLD_LEASES = 1 / 3


def doubts(run: Run) -> list[str]:
    """Targets that do not exist, that a network fault did not affect, or that were never answered again."""
    found = undeclared(run)
    for window in windows(run):
        if window.name in HOLD_MS and window.witness_ns is not None:
            found += brief(run, window, window.witness_ns) + reached(run, window, window.witness_ns) + cut_off(run, window)
    return found


def undeclared(run: Run) -> list[str]:
    """Targets of faults that are neither calling processes of the manifest nor apps that those call."""
    declared = {process.name for process in run.processes if process.role in CALLERS}.union(run.spec.get("apps", ()))
    return [
        f"fault {window.fault} hit {target}, which is no worker or producer of the manifest"
        for window in windows(run)
        for target in window.targets
        if target not in (*declared, SERVERS)
    ]


def hold_ms(run: Run, window: Window) -> int:
    """The least time in ms for which the fault stays in force before its witness."""
    return int(min(HOLD_MS[window.name], run.lease_ms * HOLD_LEASES))


def brief(run: Run, window: Window, witness_ns: int) -> list[str]:
    """A fault that was in force too briefly to have an effect."""
    lasted_ms, least_ms = (witness_ns - window.inject_ns) // MS, hold_ms(run, window)
    if lasted_ms >= least_ms:
        return []
    return [f"fault {window.fault} was in force for {lasted_ms} ms before its witness, less than {least_ms} ms"]


def reached(run: Run, window: Window, witness_ns: int) -> list[str]:
    """Targets with answered calls that were impossible while the fault was in force."""
    first_ns = max(window.inject_ns + IN_FORCE_MS * MS, witness_ns - hold_ms(run, window) * MS)
    found: list[str] = []
    for target in processes_hit(run, window):
        calls = [call for file in run.files_of(target) for call in file.calls]
        inside = [call for call in calls if first_ns <= call[0] * CALL_SLOT_NS and (call[1] + 1) * CALL_SLOT_NS <= witness_ns]
        if window.name != LATENCY and inside:
            found.append(f"fault {window.fault} did not bite: {target} was answered while it was in force")
        if window.name == LATENCY and any(sent == done for sent, done in inside):
            found.append(f"fault {window.fault} did not bite: {target} was answered within {CALL_SLOT_NS // MS} ms")
    return found


def cut_off(run: Run, window: Window) -> list[str]:
    """Targets without a call that was sent and answered between the heal and the next fault."""
    first, last = window.heal_ns // CALL_SLOT_NS, window.next_ns // CALL_SLOT_NS
    return [
        f"fault {window.fault} did not heal: {target} was not answered after it"
        for target in processes_hit(run, window)
        if not any(first <= sent and done <= last for file in run.files_of(target) for sent, done in file.calls)
    ]
