"""The processes of a run on channels: Locust ones that publish, one with users that subscribe, and plain subscribers."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from bench.channels.workload import LOCUST_SHARE, ChannelWorkload, of_share
from chaos import rows
from chaos.channels.keyspace import Keyspace
from chaos.channels.spec import ChannelSpec
from chaos.channels.watch import ChannelWatch
from chaos.faults.base import Scene
from chaos.processes import ROOT, Child, Children

#: Users of a publishing process: each waits for its answer, so this many calls may be under way.
PUBLISHER_USERS = 4

PUBLISHER, SUBSCRIBER = "publisher", "subscriber"


@dataclass
class ChannelCrew(Children[ChannelSpec]):
    """A subscriber's process takes a share of the subscribers: that of its own name, or of the one whose place it takes."""

    SENDERS = (PUBLISHER,)

    shares: dict[str, str] = field(default_factory=dict)
    #: A defect that is planted in the processes; "" = none.
    planted: str = ""

    def start_publisher(self, name: str, part: int) -> Child:
        """Announce a publisher in the manifest, then start it."""
        self.manifest.append([rows.process(PUBLISHER, name, f"{name}.jsonl")])
        words = self._locust(name, users=PUBLISHER_USERS)
        words += ["--part", str(part), "--parts", str(self.spec.publishers)]
        return self._start(name, PUBLISHER, [*words, *self._lua(), "--history", self._history(name), "Publisher"], {})

    def start_consumer(self, name: str) -> Child:
        """Announce subscribers inside Locust in the manifest, then start them: a user each."""
        self._announce(name, LOCUST_SHARE)
        words = self._locust(name, users=len(of_share(LOCUST_SHARE)))
        words += ["--share", LOCUST_SHARE, *self._lua(), "--subscriber-history", self._history(name), "Subscriber"]
        return self._start(name, SUBSCRIBER, words, {})

    def start_subscriber(self, name: str, share: str) -> Child:
        """Announce a process of subscribers in the manifest, then start it."""
        self._announce(name, share)
        words = [*self._python("bench.channels"), "subscribe", *self._common(name)]
        return self._start(name, SUBSCRIBER, [*words, "--share", share, *self._lua(), "--history", self._history(name)], {})

    def start_replacement(self, name: str, of: str) -> Child:
        return self.start_subscriber(name, self.shares[of])

    def names(self, role: str) -> list[str]:
        """Those of a role that live."""
        return [child.name for child in self.children.values() if child.role == role and child.alive()]

    def _announce(self, name: str, share: str) -> None:
        self.shares[name] = share
        self.manifest.append([rows.process(SUBSCRIBER, name, f"{name}.jsonl"), rows.process("sink", name, f"{name}.sink.jsonl")])

    def _locust(self, name: str, *, users: int) -> list[str]:
        """What the command lines of Locust have in common. Failed requests are left to the judge, not to its exit code."""
        words = [*self._python("locust"), "-f", str(ROOT / "bench" / "channel_locustfile.py")]
        words += ["--headless", "--only-summary", "-u", str(users), "-r", str(users), "-t", f"{self.spec.load_bound_s}s"]
        words += ["--exit-code-on-error", "0", "--rate", f"{self.spec.rate:g}"]
        return [*words, *self._common(name)]

    def _python(self, module: str) -> list[str]:
        """How to run a module: by itself, or by what plants a defect first."""
        return [sys.executable, "-m", *(["chaos.channels.planted", self.planted] if self.planted else []), module]

    def _common(self, name: str) -> list[str]:
        return ["--host", self.connect(name), "--seed", str(self.spec.seed)]

    def _lua(self) -> list[str]:
        return ["--lua", str(self.lua)] if self.lua else []

    def _history(self, name: str) -> str:
        return str(self.history / f"{name}.jsonl")


def workload_of(spec: ChannelSpec) -> ChannelWorkload:
    """The load of a run, as its processes make it."""
    return ChannelWorkload(spec.seed, spec.rate)


@dataclass(frozen=True, kw_only=True)
class ChannelScene(Scene):
    """`lease_ms` is only how long faults of the network last at most; nothing is leased."""

    crew: ChannelCrew
    watch: ChannelWatch
    keyspace: Keyspace
