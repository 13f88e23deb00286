"""How a process of the load opens the channels of the plan: with their lives, and with a recorder each, on one history file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import engine
from bench.channels.workload import PlannedChannel
from engine.channel.recorder import ChannelRecorder
from engine.channel.rules import ChannelRule
from engine.history import HistoryFile


@dataclass(frozen=True, slots=True)
class Place:
    """Where the channels are, and the file that gets the history. `lua` None: the own scripts; `history` None: nothing is
    recorded."""

    url: str
    lua: Path | None = None
    history: Path | None = None

    def check(self) -> None:
        """Raises engine.EngineError for a wrong setting, and FileExistsError when the history is there already: two runs in one
        file would be judged as one. Does no I/O on the server."""
        engine.Channel("any", engine.models.Dsps(), url=self.url, lua=self.lua).close()
        if self.history is not None and self.history.exists():
            raise FileExistsError(f"history: {self.history.name} exists already; give each start a file of its own")

    def record(self, role: str) -> HistoryFile | None:
        """Begin the history, whose name is the process's. Raises OSError."""
        if self.history is None:
            return None
        proc = self.history.name.removesuffix(".jsonl")
        return HistoryFile(self.history, proc=proc, role=role, version=engine.__version__)

    def open(self, planned: PlannedChannel, file: HistoryFile | None) -> tuple[engine.Channel, ChannelRecorder | None]:
        """A channel of the plan, and what records it."""
        recorder = None if file is None else ChannelRecorder(file, channel=planned.name)
        model = engine.models.Dsps(rules=(ChannelRule(".+", expire_ms=planned.expire_ms),))
        return engine.Channel(planned.name, model, url=self.url, lua=self.lua, observer=recorder), recorder
