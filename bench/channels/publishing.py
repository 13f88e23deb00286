"""One run of the publishers: the channels, their recorders, and the schedule that is sent.

Import locust before this module: it makes the sockets cooperative, so that a greenlet waiting for an answer does not block the
others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import gevent

import engine
from bench.channels.opening import Place
from bench.channels.workload import ChannelWorkload, PlannedMessage, PlannedPublish
from bench.openloop import OpenLoop
from record.history import text

#: How long a stop waits: slightly longer than the 10 s for which the driver re-sends before it reports an unknown outcome.
FINISH_TIMEOUT_S = 12.0
WARM_UP_MAX_S = 2.0
#: A subscriber that does not exist: the request only tests whether the server answers.
_NOBODY = "nobody"

#: Request type in Locust; the request name is the channel's group.
PUBLISH = "publish"

logger = logging.getLogger(__name__)

#: Called once per publish: type, name, response time in ms from the intended instant (None = never sent), failure or None.
Report = Callable[[str, str, float | None, Exception | None], None]


class NotPublished(Exception):
    """The publish got no answer before the end of the load."""


class Dropped(Exception):
    """The publish was not sent, because it was overdue."""


class Publishing:
    """Sends part `part` of `parts` of a workload, open loop, until `stop`.

    Raises FileExistsError when the history file already exists, another OSError when it cannot be written, and
    engine.EngineError for an invalid setting.
    """

    def __init__(self, workload: ChannelWorkload, place: Place, *, part: int, parts: int, report: Report) -> None:
        publishes = workload.publishes(part, parts)
        place.check()
        self._report = report
        self._groups = {planned.name: planned.group for planned in workload.channels}
        self._history = place.record("publisher")
        self._channels = {planned.name: place.open(planned, self._history)[0] for planned in workload.channels}
        self._loop = OpenLoop(publishes, send=self._send, drop=self._drop)

    def warm_up(self) -> None:
        """Connect and load the scripts before the clock runs, so that the first messages do not measure that. At most 2 s."""
        gevent.joinall([gevent.spawn(self._ask, one) for one in self._channels.values()], timeout=WARM_UP_MAX_S)

    def start(self) -> None:
        """Fix the instant from which the schedule counts; the first call decides."""
        self._loop.start()

    def pace(self) -> bool:
        """Wait for the next publish's instant and start its send. Return False when the schedule has ended."""
        return self._loop.pace()

    def stop(self) -> None:
        """Stop publishing, wait (bounded) for the answers, and close the history."""
        given_up = self._loop.finish(FINISH_TIMEOUT_S)
        if given_up:
            logger.warning("%d sends had no answer %.0f s after the end; their outcome stays open", given_up, FINISH_TIMEOUT_S)
        if self._history is not None:
            self._history.close()
        for channel in self._channels.values():
            channel.close()

    def _ask(self, channel: engine.Channel) -> None:
        """Send a request that changes nothing and is not recorded."""
        try:
            channel.are_old(_NOBODY, [_NOBODY])
        except LookupError:
            pass
        except engine.EngineError as error:
            logger.warning("starting the load although the server did not answer correctly: %s", error)

    def _send(self, planned: PlannedPublish, intended_ns: int) -> None:
        channel = self._channels[planned.channel]
        start_ns = intended_ns - round(planned.offset_ms * 1_000_000)
        messages = [(message.id, content(message, start_ns)) for message in planned.messages]
        failure: Exception | None = None
        try:
            if len(messages) == 1:
                channel.publish(*messages[0], intended_ns=intended_ns)
            else:
                channel.publish_many(messages, intended_ns=intended_ns)
        except gevent.GreenletExit:
            failure = NotPublished("no answer before the end of the load")
        except Exception as error:  # any error is a failed send and must not end the load
            failure = error
        self._report(PUBLISH, self._groups[planned.channel], (time.monotonic_ns() - intended_ns) / 1e6, failure)

    def _drop(self, planned: PlannedPublish, intended_ns: int, why: str) -> None:
        if self._history is not None:
            detail = text(f"{planned.channel} {planned.messages[0].id}: {why}")
            self._history.append([f'"kind":"drop","intended_ns":{intended_ns},"count":{len(planned.messages)},"detail":{detail}'])
        self._report(PUBLISH, self._groups[planned.channel], None, Dropped(f"not sent: {why}"))


def content(message: PlannedMessage, start_ns: int) -> dict[str, Any]:
    """The published content, with the intended instant of its first publish, from which subscribers compute the latency. That
    instant is monotonic time and so valid on one machine only."""
    return {"intended_ns": start_ns + round(message.offset_ms * 1_000_000), **message.content}
