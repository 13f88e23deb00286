"""Rules 1 to 7, 23, 25 and 26 for every scene: cut off after any write, sent twice, late, and in a full memory."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.models.lanes import Lanes
from engine.redis.scripts import scripts_folder
from tests.engine.helpers.scenes import STEPS, check_outcome, cut_off_after, cuts, drain, saved, words
from tests.engine.using import TOMBSTONE, WRITES, Alter, Call, Desk, Operation, Revive, check, members
from tests.scenes import CLASSES, MOVING, SCENES, Scene, busy, limited, relatives

SCRIPTS = Lanes("desk").scripts
#: Those of a restore and of shards go by the server's own time; test_backup.py and test_resharding.py cut them off.
WRITING = [scene for scene in SCENES if scene.writes and "now_ms" in SCRIPTS[scene.script].arguments]
TIMED = [scene for scene in SCENES if "now_ms" in SCRIPTS[scene.script].arguments and scene.script != "replication_probe"]
#: The busy world has every key for the sake of a slot that moves: of a script that has a scene elsewhere, that one is enough.
ELSEWHERE = {scene.script for scene in SCENES if scene.world not in (busy, relatives)}
CUT = [scene for scene in WRITING if scene.world not in (busy, relatives) or scene.script not in ELSEWHERE]
#: The script of a full server runs all the same.
FREE = [scene for scene in CUT if "allow-oom" in SCRIPTS[scene.script].text.split("\n")[0]]

#: Another copy of this sweep goes on where the first one has stopped: with the children of those that it has buried.
GOES_ON = "sweep: children of a dead one"

#: Kinds of keys that a queue has for good, of whatever became of its jobs.
LASTING = {
    "seq", "sweep", "stats", "classes", "done", "dead", "wake", "settings", "routed", "news", "workers", "cron", "took", "limits",
    "paused", "retention", "events", "history", "arrived", "witness", "shards", "wait", "lock", "era", "rest", "connections",
}  # fmt: skip
#: After these a second copy has put everything right, also what counts against limits.
WHOLE = ("enqueue", "enqueue_many", "finish", "release", "retry", "bury", "extend", "pause", "resume", "set_limit")
#: What is added to the time of a result that is kept for a child.
KEPT_MS = 2**48


def each(scenes: list[Scene]) -> Any:
    return pytest.mark.parametrize("scene", scenes, ids=lambda scene: scene.id)


def by_turns() -> Iterator[Any]:
    """Each scene, sent again and never again: the first tier has by turns the one or the other of a script that has several."""
    several, seen = Counter(scene.script for scene in CUT), Counter[str]()
    for scene in CUT:
        seen[scene.script] += 1
        for resend, said in ((True, "sent again"), (False, "never again")):
            later = several[scene.script] > 1 and (seen[scene.script] + resend) % 2
            yield pytest.param(scene, resend, id=f"{scene.id}-{said}", marks=[pytest.mark.slow] if later else [])


def test_every_script_has_a_scene() -> None:
    assert {scene.script for scene in SCENES} == set(SCRIPTS)
    assert len({(scene.name, scene.world) for scene in SCENES}) == len(SCENES)


def test_the_list_of_write_commands_holds_every_one_that_a_script_calls(desk: Desk) -> None:
    """`Desk.cut_off` counts those; one that it does not know would never be cut off."""
    texts = [path.read_text() for path in scripts_folder().rglob("*.lua")]
    called = {name for text in texts for name in re.findall(r"redis\.call\(\s*'(\w+)'", text)}
    known: Any = desk.redis.command()
    assert {name for name in called if "write" in known[name.lower()]["flags"]} <= set(WRITES)
    assert set(WRITES) <= called, "a command that no script calls any more"


def alive(state: dict[str, Any], desk: Desk) -> set[str]:
    """Jobs of a dump that have not ended."""
    start = desk.keys.job("")
    return {key.removeprefix(start) for key, kept in state.items() if key.startswith(start) and kept[1][:1] != TOMBSTONE}


def leaks(state: dict[str, Any], desk: Desk) -> set[str]:
    """Keys of jobs that do not expire, but for those of the dead; one that is unique keeps nobody out."""
    dead = {member.decode() for member, _ in state.get(desk.keys.dead, ("", ()))[1]}
    lasting = {key.removeprefix(desk.keys.prefix): kept[1] for key, kept in state.items() if not 0 <= kept[2] <= KEPT_MS}
    of_dead = {f"{kind}:{job}" for kind in ("job", "run") for job in dead}
    of_jobs = {key: value for key, value in lasting.items() if key.split(":")[0] not in LASTING and key not in of_dead}
    return {key for key, value in of_jobs.items() if not (key.startswith("unique:") and value.decode() in dead)}


@pytest.mark.feature("BQ35")
@STEPS
@pytest.mark.parametrize(("scene", "resend"), list(by_turns()))
def test_rule_01_a_script_cut_off_anywhere_loses_doubles_leaks_nothing(desk: Desk, scene: Scene, resend: bool, step: int) -> None:
    operation = scene.begin(desk)
    there, dead_before = alive(desk.dump(), desk), set(members(desk, desk.keys.dead))
    for writes, reply in cuts(desk, scene, operation, step, resend):
        with cut_off_after(writes):
            if resend:
                check(desk, cut=scene.world is not limited or scene.script not in WHOLE)
            finished, dead = drain(desk, operation), set(members(desk, desk.keys.dead))
            check_outcome(scene, operation, reply, there=there, dead_before=dead_before, finished=finished, dead=dead)
            assert alive(desk.dump(), desk) == dead
            if reply and isinstance(operation, Alter | Revive):
                assert {item.job for item in reply.items if item.done} == scene.gone | scene.runs
            assert leaks(desk.sweeps(2, 20_000).dump(), desk) == set()


@each(WRITING)
def test_rules_02_to_07_it_is_done_in_a_full_memory_and_copies_change_nothing_and_start_nothing(desk: Desk, scene: Scene) -> None:
    call = desk.call(scene.begin(desk))
    assert call.script is not None and call.script.name == scene.script
    before = desk.dump()
    with desk.full(scene in FREE):
        first = desk.send(call)
    after = desk.dump()
    assert after != before
    if scene.name != GOES_ON:
        a_second_copy_changes_no_key_and_tells_the_same(desk, call, first, after)
    if scene in CUT:
        drain(desk, call.operation)
        a_copy_that_arrives_when_all_is_over_starts_nothing(desk, scene, call)


def test_the_ms_that_has_begun_is_the_time_of_a_call_and_the_last_one_in_time_counts(desk: Desk) -> None:
    # One scene of each script; that of replication keeps the time itself.
    chosen = {scene.script: scene for scene in sorted(MOVING, key=lambda scene: scene.writes) if scene in TIMED}
    for scene in chosen.values():
        start, at = saved(desk.begin(), scene.begin), SCRIPTS[scene.script].arguments.index("now_ms")

        def told(now_ms: bytes, start: Callable[[Desk], Operation] = start, at: int = at) -> tuple[str, dict[str, Any]]:
            """The reply at this time, and the keys; the ids in a stream are of the server's own clock."""
            call = desk.call(start(desk))
            reply = desk.queue.driver.run(replace(call, arguments=(*call.arguments[:at], now_ms, *call.arguments[at + 1 :])))
            return words(reply), {key: kept for key, kept in desk.dump().items() if kept[0] != "stream"}

        operation: Any = start(desk)
        assert told(b"%d" % desk.now_ms) == told(b"%d.9" % desk.now_ms), scene.id
        if scene.script not in ("reap_lost", "lock_extend") and (until_ms := getattr(operation, "not_after_ms", 0)):
            replies = told(b"%d.9" % until_ms)[0], told(b"%d" % (until_ms + 1))[0]
            assert ["refused" in reply or "void" in reply for reply in replies] == [False, True], scene.id


def a_second_copy_changes_no_key_and_tells_the_same(desk: Desk, call: Call[Any], first: Any, after: dict[str, Any]) -> None:
    by_hand = hasattr(call.operation, "op_id")
    if by_hand:
        desk.tick(1)
    second = desk.send(call)
    assert words(second) == words(first) and (not by_hand or second.result == "repeated")
    again = desk.dump()
    assert {key: value for key, value in again.items() if value != after.get(key)} == {}
    assert again.keys() == after.keys()


def a_copy_that_arrives_when_all_is_over_starts_nothing(desk: Desk, scene: Scene, call: Call[Any]) -> None:
    keys = desk.keys
    # What a job has ended with is known for half a minute.
    for passed_ms in (0, 60_000):
        before, reply, after = desk.tick(passed_ms).dump(), desk.send(call), desk.dump()
        if hasattr(call.operation, "op_id"):
            assert reply.result == ("refused" if passed_ms else "repeated") and after == before
        elif scene.script != "sweep":
            for key in (keys.limits, keys.paused):
                assert after.get(key) == before.get(key)
        for key in before.keys() | after.keys():
            if key in (keys.due, keys.active) or key.startswith(keys.lane("")):
                assert after.get(key) == before.get(key), key
        assert desk.claim("c", classes=CLASSES) == []
