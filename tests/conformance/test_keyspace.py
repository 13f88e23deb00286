"""The comparison of keyspaces itself: it must see every way in which two of them can differ."""

from typing import Any

import pytest
import redis

from tests.conformance.keyspace import differences, dump

KEYS: dict[str, dict[str, Any]] = {
    **{"a": {"type": "string", "ttl_s": [50, 100], "value": "~\\d+"}, "b": {"type": "hash", "ttl_s": None, "value": {"x": "1"}}},
    "c": {"type": "zset", "ttl_s": None, "value": [["m", "7353274861948931"]]},
    **{"d": {"type": "list", "ttl_s": None, "value": ["2", "1"]}, "e": {"type": "set", "ttl_s": None, "value": ["1", "2"]}},
}


@pytest.fixture
def filled(ironclaim_url: str) -> Any:
    with redis.Redis.from_url(ironclaim_url) as client:
        client.set("a", "42", ex=90)
        client.hset("b", "x", "1")
        client.zadd("c", {"m": 7353274861948931})
        client.lpush("d", "1", "2")
        client.sadd("e", "2", "1")
        yield client


def test_equal_keyspaces_have_no_difference(filled: redis.Redis) -> None:
    assert differences(KEYS, dump(filled, "?")) == []


DIFFERENCES = [
    *(("SET a x EX 90", "a: is 'x', must be '~\\\\d+'"), ("PERSIST a", "a: lives for None s, must live for [50, 100]")),
    *(("HSET b x 2", "b: x: is '2', must be '1'"), ("HSET b y 2", "b: y is '2', must not be there")),
    ("ZADD c 7353274861948932 m", "c: [0] [1] is '7353274861948932', must be '7353274861948931'"),
    *(("RPUSH d 3", "d: is ['2', '1', '3'], must be ['2', '1']"), ("DEL e", "e: missing")),
    *(("SET f 1", "f: unexpected string '1'"), ("RENAME d e", "e: is a list, must be a set")),
]


@pytest.mark.parametrize(("command", "line"), DIFFERENCES)
def test_each_kind_of_difference_is_told(filled: redis.Redis, command: str, line: str) -> None:
    filled.execute_command(*command.split())
    assert line in differences(KEYS, dump(filled, "?"))
