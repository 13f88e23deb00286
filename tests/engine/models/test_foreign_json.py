"""Parts of the foreign scripts that read and write text: JSON by its members, and times."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.redis.scripts import layers_of, linked_functions, scripts_folder
from tests.walks import examples

FUNCTIONS = ("json_members", "json_raw", "json_set", "json_text")
READ = """local members = json_members(ARGV[1])
if not members then return 'none' end
return { json_raw(members, ARGV[2]) or false, json_text(members) }"""
SET = """local members = json_members(ARGV[1])
for at = 2, #ARGV, 2 do json_set(members, ARGV[at], ARGV[at + 1]) end
local raws = {}
for at = 2, #ARGV, 2 do raws[#raws + 1] = json_raw(members, ARGV[at]) end
return { json_text(members), raws }"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8,
)  # fmt: skip


CHANGES = st.lists(st.tuples(st.sampled_from(["a", "b", "status", ""]), VALUES), min_size=1, max_size=5)


def run(url: str, script: str, *arguments: object) -> Any:
    """What a script that uses the function says."""
    with redis.Redis.from_url(url) as client:
        return client.eval(with_functions(*FUNCTIONS) + script, 0, *arguments)  # type: ignore[arg-type]


@cache
def with_functions(*names: str) -> str:
    return linked_functions(names, layers_of(scripts_folder(), "bananas"))


@pytest.mark.parametrize(("text", "name", "raw"), [
    ('{"a":9007199254740993,"b":1.0}', "a", b"9007199254740993"), ('{"a":9007199254740993,"b":1.0}', "b", b"1.0"),
    (' { "a" : { "b" : [ "}" , "\\"]" ] } , "c" : null } ', "a", b'{ "b" : [ "}" , "\\"]" ] }'),
    ('{"\\u0061":"x\\\\"}', "a", b'"x\\\\"'), ('{"a":1,"a":2}', "a", b"2"), ("{}", "a", None), ("{ }", "a", None),
    ('{"a":"' + "[" * 2000 + '"}', "a", b'"' + b"[" * 2000 + b'"'),
    ('{"a":' + "[" * 2000 + "]" * 2000 + "}", "a", b"[" * 2000 + b"]" * 2000),
])  # fmt: skip
def test_a_member_keeps_its_bytes(ironclaim_url: str, text: str, name: str, raw: bytes | None) -> None:
    assert run(ironclaim_url, READ, text, name) == [raw, text.encode()]


def test_what_is_no_object_is_told_apart(ironclaim_url: str) -> None:
    texts = ["", "null", "[]", "5", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{a:1}", '{"a":1}x', '{"a":x}']
    texts += ['{"a":"b}', '{"a":[}', '{"a" 1}', '{"\\q":1}']
    assert {text: run(ironclaim_url, READ, text, "a") for text in texts} == dict.fromkeys(texts, b"none")


@pytest.mark.walk
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5), CHANGES, st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_what_is_set_stands_there_and_nothing_else_changes(ironclaim_url: str, known: Any, changes: Any, separators: Any) -> None:
    words = [word for name, value in changes for word in (name, json.dumps(value))]
    text, raws = run(ironclaim_url, SET, json.dumps(known, separators=separators), *words)
    assert json.loads(text) == {**known, **dict(changes)} and list(json.loads(text)) == list({**known, **dict(changes)})
    assert [json.loads(raw) for raw in raws] == [dict(changes)[name] for name, _ in changes]


@pytest.mark.walk
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(951_782_400_000)
@given(st.integers(-(10**12), 4 * 10**13))
def test_a_time_is_written_as_utc(raw: Any, ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    script = "return { rfc3339(tonumber(ARGV[1])), rfc3339(tonumber(ARGV[1]), true) }"
    exact, whole = raw.eval(with_functions("rfc3339") + script, 0, str(ms))
    assert exact.decode() == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert whole.decode() == moment.isoformat(timespec="seconds")[:19] + "Z"


def test_a_time_of_each_zone_is_read(raw: Any) -> None:
    script = with_functions("rfc3339_ms") + "return rfc3339_ms(ARGV[1]) or false"
    texts = ("2026-03-01T00:06:40-01:00", "2026-03-01T02:36:40+01:30", "2026-03-01t01:06:40.000z", "2026-03-01T01:06:40", "x")
    assert [raw.eval(script, 0, text) for text in texts] == [1_772_327_200_000] * 3 + [None] * 2


@pytest.mark.parametrize(("body", "changes", "after"), [
    # A new member comes behind the one that Go writes before it, several in their order, and first where none is.
    ('{"id":"a", "attempts":0,"z":[1, {"a":"}"}]}', {"status": "1", "error": "2"},
     '{"id":"a","status":1, "attempts":0,"error":2,"z":[1, {"a":"}"}]}'),
    ('{ "z":1}', {"id": '"a"', "status": "2"}, '{"id":"a","status":2, "z":1}'), ("{}", {"id": "1"}, '{"id":1}'),
    # What is removed goes with one comma, also where something new comes behind it.
    ('{"id":1 , "scheduled_for":"t" ,"x":2}', {"scheduled_for": False}, '{"id":1 ,"x":2}'),
    ('{"scheduled_for":"t" , "x":2}', {"scheduled_for": False}, '{"x":2}'), ('{"id":1}', {"scheduled_for": False}, '{"id":1}'),
    ('{"x":1,"scheduled_for":"t","y":2}', {"scheduled_for": False, "attempts": "3"}, '{"x":1,"attempts":3,"y":2}'),
    ('{"scheduled_for":"t"}', {"scheduled_for": False}, "{}"), ("{}", {"id": "1", "status": "2"}, '{"id":1,"status":2}'),
    ('{"scheduled_for":"t","z":2}', {"scheduled_for": False, "attempts": "3"}, '{"attempts":3,"z":2}'),
])  # fmt: skip
def test_members_come_where_go_writes_them(raw: Any, body: str, changes: dict[str, Any], after: str) -> None:
    script = with_functions("with_members") + "return with_members(ARGV[1], cjson.decode(ARGV[2]))"
    assert raw.eval(script, 0, body, json.dumps(changes)) == after.encode()
