"""`ironclaim cron`: the schedules of a queue."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from engine.command.arguments import add_json, add_queue, opened
from engine.command.output import instant, print_error, show, show_one
from engine.queue.scheduling import Schedule
from engine.queue.synchronous.parts import Schedules

#: Exit code where there is nothing to do it to.
_NOT_FOUND = 1


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    cron = commands.add_parser("cron", help="the schedules of a queue", description=__doc__)
    actions = cron.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all of them, by next tick")
    listing.set_defaults(run=_list)
    add_queue(listing)
    add_json(listing)
    for name, help, act in (
        ("enable", "let it tick again", Schedules.enable),
        ("disable", "let it not tick until it is enabled", Schedules.disable),
        ("remove", "forget it; jobs that it has made stay", Schedules.remove),
        ("run", "enqueue one of its jobs now, beside its ticks", _run_now),
    ):
        action = actions.add_parser(name, help=help)
        action.add_argument("schedule", help="name of the schedule")
        action.set_defaults(run=_acting(act, name))
        add_queue(action)
        add_json(action)


def _list(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        rows = [_row(schedule) for schedule in queue.schedules.list()]
    show(rows, as_json=options.json, nothing="no schedules")
    return 0


def _acting(act: Callable[[Schedules, str], bool], name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        with opened(options) as queue:
            done = act(queue.schedules, options.schedule)
        if not done:
            print_error(f"no schedule {options.schedule} in queue {options.queue}")
            return _NOT_FOUND
        show_one({"schedule": options.schedule, "queue": options.queue, "done": name}, as_json=options.json)
        return 0

    return run


def _run_now(schedules: Schedules, name: str) -> bool:
    return schedules.run_now(name) is not None


def _row(schedule: Schedule) -> dict[str, Any]:
    timing = schedule.timing
    ticks = f"{timing.cron} {timing.zone}" if timing.cron else f"every {timing.every_ms} ms" if timing.every_ms else ""
    return {
        "schedule": schedule.name,
        "job": schedule.job_name,
        "ticks": ticks or f"every {timing.months} months {timing.zone}",
        "enabled": schedule.enabled,
        "next": instant(schedule.next_ms),
        "last": instant(schedule.last_ms),
        "count": schedule.count,
        "missed": schedule.missed,
        "skipped": schedule.skipped,
        "error": schedule.error or None,
    }
