"""What a run in a child process may change of its process, and the next run there must not see."""

from __future__ import annotations

import locale
import os
import signal
import warnings
from contextlib import suppress
from typing import Any

#: Those that handlers set; the others are not worth their time at each run.
_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2),
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ProcessState:
    """Current directory, umask, signals (mask, handlers, alarms), locale and warnings filters as they are now. For the main
    thread of a child process."""

    def __init__(self) -> None:
        self._folder: str | None = None
        with suppress(OSError):
            # OSError: the directory is gone.
            self._folder = os.getcwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._timers = [timer for timer in _TIMERS if signal.getitimer(timer) == (0.0, 0.0)]
        self._locale = locale.setlocale(locale.LC_ALL)
        self._filters: Any = warnings.filters
        self._warned = list(warnings.filters)

    def restore(self) -> None:
        """Put it back, as far as it can be; as often as it is called."""
        for timer in self._timers:
            signal.setitimer(timer, 0)
        self._restore_signals()
        if self._folder is not None:
            with suppress(OSError):
                os.chdir(self._folder)
        os.umask(self._umask)
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        if warnings.filters is not self._filters or warnings.filters != self._warned:
            warnings.filters = self._filters
            self._filters[:] = self._warned
            with warnings.catch_warnings():
                # It forgets what it has decided by other filters.
                pass

    def _restore_signals(self) -> None:
        for number in signal.sigpending() - self._mask:
            # What the run has blocked would else end this process as soon as it is let in.
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, self._handlers.get(number) or signal.SIG_DFL)
        for number, handler in self._handlers.items():
            # None: it was not set by Python, which cannot put it back.
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
