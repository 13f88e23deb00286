"""What is compared with a text that was read and found right once."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def same(told: str, file: str) -> None:
    """Fails where this is not the text of the file. A change that is meant is written by GOLDEN=1."""
    if os.environ.get("GOLDEN"):
        (FOLDER / file).write_text(told, encoding="utf-8")
    assert told == (FOLDER / file).read_text(encoding="utf-8"), f"{file}: a change that is meant is written by GOLDEN=1"
