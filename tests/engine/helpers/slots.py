"""Whether a script's header and body are held together, slot by slot."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from engine import ScriptFault
from engine.redis.scripts import Layer, load_script, with_head
from tests.engine.helpers.producing import refused


def check_slots(path: Path, tmp_path: Path, where: Sequence[Layer] = ()) -> None:
    """Take any one slot out of the header of a script, or add one that it does not use, and it no longer loads."""
    folder = tmp_path / path.parent.name
    folder.mkdir()
    if not where:  # it is linked with the modules beside it
        shutil.copytree(path.parent / "modules", folder / "modules")
    copy, source, script = folder / path.name, path.read_text(), load_script(path, where)
    whole = with_head(path, where or [(path.parent,)])
    for slot in (*script.keys, *script.arguments):
        without, count = re.subn(rf"^--   {slot}\s.*\n", "", whole, flags=re.MULTILINE)
        assert count, slot
        copy.write_text(without)
        refused(ScriptFault, f"script {path.stem}", load_script, copy, where)
    copy.write_text(source.replace("-- ARGV\n", "-- ARGV\n--   unused_slot  what no line reads\n"))
    refused(ScriptFault, "unused_slot", load_script, copy, where)
