"""Child processes that do not outlive their parent, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

#: From prctl.h: the signal that a process gets when its parent is gone.
PR_SET_PDEATHSIG = 1


def dying_with_parent() -> Callable[[], None] | None:
    """The `preexec_fn` of a child that the kernel kills when the thread that starts it is gone; None where there is no prctl."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork: after it nothing may block.
    prctl, parent_pid = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A parent that died before the line above sends no signal.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)

    return arm
