"""For how long the threads of a process have run and have waited for a core, as exactly as the kernel counts it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def schedstat_s(pid: int) -> tuple[float, float] | None:
    """Seconds on a core, and seconds with work and without a core, of all living threads together. None where the system does not
    count them, and of a process that has ended."""
    # The fields of the file: ns on a core, ns in the run queue, number of turns on a core.
    counted_ns: list[tuple[int, int]] = []
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # A thread, or the process, may end meanwhile.
        with suppress(OSError):
            ran_ns, waited_ns, _ = map(int, file.read_text().split())
            counted_ns.append((ran_ns, waited_ns))
    return (sum(ran for ran, _ in counted_ns) / 1e9, sum(waited for _, waited in counted_ns) / 1e9) if counted_ns else None
