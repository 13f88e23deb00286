"""What the jobs of one name share beside their payloads, on a format that has such a place: Mosquito's metadata (MQ16)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.operations.administration import Administered
from engine.operations.declaration import Declaration


@dataclass(frozen=True, slots=True)
class ReadMetadata(Declaration):
    """All that is kept for a name."""

    name: str


@dataclass(frozen=True, slots=True)
class SetMetadata(Declaration, script="set_metadata"):
    """Set fields, add to those in `added`, and remove those with None. `op_id` is the identity (rule 7)."""

    op_id: str
    not_after_ms: int
    name: str
    fields: tuple[tuple[str, str | None], ...]
    added: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MetadataSet(Administered):
    """With the values of the fields that were added to, in the order of the call."""

    values: tuple[int, ...] = ()


MetadataOperation = ReadMetadata | SetMetadata
MetadataReply = MetadataSet
