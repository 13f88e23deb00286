"""A small sampling profiler: the share of a process's CPU time in each line and function, over all of its threads.

A timer on the process's CPU time signals the running thread, and `faulthandler` writes that thread's stack, in C and without
the interpreter lock. So no sample is delayed to a later line, which would bias the result. The kernel's tick bounds the rate
(250 samples per CPU second on most machines; far fewer beside other busy processes, because a tick that finds another process
running gives no sample). C code counts for the line that called it.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from collections import Counter
from pathlib import Path

_EVERY_S = 0.001
#: A function in nearly every sample only calls the others, so it is left out.
_ALWAYS = 0.99
_HEAD = "Stack (most recent call first):"
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


class Sampler:
    """Use as `with Sampler() as sampler:`, then call `lines`. Only one at a time in a process."""

    def __enter__(self) -> Sampler:
        self._text: str | None = None
        self._output = tempfile.TemporaryFile("w+")
        faulthandler.register(signal.SIGPROF, file=self._output, all_threads=False)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        faulthandler.unregister(signal.SIGPROF)
        self._text = self._written()
        self._output.close()

    def lines(self, most: int = 15) -> list[str]:
        """Shares of the samples until now: of single lines, and of functions including what they call."""
        return tell(self._written() if self._text is None else self._text, most)

    def _written(self) -> str:
        fd = self._output.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode()


def tell(text: str, most: int) -> list[str]:
    """The sampled stacks summed up as readable lines."""
    own: Counter[str] = Counter()
    under: Counter[str] = Counter()
    stacks = text.split(_HEAD)[1:]
    for stack in stacks:
        frames = [match.groups() for line in stack.splitlines() if (match := _FRAME.match(line))]
        if frames:
            path, line, name = frames[0]
            own[f"{_short(path)}:{line} {name}"] += 1
        under.update({f"{_short(path)} {name}" for path, _, name in frames})
    total = len(stacks) or 1
    found = [f"{len(stacks)} samples"]
    for title, counter, least_hidden in (("the line itself", own, 2.0), ("the function and what it calls", under, _ALWAYS)):
        shares = sorted((-count / total, place) for place, count in counter.items() if count / total < least_hidden)
        found += [f"  {title}", *(f"    {-share:6.1%}  {place}" for share, place in shares[:most])]
    return found


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])
