"""The watch of a process over the era of its queue: `engine.queue.era` as it is, but what it tells is heard at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from engine.models.lanes import Lanes
from engine.models.model import Model
from engine.ops.admin import NoteEra
from engine.queue.era import DataLoss, EraWatch


class SimulatedWatch(EraWatch):
    """`hear` is called with each loss. What `greeted` returns is the call itself, for a line to carry."""

    def __init__(self, model: Lanes, hear: Callable[[DataLoss], None]) -> None:
        def call(operation: NoteEra) -> Any:
            return SimpleNamespace(words=lambda: model.call(operation))

        super().__init__(model.keys.queue, cast(Model, SimpleNamespace(keys=model.keys, call=call)))
        self._hear = hear

    @property
    def met(self) -> str:
        """The replication id of the server that the latest handshake has met."""
        return self._latest.replid

    def _tell(self, loss: DataLoss | None) -> None:
        if loss is not None:
            self._hear(loss)
