"""The options of the command `capacity`. Standard library only, like all of the command line until its arguments are right."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping

SIZES = {"": 1.0, "b": 1.0, "kb": 1024.0, "mb": 1024.0 * 1024}
DURATIONS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def quantity(units: Mapping[str, float]) -> Callable[[str], float]:
    """The type of an option that is a number with a unit, such as 2kb or 1h."""

    def parsed(text: str) -> float:
        found = _QUANTITY.fullmatch(text.strip().lower())
        if found is None or found[2] not in units:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number with one of the units {', '.join(filter(None, units))}")
        return float(found[1]) * units[found[2]]

    return parsed


def size(text: str) -> int:
    """The type of an option that is a number of bytes."""
    return round(quantity(SIZES)(text))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options. Those that are fields of Request have no value unless they are named: their defaults are declared there."""
    duration, absent = quantity(DURATIONS), argparse.SUPPRESS

    def add(option: str, **more: object) -> None:
        arguments: dict[str, object] = {"default": absent, "metavar": option.strip("-").upper().replace("-", "_"), **more}
        parser.add_argument(option, **arguments)  # pyright: ignore[reportArgumentType]

    add("--rate", dest="rate_per_s", type=float, help="jobs per second that the plan is for (default: the rate that is found)")
    add(
        "--p99-ms",
        type=float,
        help="target, from when a job is due to when its end is reported (default 5 handlers, at least 25)",
    )
    add("--payload", dest="payload_bytes", type=size, help="size of a payload (default 2kb)")
    add("--handler-ms", type=float, help="how long a handler waits (default 20)")
    add("--model", help="model of the queue (default lanes)")
    add("--topology", help="embedded, aof, replica, sentinel or cluster, without proxies (default embedded)")
    add("--backlog", dest="backlog_s", type=duration, help="how long an outage the plan survives (default 1h)")
    add("--workers", type=int, help="worker processes (default 2; the plan says how many a rate needs)")
    add("--handlers", dest="handlers_at_once", type=int, help="handlers at once in each worker (default 10)")
    add("--seed", type=int, help="draws the arrivals (default 1)")
    add("--step", dest="step_s", type=duration, help="length of a step (default 15s)")
    add("--last-step", dest="last_step_s", type=duration, help="length of the last step (default 60s)")
    add("--verify-times", type=int, help="verify so often on each side of the prediction (default 3)")
    add("--within", dest="within_s", type=duration, help="how long all of it may take (default 25m)")
    parser.add_argument("--no-scaling", action="store_true", help="do not search the limits of other numbers of workers")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="only compare the queueing simulator with steps: below, near and above what the handlers can do",
    )
    parser.add_argument("--web-port", type=int, default=0, help="show the steps live on Locust's page at this port")
