"""Once a second: the raw clock of each channel, and who is behind; server and processes as in any run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import redis

from chaos.channels.keyspace import Keyspace, Look
from chaos.probe import Address
from chaos.sampler import WorldSampler
from engine.models.dsps import clock_distance
from record.history import HistoryFile


class ChannelSampler(WorldSampler):
    """Also `samples/channels.jsonl`: a row for each channel whose clock has moved."""

    MORE_FILES = ("channels",)

    def __init__(
        self,
        *,
        keyspace: Keyspace,
        address: Callable[[], Address],
        samples: Path,
        harness: HistoryFile,
        pids: Callable[[], Mapping[str, int]],
    ) -> None:
        super().__init__(address=address, samples=samples, harness=harness, pids=pids)
        self._keyspace = keyspace
        self._clocks: dict[str, int | None] = {}
        self.look: Look | None = None

    def close(self) -> None:
        super().close()
        self._keyspace.close()

    def crossed(self) -> int:
        """Channels that were preset to the end of the circle and are on its other side."""
        presets = {channel.name: channel.preset_clock for channel in self._keyspace.channels}
        clocks = self._clocks.copy()
        return sum((preset or 0) > 0 > (clocks.get(name) or 0) for name, preset in presets.items())

    def unread(self) -> int:
        """Messages that are not read yet, over all subscribers."""
        look = self.look
        if look is None:
            return 0
        return sum(
            clock_distance(cursor, clock)
            for channel, clock in look.clocks.items()
            if clock is not None
            for cursor in look.cursors[channel].values()
            if cursor is not None
        )

    def _look(self) -> int | None:
        try:
            self.look = look = self._keyspace.look()
        except redis.RedisError as error:
            self._write("channels", {"error": str(error)})
            return None
        t_ns = time.monotonic_ns()
        for channel, clock in look.clocks.items():
            if clock is not None and clock != self._clocks.get(channel):
                self._write("channels", {"t_ns": t_ns, "channel": channel, "clock": clock})
        self._clocks = look.clocks
        return look.srv_us
