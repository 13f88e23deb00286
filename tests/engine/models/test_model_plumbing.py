"""What a queue and the loader make of a model: its place in the constructor, its scripts, and what it does not have.
The scripts of foreign models load with their wires, have the flags of rule 2, and hold header and body together."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import AsyncQueue, Malformed, Queue, ScriptFault, UnsupportedFeature, models
from engine.models.foreign import foreign
from engine.models.foreign.foreign import REUSED, pack, unpack
from engine.redis.scripts import declared_uses, functions_of_formats, layers_of, linked_functions, load_model, scripts_folder
from tests.engine.helpers.slots import check_slots
from tests.engine.using import Enqueue, Lease, LeasedJob, Pause, refused

LISTED = functions_of_formats(scripts_folder() / "foreign")
REQUIRED = [name for name, optional in LISTED.items() if not optional]
WIRE = f"""-- A wire.
local function wire(root)
  return {{ root = root, part = part_of(root) }}
end
{"".join(f"{chr(10)}local function {name}(w){chr(10)}  return w.root{chr(10)}end{chr(10)}" for name in REQUIRED)}"""
PART = "-- A part of it.\nlocal function part_of(root)\n  return root .. 'part'\nend\n"
OWN = """#!lua flags=allow-oom
-- Its own.
--
-- KEYS
--   sweep  hash  state of the sweeps
-- ARGV
--   root   what its keys begin with
-- REPLY the part
-- USES tiny/wire: wire, wire_check, wire_locked

return { wire(root).part, sweep, wire_check({ root = 'x' }), wire_locked() == nil and 1 or 0 }
"""


class Tiny(foreign.Foreign):
    """A model that holds nothing but a name and a payload."""

    name, OPTIONS, LACKS = "tiny", frozenset({"delay_ms"}), frozenset({Pause})

    def encode(self, job: Enqueue) -> bytes:
        return pack(job.payload, job.name)

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        raise NotImplementedError


class TinySpec:
    """As a queue is given it."""

    prefix = "small"

    def bind(self, queue: str, prefix: str, lua: Path | None) -> Tiny:
        return Tiny(queue, prefix, lua=lua)


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of scripts with a model of its own."""
    lua = shutil.copytree(scripts_folder(), tmp_path_factory.mktemp("scripts") / "lua")
    modules = lua / "foreign" / "tiny" / "modules"
    modules.mkdir(parents=True)
    (modules / "wire.lua").write_text(PART + WIRE)
    (lua / "foreign" / "tiny" / "own.lua").write_text(OWN)
    return lua


@pytest.fixture
def queue(lua: Path) -> Any:
    """A queue of that model, on a server that is not there."""
    with Queue("q", TinySpec(), url="redis://127.0.0.1:1", lua=lua) as made:
        yield made


def test_a_queue_has_its_model_second_and_the_prefix_of_the_model(lua: Path, queue: Queue) -> None:
    keys = queue.model.keys
    assert (queue.model.name, keys.prefix, keys.active) == ("tiny", "small:ironclaim:", "small:ironclaim:active")
    assert Queue("q", TinySpec(), prefix="other", lua=lua).model.keys.queues == "other:ironclaim:queues"
    assert AsyncQueue("q", TinySpec(), lua=lua).model.name == "tiny"
    assert (Queue("q").model.name, Queue("q", models.Lanes()).model.keys.prefix) == ("lanes", "ic:{q}:")
    assert queue.model.sibling("r").keys.queue == "r"
    for wrong in ("bull", 5, models.Bull):
        refused(Malformed, "^prefix: |^model: ", Queue, "q", wrong)


def test_the_specs_are_values_with_a_prefix_of_their_own() -> None:
    made = (models.Lanes(), models.Bridge(), models.Bananas(), models.Bull(), models.Mosquito())
    assert [spec.prefix for spec in made] == ["ic", "bridge", "bananas", "bull", "mosquito"]
    assert models.Bananas() == models.Bananas(layout="document") != models.Bananas(layout="live")
    refused(Malformed, "^layout: ", models.Mosquito, layout="old")
    assert engine.models is models and models.Finding("n", ("J1",), "t").name == "n"


def test_an_option_and_an_operation_that_the_model_lacks_are_refused_before_any_io(queue: Queue) -> None:
    refused(UnsupportedFeature, "^tiny has no option unique", queue.enqueue, "work", {}, unique="u")
    with pytest.raises(UnsupportedFeature, match=r"^jobs\[1\]: tiny has no option priority"):
        queue.enqueue_many([{"name": "work", "payload": 1}, {"name": "work", "payload": 1, "priority": 9}])
    refused(UnsupportedFeature, "^tiny has no Pause", queue.pause)


def test_what_the_engine_needs_of_lanes_is_loaded_beside_the_model_s_own(lua: Path, raw: Any) -> None:
    scripts = load_model(lua, "tiny", foreign.REUSED)
    assert {"own", *foreign.REUSED} <= {*scripts}
    assert raw.eval(scripts["own"].text, 1, "sweep", "r:") == [b"r:part", b"sweep", b"x", 1]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_format_that_lacks_a_function_is_refused(lua: Path, name: str) -> None:
    path = lua / "foreign" / "tiny" / "modules" / "wire.lua"
    path.write_text((PART + WIRE).replace(f"function {name}(", "function other("))
    try:
        refused(ScriptFault, f"model tiny: its wire lacks {name}$", load_model, lua, "tiny", ())
    finally:
        path.write_text(PART + WIRE)


def test_shared_scripts_call_nothing_of_a_format_that_is_not_listed() -> None:
    shared = scripts_folder() / "foreign"
    paths = [*shared.glob("*.lua"), *(shared / "modules").glob("*.lua")]
    used = {name for path in paths for name, module in declared_uses(path.read_text()).items() if module == "<format>"}
    assert used == {"wire", *LISTED}


def test_a_model_without_a_folder_of_scripts(lua: Path) -> None:
    refused(ScriptFault, "no folder of scripts", load_model, lua, "absent", ())


@pytest.mark.parametrize("fields", [(), (b"",), (b"\0\xff", "text ä", -5, b"x" * 300)])
def test_fields_are_the_same_in_lua(fields: tuple[Any, ...], raw: Any) -> None:
    packed = pack(*fields)
    wanted = [field if isinstance(field, bytes) else str(field).encode() for field in fields]
    linked = linked_functions(["unpack_fields"], layers_of(scripts_folder(), "bull"))
    assert raw.eval(linked + "return unpack_fields(ARGV[1])", 0, packed) == wanted == unpack(packed)
    for cut in range(1, len(packed)):
        try:
            assert unpack(packed[:cut]) != wanted
        except ValueError as error:
            assert "missing" in str(error)


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
