"""The control connection of a worker: it always reads, so that a worker at capacity hears of cancels, pauses and new classes at
once (rules 22 and 26).

An idle worker sends nothing on it. What is lost on the way is learned from the next renewal or sweep, as by a worker without it.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.logs import Source, about
from engine.ops.workers import ControlMessage, read_control
from engine.spared import logger
from engine.wire.drivers.client_errors import is_reply, message_of
from engine.wire.drivers.endpoint import Endpoint
from engine.wire.drivers.finding import dialer_of
from engine.wire.drivers.own_connection import identify
from engine.wire.drivers.subscription import Subscription
from engine.worker.machine.events import ControlLost, Subscribed

log = logger("ironclaim.worker")

#: A server that refuses it, or is away, is asked again after at most so long.
PAUSE_MOST_S = 5.0


class Control:
    """Reads the channels of one worker; `say` takes the messages, in another thread. While the worker is `busy`, a connection
    on which nothing came for `look_s` is checked with a PING. With `presence` it asks how the server lists its connection."""

    def __init__(
        self,
        endpoint: Endpoint,
        channels: tuple[str, ...],
        *,
        say: Callable[[ControlMessage | Subscribed | ControlLost], None],
        busy: Callable[[], bool],
        look_s: float,
        source: Source,
        presence: bool,
    ) -> None:
        self._say = say
        self._source = source
        self._refusal = ""
        self._subscription = Subscription(
            dialer_of(endpoint),
            channels,
            name="control",
            heard=self._heard,
            changed=self._changed,
            wanted=lambda: True,
            checked=busy,
            failed=self._failed,
            look_s=look_s,
            pause_most_s=PAUSE_MOST_S,
            **({"identify": identify} if presence else {}),
        )

    def start(self) -> None:
        """Begin to read. Does not wait."""
        self._subscription.start()

    def close(self) -> None:
        """End it."""
        self._subscription.stop()

    def _heard(self, message: bytes) -> None:
        parsed = read_control(message)
        if parsed is not None:
            self._say(parsed)

    def _changed(self) -> None:
        if self._subscription.live:
            self._refusal = ""
            self._say(Subscribed(self._subscription.identity))
        else:
            self._say(ControlLost())

    def _failed(self, error: Exception) -> None:
        """Log why the server refuses it, once; that it is away is logged by the calls."""
        refusal = message_of(error) if is_reply(error) else ""
        if refusal and refusal != self._refusal:
            self._refusal = refusal
            text = "control connection refused (%s): cancels and pauses are heard with the next renewal or sweep"
            log.warning(text, refusal, extra=about(None, self._source))
