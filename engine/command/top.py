"""`ironclaim top`: a queue, live in a terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from engine.command.arguments import add_json, add_queue, opened
from engine.command.holding import Holding, holding, tables, told
from engine.command.output import json_text, table
from engine.errors import Malformed
from engine.ops.looks import Counts
from engine.queue.synchronous.queue import Queue

_STATES = ("waiting", "delayed", "active", "dead", "done")
#: Clear the screen and go to its top left corner.
_CLEAR = "\x1b[H\x1b[2J"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser("top", help="a queue, live", description=__doc__)
    add_queue(parser)
    parser.add_argument("--every-s", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument("--count", type=int, default=0, help="looks before it ends; 0 = until Ctrl-C")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the queue until it is interrupted."""
    if not 0.1 <= options.every_s <= 3600:
        raise Malformed("--every-s", options.every_s, "0.1 to 3600")
    live = sys.stdout.isatty() and not options.json
    with opened(options) as queue:
        for number, (look, held) in enumerate(_looks(queue, options.every_s), start=1):
            if options.json:
                print(json_text(look), flush=True)
            else:
                print((_CLEAR if live else "") + _screen(options.queue, look, held), flush=True)
            if number == options.count:
                break
    return 0


def _looks(queue: Queue, every_s: float) -> Iterator[tuple[dict[str, Any], Holding]]:
    """The present numbers with the rates since the previous ones, and what holds jobs back."""
    before: Counts | None = None
    while True:
        counts = queue.counts()
        look: dict[str, Any] = {"srv_us": counts.srv_us} | {state: getattr(counts, state) for state in _STATES}
        passed_s = (counts.srv_us - before.srv_us) / 1e6 if before else 0.0
        for name in ("finished", "buried"):
            total = getattr(counts, name)
            look[name] = total
            look[f"{name}_per_s"] = round((total - getattr(before, name)) / passed_s, 1) if before and passed_s > 0 else None
        before, held = counts, holding(queue)
        yield look | told(held), held
        time.sleep(every_s)


def _screen(name: str, look: dict[str, Any], held: Holding) -> str:
    clock = time.strftime("%H:%M:%S", time.gmtime(look["srv_us"] / 1e6))
    states = table([{state: look[state] for state in _STATES} | {"oldest s": held.oldest_s, "workers": look["workers"]}])
    rates = table([{"": what, "total": look[what], "per s": look[f"{what}_per_s"]} for what in ("finished", "buried")])
    more = [table(rows) for rows in tables(held)]
    return "\n\n".join([f"{name}  {clock} UTC by the server", states, rates, *more])
