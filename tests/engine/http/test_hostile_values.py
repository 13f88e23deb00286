"""Whatever is stored, every face answers; whatever is sent in is answered below 500, and a refusal names the field."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import redis

from engine import Malformed, Queue
from engine.command.main import main
from engine.errors import json_text
from engine.models.spec import named
from tests.engine.http.serving import asking

SURROGATE = b'"\\ud800"'
#: What a program of another language may have put where JSON, or a text, stands.
STORED = (
    *(SURROGATE, b"1" + b"0" * 5_000, b"[" * 100_000 + b"]" * 100_000),
    *(b'{"\\ud800":[NaN,1e400,"\\udfff\\u0000\\u202e"]}', b"\xff\xfe"),
)
SENT = ("\ud800", "\0", 10**400, {"\ud800": "\ud800"}, [[[]]], -1.5)
MODELS = ("lanes", "bull", "bananas", "mosquito", "bridge")


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_whatever_is_stored_every_face_answers(model: str, ironclaim_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong: list[str] = []
    with (
        Queue("q", named(model), url=ironclaim_url) as queue,
        redis.Redis.from_url(ironclaim_url) as server,
        asking(ironclaim_url, model=model, show_payloads=True) as client,
    ):
        payload = {"a": "1"}
        ids = [queue.enqueue("main", payload).job]
        paths = ["jobs?text=x", f"jobs/{ids[0]}", "", "metrics"]
        addresses = [f"/api/queues/q/{path}".rstrip("/") for path in paths]
        addresses += [f"/queues/q/jobs/{ids[0]}", "/queues/q/jobs"]
        if model == "bananas":
            addresses += [f"/api/v1/jobs/{ids[0]}", "/api/v1/jobs"]
        for what, put, back in _hostile(server, ids):
            put()
            for address in addresses:
                answer = client.get(address)
                if answer.status_code >= 500:
                    wrong.append(f"{what}: {address} {answer.status_code} {answer.text[:200]}")
                elif answer.headers["content-type"].startswith("application/json"):
                    answer.json()
            back()
        target = ["--url", ironclaim_url, "--model", model, "--queue", "q"]
        for what, put, _ in _hostile(server, ids):
            put()
            for words in (["jobs", "list"], ["jobs", "show", ids[0], "--json"]):
                assert main([*words, *target]) in (0, 1, 2), what
            break
    assert not wrong, "\n".join(wrong[:20])
    assert "Traceback" not in capsys.readouterr().err


def _hostile(server: Any, ids: list[str]) -> list[tuple[str, Any, Any]]:
    """Each field of each job's own key with each hostile value: what it is, what puts it there, and what puts it back."""
    found: list[tuple[str, Any, Any]] = []
    keys = [key for key in server.scan_iter() if any(id.encode() in key for id in ids)]
    for key in sorted(keys):
        kind = server.type(key)
        if kind == b"hash":
            for field, before in server.hgetall(key).items():
                for value in STORED:
                    name = f"{key!r} {field!r} {value[:20]!r}"
                    found.append((name, _call(server.hset, key, field, value), _call(server.hset, key, field, before)))
        elif kind == b"string":
            before = server.get(key)
            bodies = list(STORED)
            with contextlib.suppress(ValueError):
                members = json.loads(before)
                if isinstance(members, dict):
                    for member in members:
                        bodies += [_with(members, member, value) for value in STORED]
            back = _call(server.set, key, before)
            found += [(f"{key!r} {value[:80]!r}", _call(server.set, key, value), back) for value in bodies]
    return found


def _with(members: dict[str, Any], name: str, value: bytes) -> bytes:
    parts = [
        json.dumps(key).encode() + b":" + (value if key == name else json.dumps(old).encode()) for key, old in members.items()
    ]
    return b"{" + b",".join(parts) + b"}"


def _call(function: Any, *given: Any) -> Any:
    return lambda: function(*given)


@pytest.mark.parametrize("model", ["lanes", pytest.param("bananas", marks=pytest.mark.slow)])
def test_whatever_is_sent_in_is_answered_below_500_with_the_name_of_the_field(model: str, ironclaim_url: str) -> None:
    with asking(ironclaim_url, model=model, allow_changes=True, show_payloads=True) as client:
        document = client.get("/openapi.json").json()
        tried = 0
        for path, methods in document["paths"].items():
            filled = path.format_map({"queue": "q", "id": "j1", "name": "a", "schedule": "s", "key": "k"})
            for method, operation in methods.items():
                content = operation.get("requestBody", {}).get("content", {})
                schema = content.get("application/json", {}).get("schema", {})
                properties = [
                    *schema.get("properties", ()),
                    *(name for any_of in schema.get("anyOf", ()) for name in any_of["properties"]),
                ]
                for name in dict.fromkeys([*properties, "\ud800"] if properties else ()):
                    for value in SENT:
                        body = {"name": "a", "concurrency": 1} if "name" in properties else {}
                        sent = json.dumps({**body, name: value}).encode()
                        answer = client.request(method, filled, content=sent, headers={"Content-Type": "application/json"})
                        assert answer.status_code < 500 or answer.status_code == 501, (method, path, name, value, answer.text)
                        if answer.status_code == 422:
                            assert answer.json()["field"], (name, value)
                        tried += 1
                for parameter in operation["parameters"]:
                    if parameter["in"] == "query" and not path.endswith("/events"):
                        for value in ("\0", "9" * 30):
                            answer = client.request(method, filled, params={parameter["name"]: value})
                            assert answer.status_code < 500 or answer.status_code == 501, (
                                path,
                                parameter["name"],
                                value,
                                answer.text,
                            )
        assert tried > 100
        for state in ("waiting", "delayed", "dead"):
            assert client.get("/api/queues/q/jobs", params={"state": state}).status_code == 200
        place = {"Last-Event-ID": "99999999999999999999"}
        refused = client.get("/api/queues/q/events", headers=place)
        assert (refused.status_code, refused.json()["field"]) == (422, "Last-Event-ID")


def test_headers_without_utf8_are_refused_before_they_are_stored(ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url) as queue, pytest.raises(Malformed, match="headers"):
        queue.enqueue("a", 1, headers={"k": "\ud800"})


def test_what_json_cannot_say_is_said_as_a_text() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    said = json.loads(json_text({"\ud800": [float("nan"), float("-inf"), 10**5_000, b"\xff", "\udfff"], "deep": deep}))
    assert said["\\ud800"][:2] == ["NaN", "-Infinity"] and said["\\ud800"][3:] == ["\\xff", "\\udfff"]
    assert "bits" in said["\\ud800"][2] and "list" in json.dumps(said["deep"])
