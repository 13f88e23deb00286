"""Child processes that cannot outlive their parent, not even when the parent is killed by SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

PR_SET_PDEATHSIG = 1


def start_guarded(argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
    """Start a child process that the kernel kills (SIGKILL) as soon as its parent is gone; for the rest it is `Popen`.

    The child gets a session of its own, so a Ctrl-C at the terminal reaches the parent only, and the parent ends its children
    in the order that it needs. Raises what `Popen` raises (OSError when the program cannot be run).

    Call it from a thread that lives as long as the child should, best the main thread: for the kernel the parent is the
    **thread** that forked, and the child dies when that thread ends. Where there is no prctl (not Linux) the child is a
    plain child: it survives a parent that was killed.
    """
    popen_kwargs.setdefault("start_new_session", True)
    return subprocess.Popen[bytes](argv, preexec_fn=_die_with_parent(os.getpid()), **popen_kwargs)


def _die_with_parent(parent_pid: int) -> Callable[[], None] | None:
    """What the child runs between fork and exec. The library is loaded here, before the fork: after it nothing may block."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A parent that died before the line above took effect sends no signal; its child has another parent by now.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)

    return arm
