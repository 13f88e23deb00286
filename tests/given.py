"""What many tests are given: by pytest, under names that leave their heads one line, and as programs on their PATH."""

from pathlib import Path

import pytest

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]


def script(path: Path, text: str = "") -> Path:
    """A program of the shell with this text, in a folder that is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
