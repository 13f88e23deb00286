"""A queue with a job in each state, a schedule and a worker, and every stored value of it made hostile in turn."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import redis

from engine import Bury, Handlers, Job, Queue, Worker, errors
from tests.engine.using import Beat, NoteProgress, claim

#: What a program of another language may have put where JSON, a number or a text stands.
STORED = (
    *(b'"\\ud800"', b"9" * 400, b"1" + b"0" * 5_000, b"[" * 100_000 + b"]" * 100_000),
    *(b'{"\\ud800":[NaN,1e400,"\\udfff\\u0000\\u202e"]}', b"\xff\xfe", b"", b"-1", b"[]"),
)
WORKER = "c" * 16
STATES = ("waiting", "delayed", "active", "finished", "dead")


def peopled(queue: Queue) -> dict[str, str]:
    """Put a job into each state, with progress, results and errors, a schedule and the beat of a worker: the ids by state. They
    are the same in every run, and so are the keys, in whose order hostile values are put."""
    handlers = Handlers()
    handlers("done")(lambda job: {"a": 1})

    @handlers("fail")
    def fail(job: Job) -> Any:
        return Bury("boom")

    ids = {state: f"job-{state}" for state in STATES}
    queue.enqueue("done", {"a": 1}, id=ids["finished"])
    queue.enqueue("fail", {"a": 1}, id=ids["dead"], attempts=1)
    Worker(queue, handlers, name="w1").run(burst=True)
    with contextlib.suppress(errors.UnsupportedFeature):
        queue.events.on()
    queue.enqueue("main", {"a": 1}, id=ids["active"])
    (leased,) = claim(queue, incarnation=WORKER, lease_ms=3_600_000).jobs
    with contextlib.suppress(errors.UnsupportedFeature):
        queue.driver.run(queue.model.call(NoteProgress(leased.lease, 1, b'"percent":50.0,"message":"half","data":{"a":1}}')))
    queue.enqueue("main", {"a": 1}, id=ids["waiting"])
    queue.enqueue("main", {"a": 1}, id=ids["delayed"], delay_ms=3_600_000)
    with contextlib.suppress(errors.UnsupportedFeature):
        queue.schedules.put("nightly", "main", {"a": 1}, every_ms=3_600_000)
    about = {"name": "w2", "host": "h", "pid": 1, "jobs": [ids["active"]], "handlers": ["main"], "attributes": {"a": 1}}
    until_ms = queue.driver.server_now_ms() + 3_600_000
    with contextlib.suppress(errors.UnsupportedFeature):
        queue.driver.run(queue.model.call(Beat(WORKER, 1, 3_600_000, until_ms, 9_000, 1_000, json.dumps(about))))
    return ids


def hostile(server: redis.Redis) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each stored field, entry and score with each hostile value: what it is, the same in every run, and what puts it there."""
    for key in sorted(cast("Iterator[bytes]", server.scan_iter())):
        kind = cast("bytes", server.type(key)).decode()
        for value in STORED:
            for place, put in _places(server, key, kind, value):
                yield f"{_named(key)!r} {kind} {place} {value[:30]!r}", put


def _named(key: bytes) -> bytes:
    """The key as it is called in every run: what workers and calls draw for themselves is a part of some."""
    return re.sub(rb"[0-9a-f]{16}", lambda found: found[0] if found[0] == WORKER.encode() else b"0" * 16, key)


def _places(server: redis.Redis, key: bytes, kind: str, value: bytes) -> Iterator[tuple[str, Callable[[], Any]]]:
    if kind == "hash":
        for field, before in cast("dict[bytes, bytes]", server.hgetall(key)).items():
            for place, body in _bodies(before, value):
                yield f"{field!r}{place}", _call(server.hset, key, field, body)
    elif kind == "string":
        for place, body in _bodies(cast("bytes", server.get(key)), value):
            yield place, _call(server.set, key, body)
    elif kind == "zset":
        yield "member", _call(server.zadd, key, {value[:300]: 1})
        for member in cast("list[bytes]", server.zrange(key, 0, 3)):
            for score in (float("inf"), -1.0, 1e300):
                yield f"score {score}", _call(server.zadd, key, {member: score})
    elif kind == "list":
        yield "entry", _call(server.lpush, key, value[:300])
    elif kind == "set":
        yield "member", _call(server.sadd, key, value[:300])
    elif kind == "stream":
        yield "entry", _call(server.xadd, key, {value[:300] or b"x": value})


def _bodies(before: bytes, value: bytes) -> Iterator[tuple[str, bytes]]:
    """The value itself, and in each member of an object that stands there."""
    yield "", value
    begin = before.find(b"{")
    with contextlib.suppress(ValueError):
        members = json.loads(before[begin:]) if begin >= 0 else None
        if isinstance(members, dict):
            for name in cast("dict[str, Any]", members):
                yield f".{name}", before[:begin] + _with(cast("dict[str, Any]", members), name, value)


def _with(members: dict[str, Any], name: str, value: bytes) -> bytes:
    spelled = {key: json.dumps(old).encode() for key, old in members.items()} | {name: value}
    return b"{" + b",".join(json.dumps(key).encode() + b":" + one for key, one in spelled.items()) + b"}"


def _call(function: Any, *given: Any) -> Callable[[], Any]:
    return lambda: function(*given)
