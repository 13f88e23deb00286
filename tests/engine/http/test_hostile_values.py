"""Whatever is stored, every face answers; whatever is sent in is answered below 500, and a refusal names the field."""

import json
from typing import Any

import pytest

from engine import Malformed, Queue, errors, models
from engine.command.main import main
from tests.engine.http import peopled, serving

SENT = ("\ud800", "\0", 10**400, {"\ud800": "\ud800"}, [[[]]], -1.5)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lanes", "bull", "bananas", "mosquito", "bridge"])
def test_whatever_is_stored_every_face_answers(model: str, ironclaim_url: str, raw: Any, capsys: Any) -> None:
    wrong: list[str] = []
    with (
        Queue("q", models.named(model), url=ironclaim_url) as queue,
        serving.asking(ironclaim_url, model=model, show_payloads=True) as client,
    ):
        id = queue.enqueue("main", {"a": "1"}).job
        addresses = [f"/api/queues/q{path}" for path in ("/jobs?text=x", f"/jobs/{id}", "", "/metrics")]
        addresses += [f"/queues/q/jobs/{id}", "/queues/q/jobs"]
        addresses += [f"/api/v1/jobs/{id}", "/api/v1/jobs"] if model == "bananas" else []
        kept = {key: raw.dump(key) for key in raw.keys(f"*{id}*")}
        # Each place of each of the job's own keys.
        for what, put in [(what, put) for what, put in peopled.hostile(raw) if id in what.split(" ")[0]]:
            put()
            for address in addresses:
                answer = client.get(address)
                if answer.status_code >= 500:
                    wrong.append(f"{what}: {address} {answer.status_code} {answer.text[:200]}")
                elif answer.headers["content-type"].startswith("application/json"):
                    answer.json()
            for key, dumped in kept.items():
                raw.restore(key, 0, dumped, replace=True)
        (_, put), *_ = peopled.hostile(raw)
        put()
        for words in (["jobs", "list"], ["jobs", "show", id, "--json"]):
            assert main([*words, "--url", ironclaim_url, "--model", model, "--queue", "q"]) in (0, 1, 2)
    assert not wrong, "\n".join(wrong[:20])
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("model", ["lanes", pytest.param("bananas", marks=pytest.mark.slow)])
def test_whatever_is_sent_in_is_answered_below_500_with_the_name_of_the_field(model: str, ironclaim_url: str) -> None:
    with serving.asking(ironclaim_url, model=model, allow_changes=True, show_payloads=True) as client:
        document, tried = client.get("/openapi.json").json(), 0
        for path, methods in document["paths"].items():
            filled = path.format_map({"queue": "q", "id": "j1", "name": "a", "schedule": "s", "key": "k"})
            for method, operation in methods.items():
                content = operation.get("requestBody", {}).get("content", {})
                schema = content.get("application/json", {}).get("schema", {})
                properties = [name for one in (schema, *schema.get("anyOf", ())) for name in one.get("properties", ())]
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
                            assert answer.status_code < 500 or answer.status_code == 501, (path, parameter, value, answer.text)
        assert tried > 100
        for state in ("waiting", "delayed", "dead"):
            assert client.get("/api/queues/q/jobs", params={"state": state}).status_code == 200
        refused = client.get("/api/queues/q/events", headers={"Last-Event-ID": "99999999999999999999"})
        assert (refused.status_code, refused.json()["field"]) == (422, "Last-Event-ID")


def test_headers_without_utf8_are_refused_before_they_are_stored(ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url) as queue, pytest.raises(Malformed, match="headers"):
        queue.enqueue("a", 1, headers={"k": "\ud800"})


def test_what_json_cannot_say_is_said_as_a_text() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    said = json.loads(errors.json_text({"\ud800": [float("nan"), float("-inf"), 10**5_000, b"\xff", "\udfff"], "deep": deep}))
    assert said["\\ud800"][:2] == ["NaN", "-Infinity"] and said["\\ud800"][3:] == ["\\xff", "\\udfff"]
    assert "bits" in said["\\ud800"][2] and "list" in json.dumps(said["deep"])
