"""Whole texts against those that are kept in tests/reports/golden. What is meant to differ is taken over with
`cp build/golden/* tests/reports/golden/`.
"""

from __future__ import annotations

import difflib
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
#: What differs is left here.
FRESH = Path(__file__).parents[2] / "build" / "golden"
SHOWN = 20


def same(name: str, text: str) -> None:
    """Fail with the first lines that differ from the kept text."""
    kept, fresh = GOLDEN / name, FRESH / name
    fresh.unlink(missing_ok=True)
    before = kept.read_text("utf-8").splitlines() if kept.exists() else []
    if found := list(difflib.unified_diff(before, text.splitlines(), n=0, lineterm=""))[2:]:
        FRESH.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, "utf-8")
        raise AssertionError("\n".join([f"{kept} is not {fresh}:", *(line[:200] for line in found[:SHOWN])]))
