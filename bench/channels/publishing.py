"""One start of the publishers: the channels, their recorders, and the schedule on its way out.

Import locust before this module: it makes the sockets cooperative, and a greenlet that waits for an answer must not stop the
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
from engine.history import text

#: The driver re-sends for up to 10 s before it calls an outcome unknown; a stop waits a little longer than that.
FINISH_TIMEOUT_S = 12.0
WARM_UP_MAX_S = 2.0
#: Nobody reads these: only the server is asked.
_NOBODY = "nobody"

#: What Locust calls the operation; the name beside it is the channel's group.
PUBLISH = "publish"

logger = logging.getLogger(__name__)

#: Called once per publish: type, name, response time in ms from the intended instant (None = never sent), failure or None.
Report = Callable[[str, str, float | None, Exception | None], None]


class NotPublished(Exception):
    """There was no answer before the end."""


class Dropped(Exception):
    """It was not sent, because it could not be sent in time."""


class Publishing:
    """Sends part `part` of `parts` of a workload, open loop, until `stop`.

    Raises FileExistsError when the history file is there already, other OSError when it cannot be written, and
    engine.EngineError for a wrong setting.
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
        """Wait for the next publish's instant and start its send. False when there is nothing more to send."""
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
        """Asks for something that changes nothing, and is not recorded."""
        try:
            channel.are_old(_NOBODY, [_NOBODY])
        except LookupError:
            pass
        except engine.EngineError as error:
            logger.warning("the load starts although the server does not answer well: %s", error)

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
        except Exception as error:  # whatever it was, it is a failed send and never the end of the load
            failure = error
        self._report(PUBLISH, self._groups[planned.channel], (time.monotonic_ns() - intended_ns) / 1e6, failure)

    def _drop(self, planned: PlannedPublish, intended_ns: int, why: str) -> None:
        if self._history is not None:
            detail = text(f"{planned.channel} {planned.messages[0].id}: {why}")
            self._history.append([f'"kind":"drop","intended_ns":{intended_ns},"count":{len(planned.messages)},"detail":{detail}'])
        self._report(PUBLISH, self._groups[planned.channel], None, Dropped(f"not sent: {why}"))


def content(message: PlannedMessage, start_ns: int) -> dict[str, Any]:
    """What is published: with the instant at which it was meant to be, the first time, so that whoever gets it knows how old it
    is. Monotonic times are those of one machine."""
    return {"intended_ns": start_ns + round(message.offset_ms * 1_000_000), **message.content}
