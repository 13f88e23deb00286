"""What the jobs of one name share beside their payloads, on a format that has such a place: Mosquito's metadata (MQ16)."""

from __future__ import annotations

from typing import Any

from engine.immutable import immutable
from engine.wire.operations.administration import ADMINISTERED_RESULTS, Administered
from engine.wire.operations.declaration import Declaration
from engine.wire.operations.raw_replies import one_of, server_us


@immutable
class ReadMetadata(Declaration):
    """All that is kept for a name."""

    name: str

    def parse(self, raw: Any, decode: object) -> dict[str, str]:
        """The fields of an HGETALL reply."""
        texts = [word.decode(errors="replace") for word in raw]
        return dict(zip(texts[::2], texts[1::2], strict=True))


@immutable
class SetMetadata(Declaration, script="set_metadata"):
    """Set fields, add to those in `added`, and remove those with None. `op_id` is the identity (rule 7)."""

    op_id: str
    not_after_ms: int
    name: str
    fields: tuple[tuple[str, str | None], ...]
    added: tuple[tuple[str, int], ...] = ()

    def parse(self, raw: Any, decode: object) -> MetadataSet:
        """The raw reply as a value."""
        values = tuple(int(word) for word in (raw[2] if len(raw) > 2 else ()))
        return MetadataSet(server_us(raw), one_of(raw[1], ADMINISTERED_RESULTS), values)


@immutable
class MetadataSet(Administered):
    """With the values of the fields that were added to, in the order of the call."""

    values: tuple[int, ...] = ()


MetadataOperation = ReadMetadata | SetMetadata
MetadataReply = MetadataSet
