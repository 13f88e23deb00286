"""The drill of channels: preset clocks, subscribers, load, the plan's faults, a drain until everybody has read everything."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import redis

from bench.channels.opening import Place
from bench.channels.workload import CHANNELS, LOCUST_SHARE, PLAIN_SHARES, of_share
from chaos import rows
from chaos.channels.crew import SUBSCRIBER, ChannelCrew, ChannelScene
from chaos.channels.faults import FAULTS
from chaos.channels.keyspace import Keyspace
from chaos.channels.plan import publisher_names
from chaos.channels.sampler import ChannelSampler
from chaos.channels.spec import ChannelSpec
from chaos.channels.watch import ChannelWatch, Reader
from chaos.drill import Frame
from chaos.sampler import PERIOD_S
from record.history import HistoryFile

#: Nothing is leased. Faults of the network go by it: they last as long as they do in a run of jobs.
HOLD_LEASE_MS = 9_000

#: The process that makes the subscribers, in the harness itself.
SETUP = "setup"

#: How long the load goes on at most until every preset clock has wrapped.
CROSSING_TIMEOUT_S = 60.0

#: By when everybody has read everything once nothing new comes.
DRAIN_TIMEOUT_S = 40.0
DRAIN_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class State:
    """What the progress shows; `created` and `finished` are messages published and delivered."""

    phase: str
    created: int
    finished: int
    unread: int
    crossed: int
    wrapping: int
    processes: int
    fault: str

    def words(self, created_per_s: float, finished_per_s: float) -> str:
        return (
            f"published {created_per_s:5.1f}/s  delivered {finished_per_s:6.1f}/s  unread {self.unread}  "
            f"wrapped {self.crossed}/{self.wrapping}  processes {self.processes}  fault: {self.fault or 'none'}"
        )


@dataclass
class ChannelDrill(Frame[ChannelSpec]):
    """A run on channels."""

    #: A defect that is planted in the processes; "" = none.
    planted: str = ""

    _watch: ChannelWatch = field(init=False, repr=False)
    _crew: ChannelCrew = field(init=False, repr=False)
    _sampler: ChannelSampler = field(init=False, repr=False)
    _keyspace: Keyspace = field(init=False, repr=False)

    FAULTS = FAULTS

    def _set_up(self, stack: ExitStack) -> None:
        """Start server and proxies, preset clocks, make the subscribers, and start those that fetch."""
        spec, folder = self.spec, self.folder
        manifest = self._open_manifest(stack)
        connect = self._start_servers(stack, spec.topology, spec.durability, spec.channels[0].name)
        url = self._servers.url
        self._keyspace = Keyspace(url, spec.channels)
        stack.callback(self._keyspace.close)
        self._keyspace.preset()
        self._subscribe(url, manifest)
        self._watch = ChannelWatch(folder.history)
        stack.callback(self._watch.close)
        self._crew = ChannelCrew(spec, connect, folder.history, folder.logs, manifest, self._watch, self.lua)
        self._crew.planted = self.planted
        self._crew.preload = self._preload
        self._sampler = ChannelSampler(
            keyspace=Keyspace(url, spec.channels, timeout_s=PERIOD_S),
            address=self._servers.address,
            samples=folder.samples,
            harness=self._harness,
            pids=self._pids,
        )
        stack.callback(self._sampler.close)
        stack.callback(self._stop_crew)
        self._sampler.start()
        self._crew.start_consumer(LOCUST_SHARE)
        for name in PLAIN_SHARES:
            self._crew.start_subscriber(name, name)
        wanted = {name: {Reader(channel.name, one.name) for channel, one in of_share(name)} for name in self._crew.shares}
        self._require(
            lambda: all(places <= self._watch.channels(name).ready for name, places in wanted.items()),
            "the subscribers did not fetch",
        )

    def _subscribe(self, url: str, manifest: HistoryFile) -> None:
        """Make all subscribers, before anybody publishes. Their process ends with it: no later fault hits it."""
        manifest.append([rows.process(SUBSCRIBER, SETUP, f"{SETUP}.jsonl")])
        with ExitStack() as stack:
            file = self._open_history(stack, SETUP, SUBSCRIBER)
            for planned in CHANNELS:
                channel, _ = Place(url, self.lua).open(planned, file)
                with channel:
                    for name in planned.names:
                        channel.subscribe(name)

    def _send(self) -> None:
        names = publisher_names(self.spec.publishers)
        for part, name in enumerate(names):
            self._crew.start_publisher(name, part)
        self._require(lambda: all(self._watch.view(name).created for name in names), "a publisher published nothing")

    def _scene(self) -> ChannelScene:
        return self._scene_of(ChannelScene, HOLD_LEASE_MS, HOLD_LEASE_MS, keyspace=self._keyspace)

    def _wrapping(self) -> int:
        return sum(channel.preset_clock is not None for channel in self.spec.channels)

    def _drain(self, healed_ns: int) -> None:
        """Let every clock wrap, end the load, let everybody read what is left, stop them, and record what is there then."""
        self.wait(lambda: self._sampler.crossed() >= self._wrapping(), timeout_s=CROSSING_TIMEOUT_S, poll_s=DRAIN_POLL_S)
        self._begin_phase("drain", time.monotonic_ns())
        self.errors += self._crew.stop(list(publisher_names(self.spec.publishers)))
        self.load_ended()
        subscribers = self._crew.names(SUBSCRIBER)
        for name in subscribers:
            self.signal(self._crew.children[name].pid, signal.SIGUSR1)
        if not self.wait(self._drained, timeout_s=DRAIN_TIMEOUT_S, poll_s=DRAIN_POLL_S):
            left = self._keyspace.look().behind()
            shown = ", ".join(f"{one} of {channel}" for channel, one in left[:5])
            self.errors.append(f"{len(left)} subscribers had not read everything {DRAIN_TIMEOUT_S:g} s after the load: {shown}")
        self.errors += self._crew.stop(subscribers)
        self._keyspace.end(self._harness, time.monotonic_ns())
        self._begin_phase("end", time.monotonic_ns())

    def _drained(self) -> bool:
        try:
            return not self._keyspace.look().behind()
        except redis.RedisError:
            return False

    def _draw(self) -> None:
        self.progress.draw(
            State(
                phase=self._phase,
                created=self._watch.created(),
                finished=self._watch.finished(),
                unread=self._sampler.unread(),
                crossed=self._sampler.crossed(),
                wrapping=self._wrapping(),
                processes=len(self._crew.pids()),
                fault=self._fault,
            )
        )
