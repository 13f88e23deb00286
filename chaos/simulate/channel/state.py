"""The raw keys of a channel at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaos.simulate.read_all import NO_KEYS, READ_ALL, Key, Keyspace, read_keyspace
from chaos.simulate.server import Reading
from engine.models.dsps import DspsKeys

CHANNEL = "sim"
KEYS = DspsKeys(CHANNEL)
_CURSORS, _IDS = KEYS.cursor(""), KEYS.mid("")


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One instant."""

    keyspace: Keyspace

    @property
    def raw(self) -> Mapping[str, Key]:
        """All keys by name."""
        return self.keyspace.keys

    @property
    def expires_ms(self) -> int:
        """When the next key expires; 0 for none."""
        return self.keyspace.expires_ms

    def number(self, name: str) -> int:
        """The length of a list: a channel has none."""
        return 0

    def members(self, name: str) -> tuple[str, ...]:
        """The members of a list or set: a channel has none."""
        return ()

    def _whole(self, name: str) -> int | None:
        key = self.raw.get(name)
        return None if key is None else int(key.value)

    @property
    def clock(self) -> int | None:
        """The clock of the last message."""
        return self._whole(KEYS.clock)

    def cursor(self, subscriber: str) -> int | None:
        """The clock that a subscriber has acknowledged last."""
        return self._whole(KEYS.cursor(subscriber))

    def cursors(self) -> list[str]:
        """All subscribers."""
        return [name.removeprefix(_CURSORS) for name in self.raw if name.startswith(_CURSORS)]

    def new_messages(self) -> dict[str, int]:
        """Ids whose clocks were written since the instant before, with those."""
        changed = [name for name in self.keyspace.changed if name.startswith(_IDS) and name in self.raw]
        return {name.removeprefix(_IDS): int(self.raw[name].value) for name in changed}

    def body(self, clock: int) -> bytes | None:
        """The message that is stored under a clock."""
        key = self.raw.get(KEYS.body(clock))
        return None if key is None else key.raw


def _opened(reply: Any, before: ChannelState) -> ChannelState:
    return ChannelState(read_keyspace(reply, before.keyspace))


READING = Reading("", READ_ALL, ChannelState(NO_KEYS), _opened, clocked=True)
