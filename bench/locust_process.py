"""What both locustfiles share: the schedule and the own server of a load, options, refusal to start, and reports to Locust."""

from __future__ import annotations

import logging
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

import gevent
from locust import User
from locust.env import Environment
from locust.exception import StopUser

from engine.testing import EmbeddedServer

REFUSED_EXIT_CODE = 2

logger = logging.getLogger(__name__)


class ScheduledLoad:
    """The load of this Locust process: a schedule that is sent, and a server of its own where none was named."""

    def __init__(self) -> None:
        self._server: EmbeddedServer | None = None
        #: What sends the schedule, from Locust's start event to its stop event.
        self._sending: Any = None

    def start(self) -> None:
        """Called by each user when it starts; the first call fixes the instant from which the schedule counts."""
        if self._sending is not None:
            self._sending.start()

    def pace(self) -> None:
        """Send what is next at its instant. Raises StopUser when the schedule has ended."""
        if self._sending is None or not self._sending.pace():
            raise StopUser

    def stop_sending(self) -> None:
        """Send nothing more."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.stop()

    def quit(self, **_: Any) -> None:
        """The Locust process exits, after the load has ended."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def serve(self) -> str:
        """Start the own server; return its URL."""
        self._server = EmbeddedServer().__enter__()
        print(f"No --host was given, so a server was started: {self._server.url}")
        return self._server.url


def share_out(environment: Environment, senders: type[User], readers: type[User], count: int) -> None:
    """Set the number of readers: so many of the users, or all if the command line names only their class."""
    if senders not in environment.user_classes:
        return
    if count > 0:
        readers.fixed_count = count
    else:
        environment.user_classes = [kind for kind in environment.user_classes if kind is not readers]


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
