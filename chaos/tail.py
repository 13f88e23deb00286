"""Follow a growing JSON-lines file that another process writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 20


class Tail:
    """Gives each complete line of the file once. A torn last line waits for its rest; a file that is not there yet is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.corrupt_lines = 0
        self._descriptor = -1
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """The rows that were completed since the last call. Lines that are no JSON object are counted and left out."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
        rows: list[dict[str, Any]] = []
        while data := os.read(self._descriptor, READ_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            rows += self._parse(lines)
        return rows

    def _parse(self, lines: list[bytes]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                rows.append(row)
            else:
                self.corrupt_lines += 1
        return rows

    def close(self) -> None:
        """Give the file back. Reading again starts over, so do not."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
