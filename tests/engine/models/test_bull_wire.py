"""Bull's wire by itself, method by method, on raw keys: it reads what the original has written, and writes what that reads."""

import json
from typing import Any

import pytest
import redis

from engine.redis.scripts import functions_of_formats, layers_of, linked_functions, scripts_folder
from tests import golden

NOW_MS = 1_795_233_060_000
ROOT = "bull:q:"
LEASE = {"token": "1795233060591:00ff00ff00ff00ff:7", "lease_ms": 50_000}


def job(client: redis.Redis, ids: str, where: str = "wait", **fields: str) -> None:
    """Some as the original's producer writes them."""
    body: Any = {"data": "{}", "opts": "{}", "timestamp": "5", "attempts": "1", "attemptsMade": "0", **fields}
    for id in ids.split():
        client.hset(ROOT + id, mapping=body)
        if where == "delayed":
            client.zadd(ROOT + where, {id: float(fields["score"])})
        elif where:
            (client.sadd if where in ("completed", "failed") else client.lpush)(ROOT + where, id)


def added(client: redis.Redis, id: str, due_ms: int = 0, *, wait_ms: int = 0, lifo: bool = False, rest: str = "") -> None:
    fields = ['{"n":1}', "{}" if not rest else '{"delay":', rest, "1", "", "1" if lifo else ""]
    wired(client, "add", {"id": id, "wait_ms": wait_ms, "fields": fields}, due_ms)


def delayed(client: Any) -> list[str]:
    """Members and scores as the server writes them."""
    return client.eval("return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", 1, ROOT + "delayed")


def messages(listener: Any) -> list[tuple[str, str]]:
    """What was published since the last look."""
    heard = iter(lambda: listener.get_message(timeout=0.02), None)
    return [(message["channel"], message["data"]) for message in heard if message["type"] == "message"]


def test_what_is_added_waits_as_the_original_writes_it(client: redis.Redis) -> None:
    listener = client.pubsub()
    jobs, late = ROOT + "jobs", ROOT + "delayed"
    listener.subscribe(jobs, late)
    added(client, "1")
    added(client, "2", lifo=True)
    added(client, "3", NOW_MS + 60000, wait_ms=60000, rest="}")
    added(client, "4")
    assert client.lrange(ROOT + "wait", 0, -1) == ["4", "1", "2"] and delayed(client) == ["3", str((NOW_MS + 60000) * 4096 + 3)]
    assert list(client.hgetall(ROOT + "3").items()) == [
        *(("data", '{"n":1}'), ("opts", '{"delay":60000}'), ("progress", "0"), ("delay", "60000"), ("timestamp", str(NOW_MS))),
        *(("attempts", "1"), ("attemptsMade", "0"), ("stacktrace", "[]"), ("returnvalue", "null")),
    ]
    assert client.hget(ROOT + "1", "opts") == "{}" and client.hget(ROOT + "1", "delay") == "0"
    assert messages(listener) == [(jobs, "1"), (jobs, "2"), (late, "1795233120000.0007"), (jobs, "4")]


def test_a_time_to_run_at_is_written_as_a_delay(client: redis.Redis) -> None:
    added(client, "9", NOW_MS + 1234, wait_ms=-(NOW_MS + 1234), rest="}")
    assert client.hmget(ROOT + "9", "opts", "delay") == ['{"delay":1234}', "1234"]
    added(client, "10", NOW_MS - 5, wait_ms=-(NOW_MS - 5), rest="}")
    assert client.hmget(ROOT + "10", "opts", "delay") == ['{"delay":0}', "0"] and client.lrange(ROOT + "wait", 0, -1) == ["10"]


def test_an_id_of_ones_own_has_no_low_bits(client: redis.Redis) -> None:
    added(client, "order-9", NOW_MS + 1000, wait_ms=1000, rest="}")
    added(client, "4097", NOW_MS + 1000, wait_ms=1000, rest="}")
    assert delayed(client) == ["order-9", str((NOW_MS + 1000) * 4096), "4097", str((NOW_MS + 1000) * 4096 + 1)]


def test_ids_are_counted_and_never_those_of_a_job_that_is_there(client: redis.Redis) -> None:
    assert [wired(client, "new_id", given) for given in ("", "", "mine")] == ["1", "2", "mine"]
    job(client, "3")
    job(client, "4", "completed")
    assert wired(client, "new_id", "") == "5" and client.get(ROOT + "id") == "5"


def test_jobs_are_taken_from_the_right(client: redis.Redis) -> None:
    job(client, "1 2 3")
    found, behind = wired(client, "candidates", 0, 2)
    assert ([item["id"] for item in found], behind) == (["1", "2"], "2")
    found, behind = wired(client, "candidates", 2, 2)
    assert ([item["id"] for item in found], behind) == (["3"], "0") and wired(client, "candidates", 9, 2) == [{}, "0"]
    assert [wired(client, "take", id, {}, "wait", LEASE) for id in "217"] == [True, True, False]
    assert client.lrange(ROOT + "active", 0, -1) == ["1", "2"] and client.lrange(ROOT + "wait", 0, -1) == ["3"]
    assert client.get(ROOT + "1:lock") == LEASE["token"] and 50_000 < client.pttl(ROOT + "1:lock") <= 75_000


def test_nothing_is_taken_while_the_queue_is_paused(client: redis.Redis) -> None:
    job(client, "1")
    client.set(ROOT + "meta-paused", "1")
    assert wired(client, "candidates", 0, 10) == [{}, "0"]


def test_a_job_is_ours_while_the_lock_is_and_it_is_active(client: redis.Redis) -> None:
    token = LEASE["token"]
    job(client, "1")
    wired(client, "take", "1", {}, "wait", LEASE)
    assert wired(client, "mine", "1", token) is True and wired(client, "locked", "1") is False
    client.delete(ROOT + "1:lock")
    assert wired(client, "mine", "1", token) is True
    client.set(ROOT + "1:lock", "295aabea-ff12-4bf6-9f12-68d87e1eea80")
    assert wired(client, "mine", "1", token) is False and wired(client, "locked", "1") is True
    client.set(ROOT + "1:lock", token)
    client.lrem(ROOT + "active", 0, "1")
    assert wired(client, "mine", "1", token) is False


def test_how_a_job_ends(client: redis.Redis) -> None:
    for id in ("1", "2", "3", "4", "5", "6"):
        job(client, id)
        wired(client, "take", id, {}, "wait", LEASE)
    wired(client, "done", "1", {}, '{"ok":true}', 5)
    assert client.hget(ROOT + "1", "returnvalue") == '{"ok":true}' and client.smembers(ROOT + "completed") == {"1"}
    wired(client, "done", "2", {}, None, 5)
    assert client.hget(ROOT + "2", "returnvalue") == ""
    failure = {"error": 'Error: "boom"', "trace": "at \t\u00e4/\x7f\x01", "due_ms": NOW_MS + 2000, "failures": 1}
    wired(client, "again", "3", {}, failure)
    assert client.hmget(ROOT + "3", "attemptsMade", "delay", "stacktrace") == [
        "1", None, '["Error: \\"boom\\"\\nat \\t\u00e4/\x7f\\u0001"]',
    ]  # fmt: skip
    assert client.zscore(ROOT + "delayed", "3") == (NOW_MS + 2000) * 4096 + 3
    wired(client, "bury", "4", {}, {"error": "again", "trace": "", "due_ms": 0, "failures": 3})
    assert client.hmget(ROOT + "4", "attemptsMade", "stacktrace") == ["3", '["again"]']
    assert client.smembers(ROOT + "failed") == {"4"}
    wired(client, "drop", "5", {}, "skipped")
    assert not client.exists(ROOT + "5")
    wired(client, "again", "6", {"lifo": True}, {**failure, "due_ms": 0})
    assert client.lrange(ROOT + "wait", 0, -1) == ["6"] and client.llen(ROOT + "active") == 0 and not client.keys(ROOT + "*:lock")


@pytest.mark.parametrize("traces", ['["a","b"]', ' [ "a" , "b" ] ', '["a",\n"b"]'])
def test_a_trace_comes_behind_those_that_are_there(client: redis.Redis, traces: str) -> None:
    job(client, "1", "active", stacktrace=traces)
    wired(client, "bury", "1", {}, {"error": "c", "failures": 1})
    assert json.loads(client.hget(ROOT + "1", "stacktrace") or "") == ["a", "b", "c"]


@pytest.mark.parametrize("traces", ["", "null", "{}", '["a"', "boom", '"a"', "[" * 2000, "[ ]"])
def test_traces_that_are_none_are_begun_anew(client: redis.Redis, traces: str) -> None:
    job(client, "1", "active", stacktrace=traces)
    wired(client, "bury", "1", {}, {"error": "c", "failures": 1})
    assert client.hget(ROOT + "1", "stacktrace") == '["c"]'


def test_a_job_goes_back_only_where_it_was_active(client: redis.Redis) -> None:
    job(client, "1 2 3 4", "active")
    client.rpush(ROOT + "wait", "9")
    # The original has ended one without asking for the lock, another end was cut off.
    client.sadd(ROOT + "completed", "3")
    client.lrem(ROOT + "active", 0, "3")
    client.sadd(ROOT + "failed", "4")
    for id in "1234":
        wired(client, "back", id)
    assert client.lrange(ROOT + "wait", 0, -1) == ["9", "1", "2"] and client.llen(ROOT + "active") == 0


def test_due_jobs_come_by_time_and_then_by_their_whole_id(client: redis.Redis) -> None:
    """4095 before 4096, whose low bits are 0; also where the time has more of them than one call takes."""
    for id in range(4090, 4102):
        client.zadd(ROOT + "delayed", {str(id): (NOW_MS - 5) * 4096 + id % 4096})
    client.zadd(ROOT + "delayed", {"8191": (NOW_MS - 6) * 4096 + 4095, "1": (NOW_MS + 1) * 4096 + 1})
    ids = ["8191", *map(str, range(4090, 4102))]
    assert wired(client, "due", 100) == ids and wired(client, "due", 13) == ids
    assert wired(client, "due", 3) == ids[:3] and wired(client, "due", 1) == ids[:1]
    assert wired(client, "next_due_ms") == str(NOW_MS - 6)
    client.zadd(ROOT + "delayed", {str(id): id for id in (3, 1, 2)})
    assert wired(client, "due", 2) == ["1", "2"]


@pytest.mark.parametrize(("score", "due", "next_ms"), [
    ("inf", False, 2**47), ("-inf", True, 0), ("-5", True, 0), (f"{2**60}", False, 2**47), (f"{2**57}", False, 2**45),
    (f"{(NOW_MS + 1) * 4096 - 1}", True, NOW_MS), (f"{(NOW_MS + 1) * 4096}", False, NOW_MS + 1),
])  # fmt: skip
def test_scores_of_any_size(client: redis.Redis, score: str, due: bool, next_ms: int) -> None:
    client.execute_command("ZADD", ROOT + "delayed", score, "5")
    assert bool(wired(client, "due", 10)) is due and bool(wired(client, "due", 1)) is due
    assert wired(client, "next_due_ms") == str(next_ms) and wired(client, "list", "delayed", 0, 10, False) == ["5", str(next_ms)]


def test_a_score_beyond_2_to_the_53_is_of_its_own_millisecond(client: redis.Redis) -> None:
    due_ms = 2**41 + 12345
    added(client, "4095", due_ms, wait_ms=due_ms - NOW_MS, rest="}")
    assert [int(float(word)) for word in delayed(client)] == [4095, due_ms * 4096 + 4094]
    assert wired(client, "next_due_ms") == str(due_ms)


@pytest.mark.parametrize("paused", [False, True])
def test_promotion_respects_the_pause(client: redis.Redis, paused: bool) -> None:
    job(client, "1", "delayed", score=str(NOW_MS * 4096 + 1), delay="60")
    job(client, "2", "delayed", score=str((NOW_MS + 7) * 4096 + 2), delay="60")
    if paused:
        client.set(ROOT + "meta-paused", "1")
    listener = client.pubsub()
    listener.subscribe(ROOT + "jobs", ROOT + "delayed")
    assert wired(client, "promote", "1") is True and client.lrange(ROOT + ("paused" if paused else "wait"), 0, -1) == ["1"]
    assert not client.exists(ROOT + ("wait" if paused else "paused"))
    assert client.hget(ROOT + "1", "delay") == "0" and client.zrange(ROOT + "delayed", 0, -1) == ["2"]
    assert messages(listener) == [(ROOT + "jobs", "1"), (ROOT + "delayed", f"{NOW_MS + 7}.0005")]


def test_a_delayed_id_without_a_hash_is_removed(client: redis.Redis) -> None:
    client.zadd(ROOT + "delayed", {"7": 1})
    assert wired(client, "promote", "7") is False and client.keys("*") == []


@pytest.mark.parametrize(("wait", "paused"), [(["1"], ["3", "2"]), (["1"], []), ([], ["2"]), ([], []), (["5", "4", "1"], ["2"])])
def test_pause_and_resume_lose_no_job(client: redis.Redis, wait: list[str], paused: list[str]) -> None:
    """The original renames one list over the other."""
    for word, method, into in (("paused", "pause", "paused"), ("resumed", "resume", "wait")):
        client.flushall()
        for name, ids in (("wait", wait), ("paused", paused)):
            if ids:
                client.rpush(ROOT + name, *ids)
        if method == "resume":
            client.set(ROOT + "meta-paused", "1")
        listener = client.pubsub()
        listener.subscribe(ROOT + "paused")
        wired(client, method, "*", 0)
        assert client.lrange(ROOT + into, 0, -1) == wait + paused
        assert client.exists(ROOT + "wait", ROOT + "paused") == (1 if wait + paused else 0)
        assert client.get(ROOT + "meta-paused") == ("1" if method == "pause" else None)
        assert wired(client, "paused", "*") is (method == "pause") and messages(listener) == [(ROOT + "paused", word)]


def test_only_what_nobody_holds_is_astray(client: redis.Redis) -> None:
    job(client, "1 2 3", "active")
    client.set(ROOT + "2:lock", "someone")
    assert wired(client, "strays", 10) == ["3", "1"] and wired(client, "strays", 1) == ["3"]


def test_lists_and_counts_by_state(client: redis.Redis) -> None:
    for at, id in enumerate(("1", "2", "3")):
        job(client, id, timestamp=str(100 + at))
    job(client, "4", "paused", timestamp="104")
    for at, id in enumerate(("9", "8", "7")):
        job(client, id, "completed", timestamp=str(200 + at))
    job(client, "6", "failed", timestamp="soon")
    job(client, "5", "active")
    wanted = {
        ("waiting", 0, 10, False): ["1", "100", "2", "101", "3", "102", "4", "104"],
        **{("waiting", 2, 10, False): ["3", "102", "4", "104"], ("waiting", 3, 1, False): ["4", "104"]},
        **{("waiting", 0, 2, True): ["4", "104", "3", "102"], ("waiting", 9, 2, True): {}},
        **{("done", 0, 10, False): ["9", "200", "8", "201", "7", "202"], ("done", 1, 1, True): ["8", "201"]},
        **{("dead", 0, 5, False): ["6", "0"], ("active", 0, 5, False): ["5", "0"]},
    }
    for (state, offset, limit, newest), found in wanted.items():
        assert wired(client, "list", state, offset, limit, newest) == found, (state, offset, limit, newest)
    states = ("waiting", "delayed", "active", "dead", "done", "blocked")
    assert [wired(client, "count", state) for state in states] == list("401130")


def test_a_large_set_is_paged_without_an_order(client: redis.Redis) -> None:
    client.sadd(ROOT + "completed", *range(10_500))
    pages = [wired(client, "list", "done", offset, 1000, True)[::2] for offset in range(0, 10_500, 1000)]
    assert sorted(int(id) for page in pages for id in page) == list(range(10_500))


def test_whatever_a_hash_says_is_read(client: redis.Redis) -> None:
    opts = ["null", "[]", "7", '{"name":"send"}', '{"name":5}', '{"name":""}', "{oops", "[" * 2000]
    opts += ['{"lifo":"yes"}', '{"lifo":null}']
    bodies = [{"opts": text} for text in opts] + [{"more": "x", "timestamp": ""}, {"attempts": "9" * 400, "timestamp": "9" * 400}]
    bodies += [{"attempts": one, "attemptsMade": made} for one, made in (("three", "NaN"), ("3abc", " 2"), ("-1", "-4"))]
    told = ""
    for at, fields in enumerate(bodies):
        job(client, str(at), **fields)
        found = {name: value for name, value in sorted(wired(client, "read", str(at)).items()) if name != "body"}
        told += f"{str(fields)[:60]}: {found}\n"
    golden.same("engine/bull_hashes.txt", told)


def test_a_hash_of_data_and_opts_alone_is_a_job(client: redis.Redis) -> None:
    client.hset(ROOT + "1", mapping={"data": "{}", "opts": "{}"})
    found = wired(client, "read", "1")
    assert (found["kind"], found["attempts"], found["failures"], found["enqueued_ms"]) == ("J", "1", "0", "0")


def test_ids_that_are_no_job(client: redis.Redis) -> None:
    client.hset(ROOT + "1", "delay", "0")
    client.set(ROOT + "a:b", "x")
    assert wired(client, "read", "404") is None and wired(client, "read", "1")["why"] == "the hash has no data"
    assert wired(client, "read", "a:b")["why"] == "its key is a string, not a hash"
    names = ("wait", "active", "paused", "delayed", "completed", "failed", "id", "meta-paused", "jobs")
    for id in (*names, "7:lock", "ironclaim:active", ""):
        assert wired(client, "read", id)["why"] == "the id is that of a key of the queue", id


def test_what_cannot_run_is_set_aside(client: redis.Redis) -> None:
    made = {"1": "2", "2": "many", "3": ""}
    for id, attempts in made.items():
        job(client, id, opts="{oops", attemptsMade=attempts)
    client.rpush(ROOT + "wait", "404", "wait")
    for id in (*made, "404", "wait"):
        wired(client, "set_aside", id, "wait", "why not")
    assert client.smembers(ROOT + "failed") == {*made} and not client.exists(ROOT + "wait")
    for id, attempts in zip(made, ("2", "0", "0"), strict=True):
        assert client.hmget(ROOT + id, "stacktrace", "attemptsMade") == ['["why not"]', attempts]
    assert client.hgetall(ROOT + "ironclaim:aside") == {"404": "why not", "wait": "why not"}


@pytest.mark.parametrize(("key", "wanted"), [
    *((name, "list") for name in ("wait", "active", "paused")), *((name, "set") for name in ("completed", "failed")),
    ("delayed", "zset"), ("id", "string"), ("meta-paused", "string"),
])  # fmt: skip
def test_a_key_of_another_type_is_named(client: redis.Redis, key: str, wanted: str) -> None:
    client.hset(ROOT + key, "a", "b")
    with pytest.raises(redis.ResponseError, match=f"WRONGTYPE the key {ROOT}{key} is a hash, it must be a {wanted}"):
        wired(client, "check")


def test_how_a_job_has_ended(client: redis.Redis) -> None:
    job(client, "1", "completed", returnvalue='{"n":1}')
    job(client, "2", "completed", returnvalue="")
    job(client, "3", "failed", stacktrace='["one","Error: two\\n at x"]')
    job(client, "4", "failed", stacktrace="{oops")
    job(client, "5")
    records = [wired(client, "ended", id) for id in ("1", "2", "3", "4", "5", "404")]
    assert records[4:] == [None, None] and [json.loads(found["record"]).get("value") for found in records[:2]] == [{"n": 1}, None]
    assert [found["error"] for found in records[2:4]] == ["Error: two", ""]


def test_by_hand(client: redis.Redis) -> None:
    job(client, "1 2", "failed")
    wired(client, "requeue", "1", {})
    wired(client, "requeue", "2", {"lifo": True})
    assert client.lrange(ROOT + "wait", 0, -1) == ["1", "2"] and not client.exists(ROOT + "failed")
    wired(client, "remove", "1", "waiting")
    assert client.lrange(ROOT + "wait", 0, -1) == ["2"] and not client.exists(ROOT + "1")
    wired(client, "noted", "2", {}, '"percent":42,"message":"half"}')
    assert client.hget(ROOT + "2", "progress") == "42"


def test_a_purge_leaves_nothing_of_this_queue_and_all_of_the_next(client: redis.Redis) -> None:
    for where in ("wait", "paused", "active", "completed", "failed", ""):
        for at in range(5):
            job(client, wired(client, "new_id", ""), where)
            job(client, f"own-{where}-{at}", where or "wait")
    job(client, "31", "delayed", score="5")
    client.set(ROOT + "1:lock", "x")
    client.set("bull:q:other:id", "3")
    calls = 0
    while wired(client, "purge", 4):
        calls += 1
    assert client.keys("*") == ["bull:q:other:id"] and 5 < calls < 30


_FUNCTIONS = [*functions_of_formats(scripts_folder() / "foreign")]

_SCRIPT = f"""
{linked_functions(["wire", *_FUNCTIONS], layers_of(scripts_folder(), "bull"))}
local functions = {{ {", ".join(f"{name} = {name}" for name in _FUNCTIONS)} }}
-- cjson keeps 14 digits of a number.
local function told(value)
  if type(value) == 'number' then return string.format('%.0f', value) end
  if type(value) ~= 'table' then return value end
  local copy = {{}}
  for name, inner in pairs(value) do copy[name] = told(inner) end
  return copy
end
local given = cjson.decode(ARGV[1])
local count = #given
for at = 1, count do
  if given[at] == cjson.null then given[at] = nil end
end
local bull = wire('bull:q:', 'bull:q:ironclaim:', 'q', '', '', tonumber(ARGV[2]))
local one, other = functions['wire_' .. given[1]](bull, unpack(given, 2, count))
return cjson.encode({{ one == nil and cjson.null or told(one), told(other) }})
"""


def wired(client: redis.Redis, method: str, *arguments: Any, now_ms: int = NOW_MS) -> Any:
    """What a function returns, its first value; of `candidates` both. Numbers come as text, an empty table as {}."""
    found = json.loads(client.eval(_SCRIPT, 0, json.dumps([method, *arguments]), now_ms))
    return found if method == "candidates" else found[0]
