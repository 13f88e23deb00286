"""`ironclaim serve`: the HTTP interface: a job API, DSPS's channel API and a page for operators."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.command.arguments import add, words
from engine.command.output import print_error
from engine.command.worker import add_logging, begin_logging
from engine.errors import EngineError, Malformed, logger
from engine.queue.metrics import Scaling
from engine.redis.endpoint import DEFAULT_URL

if TYPE_CHECKING:
    from engine.http.settings import Token

log = logger("ironclaim.http")

#: New objects, and collections of younger ones, after which the garbage of the process is collected.
_COLLECT_AFTER = (100_000, 50, 100)

_LINE = (
    "lines of a name, a role (read, operate, admin), a secret and, where it is for some queues "
    "alone, their names with commas"
)


#: What `ironclaim_wanted_workers` aims at, which has the defaults of Scaling.
SCALING: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("--workers-min", int, "ironclaim_wanted_workers: never fewer"),
    ("--workers-max", int, "ironclaim_wanted_workers: never more"),
    ("--target-utilisation", float, "ironclaim_wanted_workers: how busy workers may be, from 0.01 to 1"),
    ("--spare-workers", int, "ironclaim_wanted_workers: how many more than the load needs"),
    ("--drain-ms", int, "ironclaim_wanted_workers: in which time a backlog is to be gone"),
    (
        "--service-ms",
        float,
        "ironclaim_wanted_workers: how long a job takes a handler, until workers have told it; 0: not known",
    ),
    ("--concurrency", int, "ironclaim_wanted_workers: handlers of a worker, while none is alive"),
)


class ExtraMissing(EngineError):
    """The packages that the HTTP interface needs are not installed: the extra http brings them."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    serve = commands.add_parser(
        "serve", help="the HTTP interface: a job API, channels and a page for operators", description=__doc__
    )
    add(serve, "--url", default=DEFAULT_URL, help="server: redis://, rediss:// or unix://")
    add(serve, "--prefix", default=None, help="what all keys begin with (default: as the model has it, ic)")
    add(serve, "--model", default="lanes", help="data model of the queues: lanes, bull, bananas:live, ...")
    add(serve, "--host", default="127.0.0.1", help="address to listen on; others than loopback need --tokens")
    add(serve, "--port", kind=int, default=8080, help="port to listen on; 0: any free one")
    add(
        serve,
        "--allowed-hosts",
        kind=words,
        default=("127.0.0.1", "localhost", "[::1]"),
        help="names that a Host header may have",
    )
    add(serve, "--tokens", kind=Path, default=None, help=f"file of {_LINE}")
    add(serve, "--body-max-bytes", kind=int, default=1_048_576, help="most bytes of a request's body")
    add(
        serve,
        "--poll-max-ms",
        kind=int,
        default=60_000,
        help="longest time that a request may wait for something",
    )
    add(
        serve,
        "--channels",
        kind=Path,
        default=None,
        help="serve DSPS channels, as this file of TOML or JSON says",
    )
    add(serve, "--runs", kind=Path, default=None, help="folder of drills whose reports the page lists")
    for flag, kind, about in SCALING:
        add(serve, flag, kind=kind, default=getattr(Scaling(), attribute(flag)), help=about)
    serve.add_argument(
        "--allow-changes",
        action="store_true",
        help="let callers change things; without it everything is read-only",
    )
    serve.add_argument(
        "--show-payloads", action="store_true", help="show payloads and results of jobs to whoever may read"
    )
    add_logging(serve)
    serve.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until it is stopped."""
    begin_logging(options)
    try:
        from engine.http.channels.settings import read_channels
        from engine.http.serving import check_port, server
        from engine.http.settings import HttpSettings
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            f"serve: {error.name} is not installed; the extra http of ironclaim brings it"
        ) from None
    settings = HttpSettings(
        url=options.url,
        model=options.model,
        prefix=options.prefix,
        allow_changes=options.allow_changes,
        show_payloads=options.show_payloads,
        tokens=() if options.tokens is None else read_tokens(options.tokens),
        allowed_hosts=options.allowed_hosts,
        body_max_bytes=options.body_max_bytes,
        poll_max_ms=options.poll_max_ms,
        channels=None if options.channels is None else read_channels(options.channels),
        runs=options.runs,
        scaling=Scaling(**{attribute(flag): getattr(options, attribute(flag)) for flag, _, _ in SCALING}),
    )
    made = server(settings, host=options.host, port=options.port)
    check_port(options.host, options.port)
    # What is loaded by now stays: a collection that went through it, and often, would hold up all who wait
    # for an answer.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    made.run()
    if not made.started:
        print_error(f"serve: {options.host}:{options.port} cannot be listened on")
        return 2
    return 0


def attribute(flag: str) -> str:
    """The name of an option in the parsed ones, and in Scaling."""
    return flag.removeprefix("--").replace("-", "_")


def read_tokens(file: Path) -> tuple[Token, ...]:
    """The tokens in a file. Raises Malformed, which names the line but shows nothing of it, and OSError."""
    from engine.http.settings import Token

    found: list[Token] = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) not in (3, 4):
            raise Malformed("--tokens", f"line {number} of {file}", _LINE)
        name, role, secret, *queues = parts
        bound_to = words("".join(queues))
        if queues and not bound_to:
            # Without names it would be for all queues.
            raise Malformed("--tokens", f"line {number} of {file}", _LINE)
        found.append(Token(name=name, role=cast("Any", role), secret=secret, queues=bound_to))
    return tuple(found)
