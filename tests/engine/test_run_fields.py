"""The fields of `run:<id>` (rule 15): Lua and Python write and read the same, and bytes that are none are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.models.envelope import read_run_fields
from engine.redis.scripts import layers_of, linked_functions, scripts_folder
from tests.engine.desk import run_fields, write_run
from tests.engine.helpers.producing import refused
from tests.walks import examples

SCRIPT = """#!lua
%s
local words = {}
for at = 2, #ARGV do words[at - 1] = ARGV[at] end
if ARGV[1] == 'write' then run_write(KEYS[1], unpack(words)) return {} end
return run_read(KEYS[1], unpack(words))
"""
NAMES = ("fence", "nonce", "seal", "owner", "claims", "failures", "limits", "e0", "e9", "error", "requeued_ms")
VALUES = {
    "fence": st.integers(1, 2**53).map(str),
    "nonce": st.from_regex("[0-9a-f]{16}:[1-9][0-9]{0,5}", fullmatch=True) | st.just(""),
    "claims": st.integers(1, 999).map(str),
}
#: Bytes that could be taken for the end of a field.
TEXTS = st.text(max_size=30) | st.sampled_from(["1:", " 3:abc", "e0 2:", "\0", ": "])
FIELDS = st.fixed_dictionaries(
    {"fence": VALUES["fence"]}, optional={name: VALUES.get(name, TEXTS) for name in NAMES if name != "fence"}
)


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(ironclaim_url) as made:
        yield made


def in_lua(client: redis.Redis, what: str, *words: str) -> list[bytes | None]:
    script = SCRIPT % linked_functions(["run_read", "run_write"], layers_of(scripts_folder(), "lanes"))
    found: Any = client.eval(script, 1, "run", what, *words)
    return found


@pytest.mark.walk
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FIELDS, min_size=1, max_size=3))
def test_rule_15_lua_and_python_read_what_the_other_wrote(client: redis.Redis, changes: list[dict[str, str]]) -> None:
    client.delete("run")
    wanted: dict[str, str] = {}
    for fields in changes:
        in_lua(client, "write", *(word for pair in fields.items() for word in pair))
        wanted = {name: text for name, text in ({"claims": "1"} | wanted | fields).items() if text}
        assert {name: value.decode() for name, value in run_fields(client, "run").items()} == wanted
    write_run(client, "run", **wanted)
    values = in_lua(client, "read", *NAMES)
    assert [value.decode() if value else "" for value in values] == [wanted.get(name, "") for name in NAMES]


OTHER = [b"", b"x", b"12", b"12 n", b"12 n ", b"12 n \x05\x00ab", b"12 n \x00\x00claims", b"x n \x00\x00"]


@pytest.mark.parametrize("raw", OTHER)
def test_other_bytes_are_named(client: redis.Redis, raw: bytes) -> None:
    refused(ValueError, "not enough values|no fields of a run|invalid literal", read_run_fields, raw)
    client.set("run", raw)
    refused(redis.ResponseError, "IRONCLAIM the key run is no run of a job", in_lua, client, "read", "fence")
