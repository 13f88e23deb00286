"""`python -m bench guard`: tests whether this checkout is as fast as the commit before it, by enqueue, claim, finish and drain.

The commit before is HEAD if the working tree has changes, else HEAD~1; `--base` names another. Its files are unpacked into
`runs/bench-guard/`. Each side is measured by its own processes on the same server, alternating in blocks of some 50 ms. The
output is the speed now / before (above 1 = faster than before), with a 95 % interval over the rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.commits import NoCommit, git, unpacked
from bench.micro.drain import PREFETCH
from bench.micro.place import ROOT, Unpinnable, check_cores, client, pin_client, pinned_server, start_module, start_program
from bench.micro.rounds import ratio, ratio_interval
from engine.command_line import Parser

FOLDER = ROOT / "runs" / "bench-guard"
#: A part counts as slower when its whole interval is below this: two runs of the same commit differ by up to 3 %.
SLOWER_BELOW = 0.95
#: Exit codes: no part is slower, some part is slower, cannot be measured here.
AS_FAST, SLOWER, UNKNOWN = 0, 1, 2

#: Parts that are measured in blocks by one long-running process -> calls of a block, which take some 50 ms.
BLOCKS = {"enqueue": 200, "claim": 200, "finish": 200}
PARTS = (*BLOCKS, "drain")
ROUNDS = {"enqueue": 40, "claim": 40, "finish": 40, "drain": 5}
DRAIN_JOBS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = Parser(prog="python -m bench guard", description="Compare speed with the commit before.")
    parser.add_argument("--base", help="the commit to compare with (default: the one before this checkout)")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part alone (may be given more than once)")
    options = parser.parse_args(arguments)
    try:
        check_cores()
        base = unpacked(options.base or commit_before(), FOLDER)
    except (Unpinnable, NoCommit) as error:
        print(f"bench-guard: {error}", file=sys.stderr)
        return UNKNOWN
    pin_client()
    print(f"before: commit {base.name}", flush=True)
    ratios: dict[str, float] = {}
    exit_code = AS_FAST
    for part in options.only or PARTS:
        now, before = compare(base, part, ROUNDS[part], BLOCKS.get(part, DRAIN_JOBS))
        line, ratios[part], slower = outcome(part, now, before)
        print(line, flush=True)
        exit_code = SLOWER if slower else exit_code
    print(f"bench-guard: {' '.join(f'{part}={faster:.3f}' for part, faster in ratios.items())}", flush=True)
    return exit_code


def commit_before() -> str:
    """HEAD if the working tree has changes, else HEAD~1. Raises NoCommit outside a repository."""
    return "HEAD" if git("status", "--porcelain", "--untracked-files=no") else "HEAD~1"


def compare(base: Path, part: str, rounds: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds of each round of a part with `count` jobs, for this checkout and for the one in `base`."""
    found: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        plain = stack.enter_context(client(server))
        sides = [Side(tree, server.url, name) for tree, name in ((ROOT, "now"), (base, "before"))]
        for side in sides:
            stack.callback(side.close)
        started_s = shown_s = time.monotonic()
        # The first round fills connections and caches, and does not count.
        for number in range(-1, rounds):
            # The order is now, before, before, now, ..., so that a drift of the machine favours neither side.
            for which in (0, 1) if number % 2 else (1, 0):
                seconds = sides[which].drain(count) if part == "drain" else sides[which].block(part, count)
                if number >= 0:
                    found[which].append(seconds)
            plain.flushall()
            if time.monotonic() - shown_s >= 2:
                shown_s = time.monotonic()
                print(f"{shown_s - started_s:6.0f} s  {part}: round {max(0, number + 1)} of {rounds}", flush=True)
    return found


class Side:
    """A checkout that is measured on a queue of its own."""

    def __init__(self, tree: Path, url: str, queue: str) -> None:
        self._tree, self._url, self._queue = tree, url, queue
        self._child: subprocess.Popen[bytes] | None = None

    def block(self, part: str, count: int) -> float:
        """Seconds of a block of calls, run in the child process of this side."""
        if self._child is None:
            program = Path(__file__).with_name("guard_process.py")
            self._child = start_program(["-P", str(program), self._url, self._queue], self._tree, stdin=subprocess.PIPE)
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(f"{part} {count}\n".encode())
        self._child.stdin.flush()
        return self._answer(self._child.stdout.readline())["seconds"]

    def drain(self, count: int) -> float:
        """Fill the queue, and return the seconds of a drain by one worker process."""
        self.block("fill", count)
        order = {"url": self._url, "queue": self._queue, "jobs": count, "path": "inline", "prefetch": PREFETCH}
        child = start_module("bench.micro.drain_process", json.dumps(order), tree=self._tree)
        return self._answer(child.communicate()[0])["seconds"]

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _answer(self, line: bytes) -> dict[str, Any]:
        if not line:
            raise RuntimeError(f"bench-guard: a process of {self._tree} ended; its error is above")
        return json.loads(line)


def outcome(part: str, now: Sequence[float], before: Sequence[float]) -> tuple[str, float, bool]:
    """The line of a part, its ratio (above 1 = faster than before), and whether its whole interval is below the bound."""
    faster = ratio(before, now)
    low, high = ratio_interval(before, now)
    slower = high < SLOWER_BELOW
    return f"{part:<8} now / before {faster:.3f}  [{low:.3f}, {high:.3f}]{'  slower' if slower else ''}", faster, slower


if __name__ == "__main__":
    sys.exit(main())
