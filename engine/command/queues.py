"""`ironclaim queues` and `ironclaim workers`: the queues of a server, what holds their jobs back, and who works for one."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from engine.command.arguments import add_json, add_queue, add_server, opened
from engine.command.holding import holding, summary, told, why_kept_back
from engine.command.output import instant, show
from engine.queue.synchronous.queue import queues
from engine.queue.workers import WorkerInfo


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add both commands."""
    listing = commands.add_parser("queues", help="the queues of a server: jobs by state, and what holds them back")
    add_server(listing)
    add_json(listing)
    listing.set_defaults(run=_queues)
    workers = commands.add_parser("workers", help="the workers of a queue, and what each has in hand")
    add_queue(workers)
    add_json(workers)
    workers.set_defaults(run=_workers)


def _queues(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for found in queues(options.url, model=options.model, prefix=options.prefix):
        with opened(options, found.name) as queue:
            counts, held = asdict(queue.counts()), holding(queue)
        del counts["srv_us"]
        used = instant(found.used_ms)
        if options.json:
            rows.append({"queue": found.name, **counts, "used": used, **told(held)})
            continue
        del counts["cursor"], counts["handing"]
        more = {"oldest s": held.oldest_s, "workers": len(held.workers), "used": used, "held back": summary(held)}
        rows.append({"queue": found.name, **counts, **more})
    show(rows, as_json=options.json, nothing="no queues")
    return 0


def _workers(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        found = queue.workers.list()
    show([_row(worker, options.json) for worker in found], as_json=options.json, nothing="no workers")
    return 0


def _row(worker: WorkerInfo, whole: bool) -> dict[str, Any]:
    """A row of the output: all fields for programs, the most important ones for people."""
    row = {
        "worker": worker.name or worker.incarnation,
        "alive": worker.alive,
        "host": worker.host,
        "pid": worker.pid,
        "in hand": worker.in_hand,
        "concurrency": worker.concurrency,
        "handlers": ", ".join(worker.handlers),
        "started": instant(worker.started_ms),
        "beat age s": round(worker.beat_age_ms / 1000, 1),
        "claims nothing": why_kept_back(worker) or worker.unreadable or None,
    }
    return {**asdict(worker), "attributes": dict(worker.attributes)} if whole else row
