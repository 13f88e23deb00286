"""Arguments whose defaults come from the environment, and values that people write: `90s`, `10m`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Any

from engine.errors import Malformed
from engine.models.spec import named
from engine.ops.shards import ReadShards
from engine.queue.sharding import read_record
from engine.queue.synchronous.queue import Queue
from engine.redis.endpoint import DEFAULT_URL

#: Milliseconds of each unit that a duration may be written in.
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
    try:
        return named(text)
    except Malformed as error:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be {error.bound}") from None


def priorities(text: str) -> tuple[int, int]:
    """`7-10` or `5` as the least and the greatest priority. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be one priority or two with a dash: 5, 7-10")
    return int(found[1]), int(found[2] or found[1])


def numbers(text: str) -> tuple[int, ...]:
    """`6,3,1` as its numbers. Raises ArgumentTypeError."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: it must be whole numbers with commas between: 6,3,1")
    return tuple(map(int, text.split(",")))


def switch(text: str) -> bool:
    """`on` or `off`. Raises ArgumentTypeError."""
    return one_of("on", "off")(text) == "on"


def one_of(*known: str) -> Callable[[str], str]:
    """One of these words, in any case. Raises ArgumentTypeError."""

    def word(text: str) -> str:
        if text.lower() not in known:
            raise argparse.ArgumentTypeError(f"{text!r}: it must be one of {', '.join(known)}")
        return text.lower()

    return word


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
    shown: Any = None,
) -> None:
    """Add an option that the environment may set. `shown` is the default in the help text, where another one is applied later.
    Raises Malformed, naming the variable, for a value of the wrong kind."""
    name = variable(flag)
    given = os.environ.get(name)
    if given is not None:
        try:
            default = kind(given)
        except (ValueError, argparse.ArgumentTypeError) as error:
            why = "a whole number" if kind is int else str(error)
            raise Malformed(name, given, f"what {flag} takes: {why}") from None
    shown = default if shown is None or given is not None else shown
    ending = "" if shown in (None, "", ()) else f"; default: {shown}"
    about = f"{help} [{name}{ending}]".replace("%", "%%")
    parser.add_argument(flag, type=kind, default=default, required=required and default is None, help=about)


def origin_of(flag: str, value: object, kind: Callable[[str], Any] = str) -> str:
    """Where the value of an option comes from, for messages: the name of the variable that holds it, else the flag."""
    given = os.environ.get(variable(flag))
    return flag if given is None or kind(given) != value else variable(flag)


def add_queue(parser: argparse.ArgumentParser) -> None:
    """The options of every command that looks at one queue."""
    add_server(parser)
    add(parser, "--queue", default=None, required=True, help="name of the queue")


def add_server(parser: argparse.ArgumentParser, *, url: str | None = DEFAULT_URL) -> None:
    """The options that say where queues are, and in which format."""
    add(parser, "--url", default=url, shown=DEFAULT_URL, help="server: redis://, rediss:// or unix://")
    add(parser, "--prefix", default=None, help="what all keys begin with (default: as the model has it, ic)")
    add(parser, "--model", kind=model, default=None, help="data model: bull, bananas:live, ... (default lanes)")


def opened(options: argparse.Namespace, name: str | None = None, check: Callable[[Queue], object] = id, **settings: Any) -> Queue:
    """The queue that the options name, or this one of their server, with as many shards as it has there. `check`: what is to be
    done with it is looked at before the server is asked anything. Raises Malformed."""
    given: dict[str, Any] = {"url": options.url or DEFAULT_URL, "prefix": options.prefix, **settings}
    queue = Queue(name or options.queue, options.model, **given)
    check(queue)
    if queue.model.name != "lanes":
        return queue
    text: str = queue.driver.run(queue.model.call(ReadShards()))
    if not text:
        return queue
    queue.close()
    return Queue(queue.name, options.model, shards=read_record(text).layouts[-1].shards, **given)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option for programs that read what the command prints."""
    parser.add_argument("--json", action="store_true", help="print JSON")
