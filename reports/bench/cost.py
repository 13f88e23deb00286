"""What judging a run costs: wall and processor time of all processes that take part, and their memory at its peak."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from reports.cluster import dying_with_parent
from reports.errors import JudgeError

ROOT = Path(__file__).parents[2]

#: How often memory and processor time are read.
LOOK_S = 0.2

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: A progress line about turning the history into tables; how long that took, if the line says it.
CONVERTING = re.compile(r"judge: convert\w*\b.*?(?:(\d+(?:\.\d+)?) ?s\b)?$")


@dataclass(frozen=True)
class Cost:
    """Of one judgement. `convert_s`: of the seconds those for the conversion, None when the judge did not convert. `code`: exit
    code."""

    seconds: float
    cpu_s: float
    peak_mb: float
    convert_s: float | None
    code: int

    def __str__(self) -> str:
        return f"seconds={self.seconds:.1f} cpu_s={self.cpu_s:.1f} peak_mb={self.peak_mb:.0f}"

    @property
    def apart(self) -> str:
        """The seconds of the conversion, where there was one, for the end of a line."""
        return "" if self.convert_s is None else f" convert_s={self.convert_s:.1f}"


@dataclass
class Usage:
    """Memory and processor time of the descendants of this process, at their greatest."""

    peak_bytes: int = 0
    #: Process -> processor seconds so far.
    cpu_s: dict[int, float] = field(default_factory=dict)
    #: The judge and its descendants.
    own: set[int] = field(default_factory=set)

    def look(self, judge_pid: int = 0) -> None:
        """Take a sample."""
        total = 0
        self.own.update([judge_pid, *descendants(judge_pid)] if judge_pid else ())
        for pid in descendants(os.getpid()):
            with suppress(OSError, ValueError, IndexError):
                total += memory_bytes(pid)
                self.cpu_s[pid] = max(self.cpu_s.get(pid, 0.0), used_s(pid))
        self.peak_bytes = max(self.peak_bytes, total)


def judged(run: Path, master: str) -> Cost:
    """Judge a run in a fresh process. Processes that this one has started before, such as those of a cluster, count as well.

    Raises JudgeError when the judge gives no verdict.
    """
    before, usage = Usage(), Usage()
    before.look()
    began_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "reports", "judge", str(run), "--master", master],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=dying_with_parent(),
    )
    assert process.stderr
    progress: list[tuple[float, str]] = []
    reader = threading.Thread(target=read, args=(process.stderr, progress))
    reader.start()
    try:
        while not (waited := os.wait4(process.pid, os.WNOHANG))[0]:
            usage.look(process.pid)
            time.sleep(LOOK_S)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    ended_s = time.monotonic()
    process.returncode = os.waitstatus_to_exitcode(waited[1])
    reader.join()
    if process.returncode not in (0, 1, 2, 3):
        raise JudgeError(f"the judge of {run.name} ended with {process.returncode}: {progress[-1][1] if progress else 'no word'}")
    # Waited-for children are in the usage of their parent: the JVM in that of the judge. Who is not was only sampled.
    own_s = max(waited[2].ru_utime + waited[2].ru_stime, sum(usage.cpu_s.get(pid, 0.0) for pid in usage.own))
    others_s = sum(used - before.cpu_s.get(pid, 0.0) for pid, used in usage.cpu_s.items() if pid not in usage.own)
    convert_s = conversion_s([*progress, (ended_s, "")])
    return Cost(ended_s - began_s, own_s + others_s, usage.peak_bytes / 1e6, convert_s, process.returncode)


def read(stream: IO[bytes], lines: list[tuple[float, str]]) -> None:
    """Read the lines of a stream to its end, each with the instant of its coming."""
    lines.extend((time.monotonic(), line.decode(errors="replace").rstrip()) for line in stream)


def conversion_s(lines: list[tuple[float, str]]) -> float | None:
    """How long the judge converted: by its own account, or else from the line about it to the next; None without such a line."""
    told, lasted = list[float](), list[float]()
    for (at_s, line), (next_s, _) in itertools.pairwise(lines):
        if match := CONVERTING.match(line):
            told += [float(match[1])] if match[1] else []
            lasted.append(next_s - at_s)
    return sum(told or lasted) if lasted else None


def descendants(root: int) -> list[int]:
    """The processes that a process has started, and those that they have. Their order has no meaning."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                children.setdefault(int(fields(int(entry.name))[1]), []).append(int(entry.name))
    found, left = list[int](), [root]
    while left:
        some = children.get(left.pop(), [])
        found += some
        left += some
    return found


def fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold blanks: the state is the first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def used_s(pid: int) -> float:
    """Processor seconds that a process has used, without its children."""
    stat = fields(pid)
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_S


def memory_bytes(pid: int) -> int:
    """Resident memory of a process; pages that it shares with others count in part."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
