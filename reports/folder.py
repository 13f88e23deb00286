"""What can be told of a run's folder without Spark: its spec, its history files, and how each ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reports.errors import CannotJudge

#: How far back one read looks for the last newline of a file.
TAIL_BYTES = 65_536

#: The newest spec.json that this judge reads.
SPEC_SCHEMA = 1


def read_spec(run: Path) -> dict[str, Any]:
    """The run's spec.json. Raises CannotJudge."""
    if not run.is_dir():
        raise CannotJudge(f"run folder {run} does not exist")
    try:
        spec = json.loads((run / "spec.json").read_text())
    except OSError as error:
        raise CannotJudge(f"spec.json of {run.name}: {error.strerror or error}") from error
    except ValueError as error:
        raise CannotJudge(f"spec.json of {run.name} is not JSON: {error}") from error
    if not isinstance(spec, dict):
        raise CannotJudge(f"spec.json of {run.name} is not a JSON object")
    return spec


def history_files(run: Path) -> list[Path]:
    """The history files of a run by name. Raises CannotJudge when there is nothing in them."""
    folder = run / "history"
    if not folder.is_dir():
        raise CannotJudge(f"{run.name} has no history folder")
    files = sorted(folder.glob("*.jsonl"))
    if not any(file.stat().st_size for file in files):
        raise CannotJudge(f"the history of {run.name} is empty")
    return files


def torn_tail(path: Path) -> bytes:
    """What stands after the last newline of a file: nothing, unless its writer was killed in mid-write."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        tail = b""
        while end and b"\n" not in tail:
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            tail = file.read(end - start) + tail
            end = start
    return tail.rpartition(b"\n")[2]


def is_object(line: bytes) -> bool:
    """True when the bytes are one whole JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
