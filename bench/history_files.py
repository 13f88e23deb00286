"""The history files of a load of several processes. Who starts them knows their names as well, and must not import Locust."""

from __future__ import annotations

from pathlib import Path


def history_of(given: str, number: int) -> Path | None:
    """The history file of one of several processes: producer-1.jsonl, producer-1-2.jsonl, producer-1-3.jsonl."""
    path = Path(given) if given else None
    return path if path is None or number <= 0 else path.with_name(f"{path.stem}-{number + 1}{path.suffix}")
