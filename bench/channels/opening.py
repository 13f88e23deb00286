"""Opens the channels of the plan in a process of the load, each with its expiry and a recorder; all write to one history
file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import engine
from bench.channels.witness import Witness
from bench.channels.workload import PlannedChannel
from engine.models.dsps import ChannelRule
from record.channels import ChannelRecorder
from record.history import HistoryFile


@dataclass(frozen=True, slots=True)
class Place:
    """The server of the channels, and the history file. `lua` None: the engine's own scripts; `history` None: record
    nothing."""

    url: str
    lua: Path | None = None
    history: Path | None = None

    def check(self) -> None:
        """Raise engine.EngineError for an invalid setting, and FileExistsError when the history already exists: two runs in one
        file would be judged as one. Does not contact the server."""
        engine.Channel("any", engine.models.Dsps(), url=self.url, lua=self.lua).close()
        for file in () if self.history is None else (self.history, sink_of(self.history)):
            if file.exists():
                raise FileExistsError(f"history: {file.name} exists already; give each start a file of its own")

    def record(self, role: str) -> HistoryFile | None:
        """Create the history file; its name without the extension is the process name. Raises OSError."""
        if self.history is None:
            return None
        proc = self.history.name.removesuffix(".jsonl")
        return HistoryFile(self.history, proc=proc, role=role, version=engine.__version__)

    def witness(self) -> Witness | None:
        """Create the file of the second witness beside the history: `<proc>.sink.jsonl`. Raises OSError."""
        if self.history is None:
            return None
        proc = self.history.name.removesuffix(".jsonl")
        return Witness(HistoryFile(sink_of(self.history), proc=proc, role="sink", version=engine.__version__))

    def open(self, planned: PlannedChannel, file: HistoryFile | None) -> tuple[engine.Channel, ChannelRecorder | None]:
        """A channel of the plan, and its recorder."""
        recorder = None if file is None else ChannelRecorder(file, channel=planned.name)
        model = engine.models.Dsps(rules=(ChannelRule(".+", expire_ms=planned.expire_ms),))
        return engine.Channel(planned.name, model, url=self.url, lua=self.lua, observer=recorder), recorder


def sink_of(history: Path) -> Path:
    """The file of the second witness that belongs to a history file."""
    return history.with_name(f"{history.name.removesuffix('.jsonl')}.sink.jsonl")
