"""The flags `--log-level` and `--log-json`, and the form of the log that they ask for."""

from __future__ import annotations

import argparse
import logging

from engine.command.arguments import add, one_of
from engine.errors import logger
from engine.logs import JsonFormatter, TextFormatter, give_form, switch_on

log = logger("ironclaim.worker")

_LEVELS = ("debug", "info", "warning", "error", "critical")


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add(parser, "--log-level", kind=one_of(*_LEVELS), default="info", help=f"least level of the log: {', '.join(_LEVELS)}")
    parser.add_argument(
        "--log-json",
        action="store_true",
        help="one line of JSON for each log record, also where the module has configured logging",
    )


def begin_logging(options: argparse.Namespace) -> None:
    """Log as the flags say, before any module of the user is imported."""
    logging.basicConfig(level=options.log_level.upper())
    give_form(_formatter(options))


def resume_logging(options: argparse.Namespace) -> None:
    """Once the modules are imported: what they have configured stays, but for the form that was asked for."""
    switch_on()
    if options.log_json and not give_form(_formatter(options)):
        log.warning("--log-json: the modules have configured logging, and nothing that the worker logs goes to stderr or stdout")


def _formatter(options: argparse.Namespace) -> logging.Formatter:
    return JsonFormatter() if options.log_json else TextFormatter()
