"""One subscriber of the plan: fetches, works, acknowledges, again and again, in the way of its kind.

Threads in a plain process, greenlets inside Locust, which has patched what blocks here.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

import engine
from bench.channels import misuse
from bench.channels.misuse import Accepted, Handed
from bench.channels.opening import Place
from bench.channels.workload import Kind, PlannedChannel, PlannedSubscriber
from engine.channel import clock
from engine.channel.recorder import ChannelRecorder
from engine.history import HistoryFile

#: Waits of long polls: most are short, so that each process speaks with its server every now and then; some are long.
WAIT_MS = (500, 2_000)
LONG_WAIT_MS = (5_000, 20_000)
LONG_WAIT_SHARE = 0.25
#: While it catches up nobody waits for long.
CATCH_UP_WAIT_MS = 500
#: How long one who vanishes or lags is there, at least and at most, and then away.
THERE_S = (8.0, 20.0)
AWAY_S = 20.0
#: How long a slow one works on a batch, at least and at most.
WORK_S = (0.2, 2.0)
#: A lazy one comes back so soon for what it has not acknowledged; one who lags looks again so soon.
LAZY_S = 0.2
LAG_S = 1.0
#: After an error.
BACKOFF_S = 0.2
#: So many of all acknowledgements come with one before them that must not work.
MISUSE_SHARE = 0.02
#: Of what is there when it is told to stop, it takes so many batches at most.
LAST_FETCHES_MAX = 20

DELIVERY = "delivery"
ACKNOWLEDGE = "acknowledge"
FETCH = "fetch"
MISUSED = "misuse"

logger = logging.getLogger(__name__)

#: Called once per delivery, acknowledgement and failure: type, name, response time in ms or None, failure or None.
Report = Callable[[str, str, float | None, Exception | None], None]


class Wishes:
    """What the owner of subscribers wants of them all."""

    def __init__(self) -> None:
        self._hurry = threading.Event()
        self._stop = threading.Event()

    def catch_up(self) -> None:
        """From now on everybody reads at once whatever there is, and does nothing else."""
        self._hurry.set()

    def stop(self) -> None:
        """Finish what is in hand, read what is left, and end."""
        self._stop.set()
        self._hurry.set()

    @property
    def hurry(self) -> bool:
        """Whether everybody should catch up."""
        return self._hurry.is_set()

    @property
    def stopping(self) -> bool:
        """Whether everybody should end."""
        return self._stop.is_set()

    def pause(self, seconds: float) -> None:
        """Wait, not longer than there is time for it."""
        self._hurry.wait(seconds)


class Reader:
    """One subscriber. `idle`: it has nothing in hand, for it waits for messages or has `ended`."""

    def __init__(
        self,
        channel: engine.Channel,
        recorder: ChannelRecorder | None,
        planned: tuple[PlannedChannel, PlannedSubscriber],
        *,
        seed: int,
        wishes: Wishes,
        report: Report,
    ) -> None:
        self._channel = channel
        self._recorder = recorder
        self._at, one = planned
        self._name = one.name
        self._kind: Kind = one.kind
        self._rng = random.Random(f"{seed} {self._at.name} {self._name}")
        self._wishes = wishes
        self._report = report
        self._acknowledged: Handed | None = None
        self._newest: int | None = None
        self._subscribed = False
        self._turn_ns = 0
        self.idle = True
        self.ended = True

    def run(self) -> None:
        """Read until told to stop, and then what is left. Raises nothing: whatever fails is reported and tried again."""
        self._turn_ns = self._later_ns(*THERE_S)
        self.idle = self.ended = False
        try:
            while not self._wishes.stopping:
                self._attempt(self._turn)
            for _ in range(LAST_FETCHES_MAX):
                if not self._attempt(self._last):
                    break
        finally:
            self.idle = self.ended = True

    def _attempt(self, action: Callable[[], bool]) -> bool:
        """One round; False as well when it failed."""
        try:
            if not self._subscribed:
                self._channel.subscribe(self._name)
                self._subscribed = True
            return action()
        except LookupError:
            # The channel or the subscriber outlived its life, or was not in what a server was restored from.
            self._subscribed, self._acknowledged = False, None
            return True
        except engine.EngineError as error:
            self._report(FETCH, self._at.group, None, error)
            time.sleep(BACKOFF_S)
            return False

    def _turn(self) -> bool:
        """One round in the way of this kind."""
        away = self._kind in ("vanished", "lagging") and time.monotonic_ns() > self._turn_ns and not self._wishes.hurry
        if not away:
            return self._read(self._kind)
        if self._kind == "vanished":
            self._wishes.pause(AWAY_S)
        else:
            self._lag()
        self._turn_ns = self._later_ns(*THERE_S)
        return True

    def _read(self, kind: Kind) -> bool:
        """Fetch, work, acknowledge. False when there was nothing."""
        got = self._fetch(wait_ms=self._wait_ms())
        if got.receipt is None:
            return False
        if kind == "slow":
            self._wishes.pause(self._between(*WORK_S))
        if kind == "lazy" and not self._wishes.hurry:
            self._wishes.pause(LAZY_S)
            got = self._fetch(wait_ms=0)
        if got.receipt is not None:
            self._acknowledge(Handed(got.receipt, got.era, len(got.messages) + got.lost + got.corrupt))
        return True

    def _last(self) -> bool:
        """Take what is there, if there is anything."""
        got = self._fetch(wait_ms=0)
        if got.receipt is not None:
            self._acknowledge(Handed(got.receipt, got.era, len(got.messages) + got.lost + got.corrupt))
        return got.more_messages

    def _lag(self) -> None:
        """Keep the place, and let what is unread grow old."""
        end_ns = time.monotonic_ns() + round(AWAY_S * 1e9)
        while time.monotonic_ns() < end_ns and not self._wishes.hurry:
            self._fetch(wait_ms=0, most=1)
            self._wishes.pause(LAG_S)

    def _fetch(self, *, wait_ms: int, most: int = 64) -> engine.Fetched:
        self.idle = wait_ms > 0
        try:
            got = self._channel.fetch(self._name, max_messages=most, wait_ms=wait_ms)
        finally:
            self.idle = False
        now_ns = time.monotonic_ns()
        for message in got.messages:
            if self._newest is None or clock.after(message.clock, self._newest):
                self._newest = message.clock
                self._report(DELIVERY, self._at.group, (now_ns - message.content["intended_ns"]) / 1e6, None)
        return got

    def _acknowledge(self, handed: Handed) -> None:
        kind = None if self._wishes.hurry else misuse.drawn(self._rng, MISUSE_SHARE)
        forgery = misuse.forged(kind, self._at.name, self._name, handed, self._acknowledged) if kind else None
        if kind is not None and forgery is not None:
            result = misuse.attempt(self._channel, self._name, kind, forgery, self._recorder)
            failure = Accepted(f"a receipt that was {kind} was taken") if result == "OK" else None
            self._report(MISUSED, kind, None, failure)
        sent_ns = time.monotonic_ns()
        if self._channel.acknowledge(self._name, handed.receipt).result == "OK":
            self._acknowledged = handed
        self._report(ACKNOWLEDGE, self._at.group, (time.monotonic_ns() - sent_ns) / 1e6, None)

    def _wait_ms(self) -> int:
        if self._wishes.hurry:
            return CATCH_UP_WAIT_MS
        # Whoever loses what is late must not be late itself.
        is_long = self._rng.random() < LONG_WAIT_SHARE and self._at.group != "short life"
        return round(self._between(*(LONG_WAIT_MS if is_long else WAIT_MS)))

    def _between(self, low: float, high: float) -> float:
        return low + self._rng.random() * (high - low)

    def _later_ns(self, low_s: float, high_s: float) -> int:
        return time.monotonic_ns() + round(self._between(low_s, high_s) * 1e9)


class Readers:
    """Subscribers of one process: their channels, and one history.

    Raises FileExistsError when the history file is there already, other OSError when it cannot be written, and
    engine.EngineError for a wrong setting.
    """

    def __init__(self, place: Place, *, seed: int, report: Report) -> None:
        place.check()
        self._place = place
        self._seed = seed
        self._report = report
        self._history: HistoryFile | None = place.record("subscriber")
        self._channels: dict[str, tuple[engine.Channel, ChannelRecorder | None]] = {}
        self._readers: list[Reader] = []
        self._wishes = Wishes()

    def reader(self, planned: tuple[PlannedChannel, PlannedSubscriber]) -> Reader:
        """One more, whose `run` is the caller's to start. Those of one channel share one object, as the users of a service do."""
        channel = planned[0]
        if channel.name not in self._channels:
            self._channels[channel.name] = self._place.open(channel, self._history)
        opened, recorder = self._channels[channel.name]
        made = Reader(opened, recorder, planned, seed=self._seed, wishes=self._wishes, report=self._report)
        self._readers.append(made)
        return made

    def catch_up(self) -> None:
        """Everybody reads at once whatever there is, and does nothing else."""
        self._wishes.catch_up()

    def stop(self, timeout_s: float) -> None:
        """End everybody: who has something in hand acknowledges it, and who goes on to wait for messages is left alone."""
        self._wishes.stop()
        start_s = time.monotonic()
        while (waited_s := time.monotonic() - start_s) < timeout_s and not self._over(waited_s):
            time.sleep(0.02)
        if not all(reader.idle for reader in self._readers):
            logger.warning("subscribers had no answer %.0f s after the end", timeout_s)
        if self._history is not None:
            self._history.close()
        for channel, _ in self._channels.values():
            channel.close()

    def _over(self, waited_s: float) -> bool:
        """Whether nobody is worth waiting for: a wait of one who catches up ends by itself."""
        waits_for_long = waited_s * 1000 > CATCH_UP_WAIT_MS
        return all(reader.ended or (waits_for_long and reader.idle) for reader in self._readers)
