"""The names that a phase of a run may have, for files that are read before there is a run.

The harness, which the judge does not import, names its phases after its faults: `kill` while one is in force, `recover-kill`
after it, and `kill-in-freeze` while two are. The second kill of a run that has two is `kill-2`; `kill` is also the name of all of
its kills, as it was before they had names of their own. A test holds this list to the faults that the harness has.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from reports.ranks import ALL

#: Phases without a fault, and all phases together. Two are of `python -m chaos run scale`.
QUIET = (ALL, "lead-in", "doubled", "doubled-twice", "settle", "drain", "end")

#: Faults, as phases are named after them.
FAULTS = (
    *("kill", "freeze", "cut", "oom", "clock-jump", "lease-expired", "app-kill", "subscriber-kill", "foreign-freeze"),
    *("net-latency", "net-request-lost", "net-reply-lost", "net-down", "dns-change", "clients-killed"),
    *("server-kill", "server-restart", "server-pause", "server-clock-jump", "clock-wrap", "disk-slow", "memory-full"),
    *("script-busy", "scripts-flushed", "snapshot-restore", "slot-move"),
    *("primary-kill", "primary-cut", "replica-lag", "failover-clean", "failover-lossy"),
)

RECOVERY, WITHIN = "recover-", "-in-"


#: The number of a fault that is not the first of its kind.
_NUMBER = re.compile(r"(?<=[a-z])-[2-9]$")


def common(name: str) -> str:
    """The name that the phases of all faults of a kind have in common: `recover-kill` of `recover-kill-2`."""
    return _NUMBER.sub("", name)


def known(name: str) -> bool:
    """Whether a run may have a phase of this name."""
    if name != common(name) and common(name) in QUIET:
        return False
    name = common(name)
    fault, _, around = name.removeprefix(RECOVERY).partition(WITHIN)
    return name in QUIET or (fault in FAULTS and (around in FAULTS or name.endswith(fault)))


def bound(name: str) -> str:
    """What a phase must be in place of this name, with the nearest."""
    near = get_close_matches(name, (*QUIET, *FAULTS, *(RECOVERY + fault for fault in FAULTS)), n=1)
    perhaps = f"perhaps {near[0]}; " if near else ""
    return f"{perhaps}the phase must be {', '.join(QUIET)}, a fault ({', '.join(FAULTS)}), recover-FAULT or FAULT-in-FAULT"
