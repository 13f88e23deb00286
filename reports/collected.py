"""What was collected of one history file, and how it is kept beside its tables: as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from reports.file_facts import FileFacts, ObservedCall


@dataclass(frozen=True)
class Collected:
    """The facts of one file, its rare rows, and what is merged over all files of a run. `made_of` identifies its content."""

    made_of: str
    facts: FileFacts
    rare: list[dict[str, Any]] = field(default_factory=list)
    replids: list[str] = field(default_factory=list)
    #: incarnation -> process that claimed under it.
    incarnations: dict[str, str] = field(default_factory=dict)
    leases_ms: list[int] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it as JSON, in one step."""
        content = asdict(self) | {"facts": {name: plain(value) for name, value in asdict(self.facts).items()}}
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(content, separators=(",", ":")))
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> Collected | None:
        """What was written there; None when that is nothing, or not of this form."""
        try:
            content = json.loads(path.read_text())
            facts = {one.name: restored(one.name, content["facts"][one.name]) for one in fields(FileFacts)}
            return cls(**{**content, "facts": FileFacts(**facts)})
        except (OSError, ValueError, KeyError, TypeError):
            return None


def plain(value: Any) -> Any:
    """A fact as JSON has it."""
    return sorted(value) if isinstance(value, frozenset) else value


def restored(name: str, value: Any) -> Any:
    """A fact from JSON."""
    if name == "observed_calls":
        return tuple(ObservedCall(**call) for call in value)
    if name in ("calls", "lags"):
        return frozenset(map(tuple, value))
    if name in ("slots", "answered_slots"):
        return frozenset(value)
    return tuple(value) if isinstance(value, list) else value
