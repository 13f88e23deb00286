"""What has happened in an episode of a foreign model."""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.simulate.book import Birth, Book
from engine.ops.jobs import Enqueue


def birth_of(text: str) -> Birth:
    """A job, by what its payload says of itself."""
    return text, b""


@dataclass(slots=True)
class ForeignBook(Book):
    """The memory of the judge. Ids are looked up: a job's own, once it has one, and the latest job under an id."""

    ids: dict[Birth, str] = field(default_factory=dict)
    births: dict[str, Birth] = field(default_factory=dict)
    #: What was sent for each job that was made.
    sent: dict[Birth, Enqueue] = field(default_factory=dict)
    #: How jobs have ended: finished or dead. Failed runs, and leases that were reaped and charged.
    ends: dict[Birth, str] = field(default_factory=dict)
    failures: dict[Birth, int] = field(default_factory=dict)
    crashes: dict[Birth, int] = field(default_factory=dict)
    #: When a job may be claimed at the earliest (ms).
    due_ms: dict[Birth, int] = field(default_factory=dict)

    def job(self, id: str) -> Birth:
        """The latest job under an id."""
        return self.births.get(id, birth_of(id))

    def alive(self) -> list[Birth]:
        """Jobs that were made and have not ended."""
        return [birth for birth in self.ids if birth not in self.ends]
