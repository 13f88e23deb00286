"""The scripts of foreign models load with their wires, have the flags of rule 2, and hold header and body together."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.models.foreign.foreign import REUSED
from engine.redis.scripts import layers_of, load_model, scripts_folder
from tests.engine.helpers.slots import check_slots

LUA = scripts_folder()
SHARED = sorted(path.stem for path in (LUA / "foreign").glob("*.lua"))
MODELS = ("bridge", "bananas", "bull", "mosquito")
#: What adds jobs must not work when memory is full, and what only looks may run on a replica.
ADDING = {"enqueue", "tick", "put_schedule"}
READ_ONLY = {"counts", "listing", "inspect", "page", "read_progress", "schedules", "workers"}
#: Lua's own bound for the names of one function.
LOCALS_MAX = 200


@pytest.mark.parametrize("model", MODELS)
def test_each_script_of_a_model_is_what_the_server_accepts(model: str, raw: Any) -> None:
    scripts = load_model(LUA, model, REUSED)
    assert {*SHARED, *REUSED} <= {*scripts}
    for script in scripts.values():
        assert raw.script_load(script.text) == script.digest, script.name
        assert "sweep" in script.keys or script.name not in SHARED
    texts = {name: len(re.findall(r"^local ", script.text, re.MULTILINE)) for name, script in scripts.items()}
    assert max(texts.values()) < LOCALS_MAX


def test_rule_02_flags_of_the_shared_scripts() -> None:
    for name in SHARED:
        flags = set(re.findall(r"[a-z-]+", (LUA / "foreign" / f"{name}.lua").read_text().splitlines()[0].partition("flags=")[2]))
        assert flags == (set() if name in ADDING else {"no-writes"} if name in READ_ONLY else {"allow-oom"}), name


@pytest.mark.parametrize("name", SHARED)
def test_each_slot_of_a_shared_script_is_held(name: str, tmp_path: Path) -> None:
    check_slots(LUA / "foreign" / f"{name}.lua", tmp_path, layers_of(LUA, "bull"))
