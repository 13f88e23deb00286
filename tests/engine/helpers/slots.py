"""Whether a script's header and body are held together, slot by slot."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import ScriptFault
from engine.scripts import load_script


def check_slots(path: Path, tmp_path: Path, where: Sequence[Path] = ()) -> None:
    """Take any one slot out of the header of a script, or its binding out of the body, and it no longer loads."""
    shutil.copytree(path.parent, tmp_path / "lua")
    copy, source = tmp_path / "lua" / path.name, path.read_text()
    script = load_script(path, where)
    for slot in (*script.keys, *script.arguments):
        for pattern in (rf"^--   {slot}\s.*\n", rf"^local {slot} = .*(?:KEYS|ARGV)\[\d+\].*\n"):
            without, count = re.subn(pattern, "", source, count=1, flags=re.MULTILINE)
            assert count == 1, (slot, pattern)
            copy.write_text(without)
            with pytest.raises(ScriptFault, match=f"script {path.stem}"):
                load_script(copy, where)
