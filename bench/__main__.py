"""`python -m bench NAME`: the benchmarks, each a program with options of its own (`NAME --help`)."""

from __future__ import annotations

import sys
from importlib import import_module

from engine.errors import nearest

#: What is measured -> its module, and what it tells.
PROGRAMS = {
    "engine": ("bench.micro.command", "the engine next to its floor, as ratios (12 minutes, --quick: 2)"),
    "guard": ("bench.micro.guard", "enqueue, claim, finish and drain beside the commit before, as ratios (2 minutes)"),
    "http": ("bench.micro.http_face", "the HTTP face: wake-ups of many who wait, memory, enqueues (7 minutes)"),
    "scale": ("bench.micro.scale", "each script while a queue grows to ten million jobs (8 minutes, --quick: 2)"),
    "peers": ("bench.peers.__main__", "other job queues beside this one, in one table (25 minutes)"),
}
WRONG, INTERRUPTED = 2, 130


def usage() -> str:
    """The list of programs."""
    width = max(map(len, PROGRAMS)) + 2
    lines = [f"  {name:{width}}{does}" for name, (_, does) in PROGRAMS.items()]
    return "\n".join(["usage: python -m bench NAME [options]", "", *lines, "", "NAME --help tells its options."])


def main(words: list[str]) -> int:
    """Run the program that is named; its exit code, 2 for a name that there is not, 130 after Ctrl-C."""
    if words[:1] in (["--help"], ["-h"]):
        print(usage())
        return 0
    if not words or words[0] not in PROGRAMS:
        said = f"name is {words[0]!r}: it" if words else "a name is missing: it"
        perhaps = nearest(words[0], PROGRAMS) if words else ""
        print(f"python -m bench: {said} must be one of {', '.join(PROGRAMS)}{perhaps}", file=sys.stderr)
        return WRONG
    try:
        return import_module(PROGRAMS[words[0]][0]).main(words[1:])
    except KeyboardInterrupt:
        print(f"bench {words[0]}: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
