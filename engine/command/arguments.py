"""Arguments whose defaults come from the environment, and values that people write: `90s`, `10m`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Any

from engine import models
from engine.errors import Malformed

#: Milliseconds of each unit that a duration may be written in.
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULT_URL = "redis://127.0.0.1:6379"


def duration_ms(text: str) -> int:
    """`1500ms`, `90s`, `10m`, `2h`, `7d` in milliseconds. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,15})(ms|s|m|h|d)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be a number with a unit: 1500ms, 90s, 10m, 2h, 7d")
    return int(found[1]) * UNITS_MS[found[2]]


def words(text: str) -> tuple[str, ...]:
    """`gpu,eu` as its words."""
    return tuple(word for word in text.split(",") if word)


def model(text: str) -> Any:
    """`bull`, or `bananas:live` with a layout, as one of engine.models. Raises ArgumentTypeError."""
    name, _, layout = text.partition(":")
    specs = (models.Lanes, models.Bridge, models.Bananas, models.Bull, models.Mosquito)
    kinds: dict[str, Any] = {spec.__name__.lower(): spec for spec in specs}
    try:
        return kinds[name](**({"layout": layout} if layout else {}))
    except (KeyError, TypeError, Malformed):
        raise argparse.ArgumentTypeError(
            f"{text!r}: it must be one of {', '.join(kinds)}, with a layout where it has several"
        ) from None


def priorities(text: str) -> tuple[int, int]:
    """`7-10` or `5` as the least and the greatest priority. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be one priority or two with a dash: 5, 7-10")
    return int(found[1]), int(found[2] or found[1])


def variable(flag: str) -> str:
    """The environment variable of an option: `IRONCLAIM_LEASE_MS` for `--lease-ms`."""
    return "IRONCLAIM_" + flag.removeprefix("--").upper().replace("-", "_")


def add(
    parser: argparse.ArgumentParser,
    flag: str,
    *,
    default: Any,
    help: str,
    kind: Callable[[str], Any] = str,
    required: bool = False,
) -> None:
    """Add an option that the environment may set. Raises Malformed, naming the variable, for a value of the wrong kind."""
    name = variable(flag)
    given = os.environ.get(name)
    if given is not None:
        try:
            default = kind(given)
        except (ValueError, argparse.ArgumentTypeError) as error:
            why = "a whole number" if kind is int else str(error)
            raise Malformed(name, given, f"what {flag} takes: {why}") from None
    shown = "" if default in (None, "") else f"; default: {default}"
    parser.add_argument(
        flag, type=kind, default=default, required=required and default is None, help=f"{help} [{name}{shown}]".replace("%", "%%")
    )


def add_queue(parser: argparse.ArgumentParser) -> None:
    """The options of every command that looks at one queue."""
    add_server(parser)
    add(parser, "--queue", default=None, required=True, help="name of the queue")


def add_server(parser: argparse.ArgumentParser) -> None:
    """The option that names the server."""
    add(parser, "--url", default=DEFAULT_URL, help="server: redis://, rediss:// or unix://")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option for programs that read what the command prints."""
    parser.add_argument("--json", action="store_true", help="print JSON")
