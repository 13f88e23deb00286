"""One subscriber of the plan: fetches, works and acknowledges in a loop, as its kind requires.

Runs on threads in a plain process, and on greenlets inside Locust, which patches the blocking calls.
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
from bench.channels.witness import Witness
from bench.channels.workload import Kind, PlannedChannel, PlannedSubscriber
from engine.models.dsps import clock_after
from record.channels import ChannelRecorder
from record.history import HistoryFile

#: Waits of long polls: most are short, so that each process contacts its server regularly; some are long.
WAIT_MS = (500, 2_000)
LONG_WAIT_MS = (5_000, 20_000)
LONG_WAIT_SHARE = 0.25
#: Wait of a long poll while catching up.
CATCH_UP_WAIT_MS = 500
#: Least and greatest time for which a vanishing or lagging subscriber is present, and then for which it is away.
THERE_S = (8.0, 20.0)
AWAY_S = 20.0
#: Least and greatest time for which a slow subscriber works on a batch.
WORK_S = (0.2, 2.0)
#: Pause of a lazy subscriber before it fetches unacknowledged messages again, and of a lagging one between two fetches.
LAZY_S = 0.2
LAG_S = 1.0
#: Pause after an error.
BACKOFF_S = 0.2
#: Share of acknowledgements that are preceded by a bad one that must be refused.
MISUSE_SHARE = 0.02
#: Maximum number of batches that a subscriber still reads when it is stopped.
LAST_FETCHES_MAX = 20

DELIVERY = "delivery"
ACKNOWLEDGE = "acknowledge"
FETCH = "fetch"
MISUSED = "misuse"

logger = logging.getLogger(__name__)

#: Called once per delivery, acknowledgement and failure: type, name, response time in ms or None, failure or None.
Report = Callable[[str, str, float | None, Exception | None], None]


class Wishes:
    """Requests to all subscribers of a process: catch up, or stop."""

    def __init__(self) -> None:
        self._hurry = threading.Event()
        self._stop = threading.Event()

    def catch_up(self) -> None:
        """From now on all subscribers read all available messages at once, without any pauses."""
        self._hurry.set()

    def stop(self) -> None:
        """Ask all subscribers to acknowledge what they have fetched, read what is left, and end."""
        self._stop.set()
        self._hurry.set()

    @property
    def hurry(self) -> bool:
        """True when all subscribers should catch up."""
        return self._hurry.is_set()

    @property
    def stopping(self) -> bool:
        """True when all subscribers should end."""
        return self._stop.is_set()

    def pause(self, seconds: float) -> None:
        """Wait for this time, but end at once when asked to stop or to catch up."""
        self._hurry.wait(seconds)


class Reader:
    """One subscriber. `idle`: it has no unacknowledged messages, because it waits for messages or has `ended`."""

    def __init__(
        self,
        channel: engine.Channel,
        recorder: ChannelRecorder | None,
        planned: tuple[PlannedChannel, PlannedSubscriber],
        *,
        witness: Witness | None,
        seed: int,
        wishes: Wishes,
        report: Report,
    ) -> None:
        self._channel = channel
        self._recorder = recorder
        self._witness = witness
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
        """Read until asked to stop, and then what is left. Does not raise: failures are reported and retried."""
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
        """Run one round; return its result, or False when it failed."""
        try:
            if not self._subscribed:
                self._channel.subscribe(self._name)
                self._subscribed = True
            return action()
        except LookupError:
            # The channel or the subscriber has expired, or was not in the snapshot that a server was restored from.
            self._subscribed, self._acknowledged = False, None
            return True
        except engine.EngineError as error:
            self._report(FETCH, self._at.group, None, error)
            time.sleep(BACKOFF_S)
            return False

    def _turn(self) -> bool:
        """One round, as this kind of subscriber requires."""
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
        """Fetch, work, acknowledge. Return False when there was no message."""
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
        """Read a batch without waiting. Return True when there are more messages."""
        got = self._fetch(wait_ms=0)
        if got.receipt is not None:
            self._acknowledge(Handed(got.receipt, got.era, len(got.messages) + got.lost + got.corrupt))
        return got.more_messages

    def _lag(self) -> None:
        """Fetch without acknowledging for a while: the subscription stays alive, and unread messages pile up."""
        end_ns = time.monotonic_ns() + round(AWAY_S * 1e9)
        while time.monotonic_ns() < end_ns and not self._wishes.hurry:
            self._fetch(wait_ms=0, most=1)
            self._wishes.pause(LAG_S)

    def _fetch(self, *, wait_ms: int, most: int = 64) -> engine.Fetched:
        self.idle = wait_ms > 0
        begun_ns = time.monotonic_ns()
        try:
            got = self._channel.fetch(self._name, max_messages=most, wait_ms=wait_ms)
        finally:
            self.idle = False
        now_ns = time.monotonic_ns()
        if self._witness is not None:
            self._witness.handed(self._at.name, self._name, got, begun_ns=begun_ns, done_ns=now_ns)
        for message in got.messages:
            if self._newest is None or clock_after(message.clock, self._newest):
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
        # A subscriber of short-lived messages must fetch often, or it loses more of them than planned.
        is_long = self._rng.random() < LONG_WAIT_SHARE and self._at.group != "short life"
        return round(self._between(*(LONG_WAIT_MS if is_long else WAIT_MS)))

    def _between(self, low: float, high: float) -> float:
        return low + self._rng.random() * (high - low)

    def _later_ns(self, low_s: float, high_s: float) -> int:
        return time.monotonic_ns() + round(self._between(low_s, high_s) * 1e9)


class Readers:
    """Subscribers of one process: their channels, one history, and the second witness beside it.

    Raises FileExistsError when one of these files already exists, another OSError when it cannot be written, and
    engine.EngineError for an invalid setting.
    """

    def __init__(self, place: Place, *, seed: int, report: Report) -> None:
        place.check()
        self._place = place
        self._seed = seed
        self._report = report
        self._history: HistoryFile | None = place.record("subscriber")
        self._witness = place.witness()
        self._channels: dict[str, tuple[engine.Channel, ChannelRecorder | None]] = {}
        self._readers: list[Reader] = []
        self._wishes = Wishes()

    def reader(self, planned: tuple[PlannedChannel, PlannedSubscriber]) -> Reader:
        """Create a subscriber; the caller starts its `run`. Subscribers of one channel share one channel object, as the users
        of a service do."""
        channel = planned[0]
        if channel.name not in self._channels:
            self._channels[channel.name] = self._place.open(channel, self._history)
        opened, recorder = self._channels[channel.name]
        made = Reader(opened, recorder, planned, witness=self._witness, seed=self._seed, wishes=self._wishes, report=self._report)
        self._readers.append(made)
        return made

    def catch_up(self) -> None:
        """Ask all subscribers to read all available messages at once, without any pauses."""
        self._wishes.catch_up()

    def stop(self, timeout_s: float) -> None:
        """Stop all subscribers: each acknowledges what it has fetched; those that only wait for messages are not waited for."""
        self._wishes.stop()
        start_s = time.monotonic()
        while (waited_s := time.monotonic() - start_s) < timeout_s and not self._over(waited_s):
            time.sleep(0.02)
        if not all(reader.idle for reader in self._readers):
            logger.warning("subscribers had no answer %.0f s after the end", timeout_s)
        # First the witness: of a fetch that is answered meanwhile, the judge then knows that its end was not awaited.
        for file in (self._witness, self._history):
            if file is not None:
                file.close()
        for channel, _ in self._channels.values():
            channel.close()

    def _over(self, waited_s: float) -> bool:
        """True when each subscriber has ended or is in a long wait, which is not waited for. Waits while catching up are short
        and end by themselves, so a subscriber counts as in a long wait only after `CATCH_UP_WAIT_MS`."""
        waits_for_long = waited_s * 1000 > CATCH_UP_WAIT_MS
        return all(reader.ended or (waits_for_long and reader.idle) for reader in self._readers)
