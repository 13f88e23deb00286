"""Functions shared by both locustfiles: options, refusal to start, and reports to Locust."""

from __future__ import annotations

import logging
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

import gevent
from locust.env import Environment

REFUSED_EXIT_CODE = 2

logger = logging.getLogger(__name__)


def options_of(environment: Environment) -> Namespace:
    """The options from the command line or the page. Raises RuntimeError when Locust was not started from its command line."""
    options = environment.parsed_options
    if options is None:
        raise RuntimeError("this locustfile needs Locust's command line")
    return options


def refuse(environment: Environment, error: Exception) -> None:
    """Log why the load cannot start, and stop it; when headless, also end the process."""
    logger.error("the load was not started: %s", error)
    runner: Any = environment.runner
    if options_of(environment).headless:
        environment.process_exit_code = REFUSED_EXIT_CODE
        end = runner.quit
    else:
        end = runner.stop
    # In another greenlet, because stopping kills the one that starts the users.
    gevent.spawn(end)


def id_prefix(options: Namespace, stamp: str) -> str:
    """The prefix of ids. With the page the start time is added, because the same seed may be started repeatedly and ids would
    be duplicates. `stamp`: a format of strftime."""
    prefix = options.id_prefix or f"b{options.seed}"
    return prefix if options.headless else f"{prefix}-{datetime.now(UTC).strftime(stamp)}"


def fire(environment: Environment, kind: str, name: str, response_ms: float | None, failure: Exception | None) -> None:
    """Report a request to Locust."""
    environment.events.request.fire(
        request_type=kind, name=name, response_time=response_ms, response_length=0, exception=failure, context={}
    )
