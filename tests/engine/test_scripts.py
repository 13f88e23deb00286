"""The loader holds the header and the body of a script together, in both directions; the flags of rule 2."""

import hashlib
import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncQueue, Channel, Queue, ScriptFault, models
from engine.models.foreign.foreign import REUSED, ForeignKeys
from engine.models.lanes_keys import LanesKeys
from engine.models.model import _ATTRIBUTES as ATTRIBUTES  # pyright: ignore[reportPrivateUsage]
from engine.models.model import FilledSlots
from engine.options import PLAIN
from engine.redis import scripts
from engine.redis.scripts import layers_of, linked_functions, linked_model, load_model, load_script, scripts_folder, with_head
from tests.engine.helpers.slots import check_slots
from tests.engine.using import Bury, Call, Enqueue, Operation, Release, refused

LANES = layers_of(scripts_folder(), "lanes")
FILES = {path.stem: path for layer in LANES for folder in layer for path in folder.glob("*.lua")}
REAL = sorted(FILES)
ALLOW_OOM = {
    "extend", "finish", "retry", "bury", "release", "mark", "sweep", "claim", "pause", "resume", "set_limit", "enable_schedule",
    "remove_schedule", "beat", "orphans", "reap_lost", "lock_extend", "lock_release", "replication_probe", "drop",
    "read_worker_updates", "set_worker", "look", "progress", "discard", "requeue", "revive", "run_now", "clean", "forget",
    "set_retention", "set_events", "set_history", "close_windows", "note_era", "restore_end", "shard_drop",
}  # fmt: skip
READ_ONLY = {
    *("counts", "listing", "schedules", "workers", "inspect", "page", "list_run_times", "list_history"),
    *("obstacles", "why", "relatives"),
}

SAMPLE = """#!lua flags=allow-oom
-- A sample.
--
-- KEYS
--   lane     zset  ids
--   active   zset  ids
--   items    2 for each item: job and run
-- ARGV
--   now_ms   number: the time
--   items    3 for each item: id, fence, nonce
-- REPLY srv_us
-- USES dsps/numbers: double

return { double(now_ms), lane, active, KEYS[3], ARGV[2] }
"""
#: Lines of its header.
ACTIVE, NOW = "--   active   zset  ids\n", "--   now_ms   number: the time\n"
ITEMS = "--   items    2 for each item: job and run\n"
DOUBLE = "-- Twice.\nlocal function double(number)\n  return number * 2\nend\n"
TRIPLE = "\n-- Three times.\nlocal function triple(number)\n\n  return double(number) + number\nend\n"
#: A statement of a script itself, which a slot or a function is not.
STATEMENT = re.compile(r"^(?!#|--|end$|function |local (?:function|rarely)\b|local \w+ = .*\])\S.*", re.MULTILINE)
NUMBERS = "-- Numbers.\n\n" + DOUBLE + TRIPLE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a model with the sample and its module."""
    folder = tmp_path / "dsps"
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "numbers.lua").write_text(NUMBERS)
    (folder / "sample.lua").write_text(SAMPLE)
    return folder


def changed(folder: Path, old: str, new: str) -> Path:
    """The sample with one piece replaced."""
    assert SAMPLE.count(old) == 1, old
    path = folder / "sample.lua"
    path.write_text(SAMPLE.replace(old, new))
    return path


def test_the_sample_loads(folder: Path) -> None:
    script = load_script(folder / "sample.lua")
    assert (script.name, script.keys, script.arguments) == ("sample", ("lane", "active"), ("now_ms",))
    assert (script.key_groups, script.argument_groups) == ((2,), (3,))
    bindings = "local lane = KEYS[1]\nlocal active = KEYS[2]\nlocal now_ms = tonumber(ARGV[1])\n"
    assert bindings + DOUBLE + "\nreturn" in script.text and "USES" not in script.text
    assert DOUBLE in script.text and "triple" not in script.text
    assert script.digest == hashlib.sha1(script.text.encode()).hexdigest()


@pytest.mark.parametrize(("old", "new", "message"), [
    (ACTIVE, "", "active is used and declared nowhere"), (NOW, "", "now_ms is used and declared nowhere"),
    (NOW, NOW + "--   lane     a name\n", "lane is declared in KEYS and in ARGV"),
    ("\nreturn", "\nlocal lane = KEYS[1]\nreturn", "declares lane, the body declares it again"),
    ("lane, active,", "lane, active, dead,", "dead is used and declared nowhere"),
    (", lane, active,", ", lane,", "active is declared and never used"),
    ("lane, active, KEYS[3], ARGV[2] }", "active, KEYS[3], ARGV[2] } -- lane", "lane is declared and never used"),
    ("double(now_ms)", "double(1)", "now_ms is declared and never used"), ("-- REPLY srv_us\n", "", "lacks KEYS, ARGV or REPLY"),
    ("-- KEYS\n", "", "lacks KEYS, ARGV or REPLY"), ("-- ARGV\n", "", "lacks KEYS, ARGV or REPLY"),
    ("#!lua flags=allow-oom\n", "", "first line is not #!lua"),
    ("#!lua flags=allow-oom\n", "#!lua flags=ALLOW\n", "first line is not #!lua"),
    ("#!lua flags=allow-oom\n", "\n#!lua flags=allow-oom\n", "first line is not #!lua"),
    ("2 for each item: job and run", "job and run", "items in KEYS .* how many slots"),
    (ACTIVE + ITEMS, ITEMS + ACTIVE, "items in KEYS come last"),
    ("return { double(now_ms)", "return { fourfold(double(now_ms))", "fourfold is used and declared nowhere"),
    ("-- USES dsps/numbers: double\n", "", "USES lacks dsps/numbers: double"),
    ("numbers: double\n", "numbers: double,\n--      triple\n", "USES names triple, which it does not use"),
    ("return { double(now_ms)", "return { now_ms", "USES names double, which it does not use"),
    ("USES dsps/numbers", "USES dsps/words", "USES says dsps/words: double, but it is in dsps/numbers"),
])  # fmt: skip
def test_a_header_that_the_body_denies(folder: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScriptFault, match=message) as caught:
        load_script(changed(folder, old, new))
    assert "sample.lua" in str(caught.value) and "\n" not in str(caught.value)


def test_a_head_brings_the_first_slots_and_the_first_statement(folder: Path) -> None:
    head = (
        "--\n-- HEAD of the scripts here.\n-- KEYS\n--   lane  zset  ids\n-- ARGV\n--   at_ms  number: a time\n"
        "-- FIRST triple(at_ms)\n"
    )
    (folder / "modules" / "numbers.lua").write_text(NUMBERS.replace("-- Numbers.\n", f"-- Numbers.\n{head}"))
    path = changed(folder, "-- KEYS\n--   lane     zset  ids\n", "-- HEAD dsps/numbers\n-- KEYS\n")
    script = load_script(path)
    assert (script.keys, script.arguments) == (("lane", "active"), ("at_ms", "now_ms"))
    assert "local lane = KEYS[1]\nlocal active = KEYS[2]\nlocal at_ms = tonumber(ARGV[1])\n" in script.text
    assert "HEAD" not in script.text and "--   at_ms  number: a time\n--   now_ms" in script.text
    assert f"{DOUBLE}{TRIPLE[1:]}triple(at_ms)\n\nreturn" in script.text and "FIRST" not in script.text
    # A script that calls the function itself says where, and so has to name it, and all slots.
    path.write_text(path.read_text().replace("double(now_ms)", "triple(now_ms)"))
    refused(ScriptFault, "sample.lua: at_ms is declared and never used", load_script, path)
    path.write_text(path.read_text().replace("triple(now_ms)", "triple(now_ms + at_ms)"))
    refused(ScriptFault, "USES names double, which it does not use", load_script, path)
    path.write_text(path.read_text().replace(": double", ": triple"))
    assert "triple(at_ms)" not in load_script(path).text
    path.write_text(path.read_text().replace("HEAD dsps/numbers", "HEAD dsps/words"))
    refused(ScriptFault, "script sample.lua: dsps/words has no HEAD", load_script, path)


def test_a_script_gets_the_functions_that_it_uses_behind_what_these_use(folder: Path) -> None:
    path = changed(folder, "double(now_ms)", "triple(now_ms)")
    path.write_text(path.read_text().replace(": double", ": triple"))
    text = load_script(path).text
    assert text.index(DOUBLE) < text.index(TRIPLE) < text.index("return { triple(now_ms)")
    assert linked_functions(["double"], [(folder,)]) == DOUBLE
    assert linked_functions(["triple"], [(folder,)]) == DOUBLE + TRIPLE[1:]
    refused(ScriptFault, "caller: fourfold is used and declared nowhere", linked_functions, ["fourfold"], [(folder,)])


def test_a_module_says_what_it_uses_of_others(folder: Path) -> None:
    path, more = folder / "sample.lua", folder / "modules" / "more.lua"
    fourfold = "\nlocal function fourfold(number)\n  return double(double(number))\nend\n"
    path.write_text(SAMPLE.replace("double(now_ms)", "fourfold(now_ms)").replace("numbers: double", "more: fourfold"))
    for uses, message in (
        ("", "module more.lua: USES lacks dsps/numbers: double"),
        ("-- USES dsps/numbers: double, triple\n", "module more.lua: USES names triple, which it does not use"),
        ("-- USES dsps/more: double\n", "module more.lua: USES says dsps/more: double, but it is in dsps/numbers"),
    ):
        more.write_text(f"-- More numbers.\n{uses}{fourfold}")
        refused(ScriptFault, message, load_script, path)
    more.write_text(f"-- More numbers.\n-- USES dsps/numbers: double\n{fourfold}")
    text = load_script(path).text
    assert text.index(DOUBLE) < text.index(fourfold[1:]) < text.index("return { fourfold") and "USES" not in text


def test_functions_of_rare_cases_are_made_when_one_of_them_is_needed(folder: Path, raw: Any) -> None:
    """They see the functions that are always there, and each other; strings and comments with their names stay as they are."""
    path = changed(folder, ": double\n", ": double, sixfold, triple\n-- RARELY sixfold, triple\n")
    sixfold = "\nlocal function sixfold(number)\n  return double(triple(number))\nend\n"
    (folder / "modules" / "numbers.lua").write_text(f"-- Numbers.\n-- RARELY triple\n\n{DOUBLE}{TRIPLE}{sixfold}")
    body = (
        "if now_ms > 5 then return { triple(now_ms), 'sixfold' } end -- sixfold\n"
        "return { double(now_ms), sixfold(now_ms), lane, active }\n"
    )
    path.write_text(path.read_text().partition("\nreturn")[0] + "\n" + body)
    text = load_script(path).text
    always, _, rest = text.partition("\nfunction rarely()\n")
    assert "RARELY" not in text and DOUBLE in always and "local function triple" not in always and "local function triple" in rest
    assert "rarely().triple(now_ms), 'sixfold' } end -- sixfold\nreturn { double(now_ms), rarely().sixfold(now_ms)" in rest
    assert raw.eval(text, 2, "lane", "active", "7") == [21, b"sixfold"]
    assert raw.eval(text, 2, "lane", "active", "4") == [8, 24, b"lane", b"active"]
    path.write_text(path.read_text().replace("RARELY sixfold", "RARELY double, fourfold, sixfold"))
    refused(ScriptFault, "script sample.lua: RARELY names fourfold, which it does not use", load_script, path)


def test_a_shared_script_says_that_a_function_is_of_the_format(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("shared") / "sample.lua"
    path.write_text(SAMPLE)
    refused(ScriptFault, "but it is in <format>", load_script, path, [(folder,), (path.parent,)])
    path.write_text(SAMPLE.replace("dsps/numbers", "<format>"))
    assert DOUBLE in load_script(path, [(folder,), (path.parent,)]).text
    (path.parent / "modules").mkdir()
    (path.parent / "modules" / "own.lua").write_text(DOUBLE)
    refused(
        ScriptFault, "module own.lua: dsps/numbers has a function double, too", load_script, path, [(folder,), (path.parent,)]
    )


@pytest.mark.parametrize(("module", "message"), [
    (NUMBERS + "redis.call('SET', 'a', 'b')\n", r"numbers\.lua: \"redis.call\('SET', 'a', 'b'\)\" is not inside a function"),
    (NUMBERS + "local most = 1\n", "is not inside a function"), (NUMBERS.replace("\nend\n", "\n"), "is not inside a function"),
    (NUMBERS + DOUBLE, "dsps/numbers has a function double, too"),
    (NUMBERS.replace("* 2", "* twice"), "module numbers.lua: twice is used and declared nowhere"),
    (NUMBERS.replace("number * 2", "triple(number)"), "functions use each other in a circle: double -> triple -> double"),
    ("-- Numbers.\n", "script sample.lua: double is used and declared nowhere"),
    ("", "script sample.lua: double is used and declared nowhere"),
])  # fmt: skip
def test_a_module_holds_functions_alone_each_once_and_in_no_circle(folder: Path, module: str, message: str) -> None:
    """What stood beside the functions would run in every script that uses one of them."""
    (folder / "modules" / "numbers.lua").write_text(module)
    refused(ScriptFault, message, load_script, folder / "sample.lua")


def test_a_name_stands_once_in_the_folders_of_a_model(tmp_path: Path) -> None:
    lua = tmp_path / "lua"
    shutil.copytree(scripts_folder(), lua)
    again = lua / "admin" / "claim.lua"
    shutil.copy(lua / "core" / "claim.lua", again)
    for model in ("lanes", "bull"):
        refused(ScriptFault, "script claim.lua: core and admin have one", load_model, lua, model)
    again.unlink()
    shutil.copy(lua / "core" / "modules" / "lock.lua", lua / "children" / "modules" / "own.lua")
    refused(ScriptFault, "module own.lua: core/lock has a function lock_read, too", load_model, lua, "lanes")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    refused(ScriptFault, "no folder of scripts", load_model, tmp_path, "lanes")
    refused(ScriptFault, "no folder of scripts", Queue, "q", lua=tmp_path)


class Keys:
    active = "A"

    def lane(self, name: str) -> str:
        return f"L:{name}"


def test_slots_are_filled_by_name(folder: Path) -> None:
    slots = FilledSlots(Keys(), {"sample": load_script(folder / "sample.lua")}, {})
    slots.now_ms = 5
    release = Release(())

    def bound(*items: str, operation: Operation = release, **given: str) -> Call[Any]:
        return slots.bound(operation, "sample", (items,), ((),), **given)

    refused(ScriptFault, "script sample: nothing fills a slot of its header: .*'lane'", bound, "j", "r")
    call = bound("j", "r", lane="mine")
    assert (call.keys, call.arguments) == (("mine", "A", "j", "r"), (5,))
    refused(ScriptFault, "Release: a slot of its script is given in other calls and not in this one", bound, "j", "r")
    refused(ScriptFault, r"script sample: KEYS wants groups of \(2,\), got \[1\]", bound, "j", lane="mine")
    refused(ScriptFault, "script sample: its header has no slot more", bound, "j", "r", operation=Bury(()), lane="mine", more="6")
    # A method of the keys makes the key of a field.
    assert bound("j", "r", operation=Enqueue("j", "mail", b"", b"", PLAIN)).keys == ("L:mail", "A", "j", "r")


def test_every_real_script_loads() -> None:
    loaded = load_model(scripts_folder(), "lanes")
    assert sorted(loaded) == REAL and ALLOW_OOM | READ_ONLY | {"enqueue"} <= set(REAL)
    for script in loaded.values():
        # Of a restore `sweep` is closed, which says whether a test may give the time.
        assert "now_ms" in script.arguments or script.name in ("make_test_queue", "restore_load", "restore_end")
        # Most enqueues name fewer keys, so that their calls are short.
        assert "sweep" in script.keys or script.name == "enqueue"
    with pytest.raises(TypeError):
        loaded["more"] = loaded["claim"]  # type: ignore[index]


@pytest.mark.parametrize("name", REAL)
def test_flags_of_rule_2(name: str) -> None:
    """What ends or keeps a lease must work when memory is full; what adds a job must not."""
    first = load_script(FILES[name], LANES).text.splitlines()[0]
    flags = set(re.findall(r"[a-z-]+", first.partition("flags=")[2]))
    assert first.startswith("#!lua")
    wanted = {"allow-oom"} if name in ALLOW_OOM else {"no-writes"} if name in READ_ONLY else set()
    assert flags == wanted, "a script with a flag stands in ALLOW_OOM or READ_ONLY above"


@pytest.mark.parametrize("name", REAL)
def test_rule_27_a_script_that_makes_keys_of_its_own_waits_until_the_slot_is_settled(name: str) -> None:
    """A key that is not in KEYS reads as missing at the node that it has not reached; those in KEYS the server looks after."""
    script = load_script(FILES[name], LANES)
    before, settles, _ = FILES[name].read_text().partition("\n\n")[2].partition("settled(prefix")
    if not settles:
        before, settles, _ = script.text.partition("\nsettled(prefix)\n")
        assert bool(settles) == ("prefix" in script.arguments)
        # Nothing but slots and functions stands before it.
        assert not settles or not STATEMENT.search(before)
        return
    reads = re.compile(r"\bredis\.p?call\('[A-Z]+', (\w+)|\b(check_types|lanes_of|schedule_call)\(")
    for key, function in reads.findall(before):
        # While the slot moves the server refuses a plain enqueue by itself, because the key of its job is missing.
        of_plain = name == "enqueue" and (function == "check_types" or key in ("classes", "parked", "wake"))
        assert key in script.keys or of_plain, (key, function)


@pytest.mark.parametrize("name", REAL)
def test_each_slot_of_a_real_script_is_held(name: str, tmp_path: Path) -> None:
    check_slots(FILES[name], tmp_path, LANES)


def test_another_folder_of_scripts_is_used(tmp_path: Path, ironclaim_url: str) -> None:
    """Mutants replace the folder: what runs on the server is that text."""
    lua = tmp_path / "lua"
    shutil.copytree(scripts_folder(), lua)
    path = lua / "core" / "enqueue.lua"
    path.write_text(path.read_text().replace("srv_us, sequence }", "srv_us, 'created', 'mutant', sequence, id }"))
    queue = Queue("q", url=ironclaim_url, lua=lua)
    assert queue.enqueue("work", {}).state == "mutant"
    queue.close()


@pytest.mark.parametrize("make", [
    lambda lua: Queue("q", lua=lua), lambda lua: AsyncQueue("q", lua=lua), lambda lua: Queue("q", models.Bull(), lua=lua),
    lambda lua: Channel("q", models.Dsps(), lua=lua),
], ids=["queue", "async queue", "foreign", "channel"])  # fmt: skip
def test_a_process_reads_a_folder_once(make: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service has many queues: only the first one pays for the scripts."""
    lua = tmp_path / "lua"
    shutil.copytree(scripts_folder(), lua)
    first = make(lua)
    shutil.rmtree(lua)
    second = make(lua)
    if not isinstance(first, Channel):
        assert second.model.scripts is first.model.scripts
    monkeypatch.setattr(scripts, "PIECE_WORDS", 4)
    refused(ScriptFault, "no folder of scripts", make, lua)


def test_what_all_models_are_linked_of_is_kept_within_a_bound() -> None:
    """One piece that is dropped before the last model has it, and each is made again and again."""
    lua, caches = scripts_folder(), (scripts._with_constants, scripts._with_rare, scripts._module)
    for cache in caches:
        cache.cache_clear()
    for model in scripts.all_models(lua):
        linked_model(lua, model, REUSED)
    found = [cache.cache_info() for cache in caches]
    assert all(info.hits and info.misses == info.currsize < (info.maxsize or 0) for info in found), found


def test_a_folder_that_failed_to_load_is_read_again(folder: Path) -> None:
    path = changed(folder, "double(now_ms)", "fourfold(now_ms)")
    refused(ScriptFault, "fourfold is used", load_model, folder.parent, "dsps")
    path.write_text(SAMPLE)
    assert [*load_model(folder.parent, "dsps")] == ["sample"]


def test_linked_scripts_count_until_a_file_is_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel brings them; who changes a script or a module of an installed engine, or the size of a piece, gets the change."""
    linked = linked_model(folder.parent, "dsps", ())
    scripts._load.cache_clear()
    anew = load_model(folder.parent, "dsps")
    (folder / "linked.json").write_text(linked)
    with monkeypatch.context() as patched:
        patched.setattr(scripts, "_link_all", None)
        scripts._load.cache_clear()
        assert load_model(folder.parent, "dsps") == anew and [*anew] == ["sample"]
    for path, old, new in ((folder / "sample.lua", "now_ms)", "now_ms, 1)"), (folder / "modules" / "numbers.lua", "* 2", "* 3")):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        scripts._load.cache_clear()
        assert new in load_model(folder.parent, "dsps")["sample"].text
        path.write_text(text)
    monkeypatch.setattr(scripts, "_link_all", lambda *_: [])
    monkeypatch.setattr(scripts, "PIECE_WORDS", 4)
    assert not load_model(folder.parent, "dsps")


def test_the_size_of_a_piece_is_put_where_a_script_names_it(folder: Path) -> None:
    path = changed(folder, "double(now_ms)", "double(now_ms) + PIECE / 2 .. 'PIECES'")
    (folder / "modules" / "numbers.lua").write_text(DOUBLE.replace("2", "PIECE"))
    assert scripts.PIECE_WORDS == 1000
    for words, script in ((1000, load_script(path)), (4, load_script(path, (), 4))):
        assert f"double(now_ms) + {words} / 2 .. 'PIECES'" in script.text and f"number * {words}\n" in script.text


def test_a_number_that_has_a_word_is_not_spelled_and_the_server_gets_the_number(folder: Path) -> None:
    text = load_script(changed(folder, "double(now_ms)", "double(now_ms) + BAND / CRASHES_MAX")).text
    assert f"double(now_ms) + {1 << 49} / 3," in text
    numbers = {str(number) for name, number in scripts.CONSTANTS.items() if number > 100_000 and name != "ERROR_TTL_MS"}
    spelled = re.compile(rf"\b({'|'.join(sorted(numbers))})\b|\+ {scripts.LATE_COPY_MS}\b")
    for path in scripts_folder().rglob("*.lua"):
        if path.parent.name != "published":
            assert not spelled.search(path.read_text()), path


#: While a backup is restored these hold other types, so that no other script begins.
OTHER_TYPES = {("restore_end", "sweep"), ("restore_end", "seq"), ("restore_load", "sweep"), ("restore_load", "seq")}
TYPED = re.compile(r"^--   (\w+) +(string|hash|list|zset|set|stream) ", re.MULTILINE)


def types_of(keys: type[Any], path: Path) -> Iterator[tuple[str, str, str]]:
    """Slot, its type by the header, and its type by the class of the keys, of each key that this has."""
    layers = layers_of(scripts_folder(), "bull" if keys is ForeignKeys else "lanes")
    for slot, told in TYPED.findall(with_head(path, layers).partition("-- ARGV")[0]):
        key = getattr(keys, ATTRIBUTES.get(slot) or slot, None)
        if key is not None and (path.stem, slot) not in OTHER_TYPES:
            yield slot, told, (inspect.getdoc(key) or "").split()[0].strip(":").lower()


def test_headers_and_keys_agree_on_the_type_of_each_key() -> None:
    own = [path for layer in LANES for folder in layer for path in folder.glob("*.lua")]
    shared = list((scripts_folder() / "foreign").glob("*.lua"))
    places: list[tuple[type[Any], list[Path]]] = [(LanesKeys, own), (ForeignKeys, shared)]
    found = [(path.stem, *types) for keys, paths in places for path in sorted(paths) for types in types_of(keys, path)]
    assert len(found) > 300 and [types for types in found if types[2] != types[3]] == []
