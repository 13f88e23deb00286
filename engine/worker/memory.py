"""How much memory this process holds."""

from __future__ import annotations

import os
import resource
import sys

_STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_mb() -> float:
    """The resident memory of this process in MB; where the kernel does not report it, the maximum so far."""
    try:
        with open(_STATM) as statm:
            return int(statm.read().split()[1]) * _PAGE / 1e6
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most / 1e3
