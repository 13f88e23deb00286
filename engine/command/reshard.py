"""`ironclaim reshard QUEUE --to 32`: another number of shards for a queue that works on meanwhile."""

from __future__ import annotations

import argparse

from engine.command.arguments import add_json, add_server, duration_ms
from engine.command.output import print_error, show_one
from engine.queue.synchronous.queue import Queue
from engine.redis.endpoint import DEFAULT_URL
from engine.resharding import Resharding

#: Exit code where jobs are left that cannot be moved yet.
_LEFT = 1


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    reshard = commands.add_parser(
        "reshard",
        help="divide a queue into another number of shards",
        description=f"{__doc__} Interrupted, it is run again with the same number and goes on.",
    )
    reshard.add_argument("queue", help="name of the queue")
    reshard.add_argument("--to", type=int, required=True, metavar="SHARDS", help="how many shards it shall have, 2 to 256")
    reshard.add_argument(
        "--wait",
        dest="wait_ms",
        metavar="LENGTH",
        type=duration_ms,
        default=None,
        help="how long to wait for jobs that run, or wait for others, at their old shards: 90s, 10m; without it until they end",
    )
    add_server(reshard)
    add_json(reshard)
    reshard.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reshard. 0 when all jobs are in their new shards, 1 when some are left at their old ones: run it again later."""
    with Queue(options.queue, options.model, url=options.url or DEFAULT_URL, prefix=options.prefix) as queue:

        def tell(text: str) -> None:
            if not options.json:
                print(f"queue {options.queue}: {text}", flush=True)

        moved = Resharding(queue, options.to, tell=tell).run(options.wait_ms)
    if not moved.done:
        print_error(
            f"queue {options.queue}: {moved.left} jobs run, or wait for others, at their old shards; run this again later"
        )
    show_one({"queue": options.queue, "shards": options.to, "moved": moved.jobs, "left": moved.left}, as_json=options.json)
    return 0 if moved.done else _LEFT
