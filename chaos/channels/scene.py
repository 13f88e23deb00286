"""What faults of a run on channels may look at and act on."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.channels.crew import ChannelCrew
from chaos.channels.keyspace import Keyspace
from chaos.channels.watch import ChannelWatch
from chaos.faults.base import Scene


@dataclass(frozen=True, kw_only=True)
class ChannelScene(Scene):
    """`lease_ms` is only how long faults of the network last at most; nothing is leased."""

    crew: ChannelCrew
    watch: ChannelWatch
    keyspace: Keyspace
