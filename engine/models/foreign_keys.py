"""The engine's own keys beside a foreign keyspace, which leases, tokens and sweeps need."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.lanes_keys import LanesKeys


@dataclass(frozen=True, slots=True)
class ForeignKeys(LanesKeys):
    """Key names of one queue of a foreign model: those of Lanes, under `ironclaim:`, so that an operator can tell them apart.

    `root` is the prefix that the application has set, without the colon. `wire` is the prefix of the foreign keys, with its
    colon; `ours` follows `ironclaim:` where several queues share one keyspace.
    """

    wire: str = ""
    ours: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"{self.wire}ironclaim:{self.ours}")

    @property
    def queues(self) -> str:
        """Zset: queue by the time (ms) of its last use; of all queues with this root."""
        return f"{self.root}:ironclaim:queues"

    def enqueued(self, nonce: str) -> str:
        """String: `w` while an enqueue is being written, `d` when it is done, then the ids of its jobs, each behind a space and
        `+`, or `-` for a duplicate; until 20 s after the call is void."""
        return f"{self.prefix}new:{nonce}"

    @property
    def all_classes(self) -> str:
        """List: at most one marker, for jobs of any class."""
        return f"{self.prefix}wake"

    @property
    def scan(self) -> str:
        """Hash: digest of what a worker takes -> the rank at which its next claim goes on, unless the last one reached the
        end."""
        return f"{self.prefix}scan"

    @property
    def aside(self) -> str:
        """Hash: id -> why it was set aside, for entries that have no place in the format."""
        return f"{self.prefix}aside"

    @property
    def moving(self) -> str:
        """Set: ids of due jobs while a script moves them."""
        return f"{self.prefix}moving"

    @property
    def strays(self) -> str:
        """Zset: id by the time (ms) when a sweep first saw that no foreign client holds it any more."""
        return f"{self.prefix}strays"
