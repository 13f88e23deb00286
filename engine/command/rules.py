"""`ironclaim limits` and `ironclaim history`: how much of a queue runs at once, what is kept of its ends."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from engine.command.arguments import add_json, add_queue, duration_ms, never_was, opened, words
from engine.command.output import instant, show, show_one, tell
from engine.ops.looks import LimitInfo
from engine.queue import admin, history
from engine.queue.synchronous.queue import Queue

#: Exit code where there is nothing to do it to.
_NOT_DONE = 1


def add_limits(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command for limits."""
    parser = commands.add_parser("limits", help="how many jobs of a name or key may be in hand, or claimed")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="each with how far it is used up")
    listing.set_defaults(run=_list_limits)
    setting = actions.add_parser("set", help="limit a name or a key, in place of the limit that it has")
    setting.set_defaults(run=_set_limit)
    clearing = actions.add_parser("clear", help="remove the limit of a name or a key")
    clearing.set_defaults(run=_clear_limit)
    for action in (setting, clearing):
        action.add_argument("name", nargs="?", help="name of the jobs; without one say --key")
        action.add_argument("--key", help="all jobs with this key; '*': each key without a limit of its own")
    setting.add_argument("--concurrency", type=int, default=0, metavar="N", help="most jobs in hand at once")
    setting.add_argument("--rate", type=int, default=0, metavar="N", help="most claims in --per")
    setting.add_argument(
        "--per", dest="per_ms", type=duration_ms, default=0, metavar="LENGTH", help="of --rate: 1s, 10m"
    )
    setting.add_argument(
        "--window", choices=("sliding", "fixed"), default="sliding", help="of --rate (sliding)"
    )
    for action in (listing, setting, clearing):
        add_queue(action)
        add_json(action)


def _list_limits(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        found = queue.limits()
        if not found and never_was(queue, options):
            return _NOT_DONE
    rows = [asdict(limit) | _limit_row(limit) if options.json else _limit_row(limit) for limit in found]
    show(rows, as_json=options.json, nothing="no limits")
    return 0


def _limit_row(limit: LimitInfo) -> dict[str, Any]:
    return {
        "limit of": limit.target,
        "in hand": limit.in_hand,
        "concurrency": limit.concurrency or None,
        "used": limit.used,
        "rate": limit.rate or None,
        "per ms": limit.per_ms or None,
        "full": limit.full,
        "free again": instant(limit.free_ms),
    }


def _set_limit(options: argparse.Namespace) -> int:
    given: dict[str, Any] = {
        "key": options.key,
        "concurrency": options.concurrency,
        "rate": options.rate,
        "per_ms": options.per_ms,
        "window": options.window,
    }

    def check(queue: Queue) -> None:
        admin.set_limit(queue.model.names, options.name, **given)

    with opened(options, check=check) as queue:
        queue.set_limit(options.name, **given)
    more = {name: value for name, value in given.items() if name != "key" and value}
    tell("limited", _target(options), options, **more)
    return 0


def _clear_limit(options: argparse.Namespace) -> int:
    def check(queue: Queue) -> None:
        admin.remove_limit(queue.model.names, options.name, options.key)

    with opened(options, check=check) as queue:
        if never_was(queue, options):
            return _NOT_DONE
        queue.remove_limit(options.name, key=options.key)
    tell("cleared", _target(options), options)
    return 0


def _target(options: argparse.Namespace) -> str:
    return f"key {options.key}" if options.key is not None else f"name {options.name}"


# -- `ironclaim history`: whether it is kept how jobs have ended. `ironclaim jobs history` reads it.


def add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command for the history."""
    parser = commands.add_parser("history", help="begin, end or look at what is kept of how jobs have ended")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    begin = actions.add_parser("on", help="keep how jobs end from now on; `jobs history` reads it")
    begin.add_argument("--keep", type=int, default=10_000, metavar="N", help="how many ends (10000)")
    begin.add_argument("--age", dest="age_ms", type=duration_ms, metavar="LENGTH", help="for how long: 7d")
    begin.add_argument("--names", type=words, default=(), metavar="A,B,...", help="of these names alone")
    begin.add_argument(
        "--payload-bytes", type=int, default=0, metavar="N", help="also payloads of at most so many bytes"
    )
    begin.set_defaults(run=_begin)
    end = actions.add_parser("off", help="keep no more ends, and delete those that were kept")
    end.set_defaults(run=_end)
    look = actions.add_parser("show", help="what is kept")
    look.set_defaults(run=_look)
    for action in (begin, end, look):
        add_queue(action)
        add_json(action)


def _begin(options: argparse.Namespace) -> int:
    more: dict[str, Any] = {
        "age_ms": options.age_ms,
        "names": options.names or None,
        "payload_bytes": options.payload_bytes,
    }

    def check(queue: Queue) -> None:
        history.set_history(queue.model.names, options.keep, *more.values())

    with opened(options, check=check) as queue:
        queue.history.on(options.keep, **more)
    tell("history", "on", options, keep=options.keep, **more)
    return 0


def _end(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        if never_was(queue, options):
            return _NOT_DONE
        queue.history.off()
    tell("history", "off", options)
    return 0


def _look(options: argparse.Namespace) -> int:
    with opened(options) as queue:
        rule = queue.history.rule()
        if rule is None and never_was(queue, options):
            return _NOT_DONE
    row: dict[str, Any] = {"history": "off" if rule is None else "on", "queue": options.queue}
    if rule is not None:
        row |= {"keep": rule.keep, "age_ms": rule.age_ms or None, "names": rule.names or None}
        row["payload_bytes"] = rule.payload_bytes
    show_one(row, as_json=options.json)
    return 0
