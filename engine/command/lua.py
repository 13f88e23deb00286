"""`ironclaim lua`: a script as the server runs it, with the functions of modules that it uses, for readers and `redis-cli`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from engine.command.arguments import model
from engine.errors import Malformed
from engine.models.dsps import DspsModel
from engine.redis.scripts import Script


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser("lua", help="print a script as the server runs it", description=__doc__)
    parser.add_argument("script", nargs="?", help="name of the script; without one their names are listed")
    parser.add_argument("--model", type=scripts_of, default="lanes", help="lanes, bull, bananas:live, dsps, ... (default lanes)")
    parser.set_defaults(run=run)


def scripts_of(text: str) -> Mapping[str, Script]:
    """All scripts of a model by name. Raises ArgumentTypeError."""
    if text == DspsModel.name:
        return DspsModel("channel").scripts
    spec = model(text)
    return spec.bind("queue", spec.prefix, None).scripts


def run(options: argparse.Namespace) -> int:
    """Print it."""
    scripts: Mapping[str, Script] = options.model
    if options.script is None:
        print("\n".join(sorted(scripts)))
        return 0
    if options.script not in scripts:
        raise Malformed("script", options.script, f"one of {', '.join(sorted(scripts))}")
    print(scripts[options.script].text, end="")
    return 0
