"""Whatever a queue of any format holds, each list, page and metric answers, and says what it cannot read. Whatever is sent in is
answered below 500, and a refusal names the field."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from engine import Queue, errors, models
from engine.command.main import main
from engine.http.application import application
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings
from tests.engine.http.peopled import STATES, STORED, WORKER, hostile, peopled
from tests.engine.http.serving import asking, served

#: Places that are made hostile at once, each in a key of its own, and how often: all places are some 1,700 for each format.
PLACES, ROUNDS, SEED = 12, 6, 20_260
SENT = ("\ud800", "\0", 10**400, {"\ud800": "\ud800"}, [[[]]], -1.5)
PARTS = ("", "/metrics", "/workers", "/schedules", *(f"/jobs?state={state}&text=x" for state in STATES))
PAGES = ("", "/summary", "/workers", "/schedules", "/dead", "/limits", *(f"/jobs?state={state}" for state in STATES))
V1 = ("metrics", *(f"jobs?status={word}" for word in ("pending", "scheduled", "processing", "completed", "failed")))


@pytest.mark.parametrize(
    "model", ["lanes", "bananas", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bull", "mosquito", "bridge"))]
)
def test_each_face_answers_whatever_is_stored(model: str, ironclaim_url: str, raw: Any, capsys: Any) -> None:
    with Queue("q", models.named(model), url=ironclaim_url) as queue:
        ids = peopled(queue)
        addresses = [*(f"/api/queues/q{part}" for part in PARTS), *(f"/queues/q{part}" for part in PAGES)]
        addresses += ["/api/queues", "/queues"]
        for id in ids.values():
            addresses += [f"/api/queues/q/jobs/{id}{part}" for part in ("", "/why", "/result", "/progress")]
            addresses += [f"/queues/q/jobs/{id}", *([f"/api/v1/jobs/{id}"] if model == "bananas" else [])]
        addresses += [f"/api/v1/{part}" for part in V1] if model == "bananas" else []
        found = [(key, raw.dump(key), max(0, raw.pttl(key))) for key in raw.scan_iter()]
        # Mosquito keeps an ended job for a second.
        kept = [row for row in found if row[1] is not None]
        # By their names, which are drawn in one order in every run, also where a key more has expired in one of them.
        places = sorted(hostile(raw), key=lambda place: hashlib.sha256(f"{SEED} {place[0]}".encode()).digest())
        wrong: list[str] = []

        async def rounds(client: httpx.AsyncClient) -> None:
            for _ in range(ROUNDS):
                some = _of_different_keys(places)
                for _, put in some:
                    put()
                for address in addresses:
                    answer = await client.get(address)
                    if answer.status_code >= 500 and answer.status_code != 501:
                        wrong.append(f"{address} {answer.status_code} {answer.text[-300:]} {[what for what, _ in some]}")
                    elif answer.headers.get("content-type", "").startswith("application/json"):
                        answer.json()
                raw.flushdb()
                for key, value, ttl_ms in kept:
                    raw.restore(key, ttl_ms, value)

        asyncio.run(_with_client(HttpSettings(url=ironclaim_url, model=model, show_payloads=True), rounds))
        assert not wrong, "\n".join(wrong[:10])
        for _, put in _of_different_keys(places):
            put()
        for words in ("workers", "workers --json", "dead list", "jobs list --state delayed", "top --count 1 --json"):
            assert main([*words.split(), "--url", ironclaim_url, "--model", model, "--queue", "q"]) in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_what_cannot_be_read_is_said(ironclaim_url: str, raw: Any, capsys: pytest.CaptureFixture[str]) -> None:
    deep = b"[" * 100_000
    with Queue("q", url=ironclaim_url) as queue:
        ids, keys = peopled(queue), queue.model.keys
        done, active, dead = ids["finished"], ids["active"], ids["dead"]
        found: dict[str, Any] = {}

        async def look(client: httpx.AsyncClient) -> None:
            for record in (deep, b"\xff", b'{"ok":true,"ended_ms":1e400}', b"[]"):
                raw.set(keys.result(done), record)
                answer = await client.get(f"/api/queues/q/jobs/{done}/result")
                assert (answer.status_code, answer.json()["state"]) == (200, "finished")
                assert "cannot be read" in answer.json()["unreadable"] and answer.json()["result"] is None
            for name, key in (("progress", keys.run(active)), ("result", keys.run(dead)), ("why", keys.run(dead))):
                raw.set(key, b"no run")
                found[name] = (await client.get(f"/api/queues/q/jobs/{key.rpartition(':')[2]}/{name}")).json()
            assert "cannot be read" in found["progress"]["unreadable"]
            assert found["result"]["state"] == "dead" and "is no run of a job" in found["result"]["unreadable"]
            assert "is no run of a job" in found["why"]["why"]
            raw.set(f"ic:{{q}}:worker:{WORKER}", b"1 3600000 9000 1000 " + deep)
            (worker,) = [one for one in (await client.get("/api/queues/q/workers")).json()["workers"] if one["unreadable"]]
            assert worker["incarnation"] == WORKER and worker["alive"]
            page = (await client.get("/queues/q/workers")).text
            assert "unreadable" in page and "its beat cannot be read" in page
            raw.zadd("ic:{q}:due", {b"\xff\xfe": 1e300})
            jobs = (await client.get("/api/queues/q/jobs?state=delayed")).json()["jobs"]
            assert {job["id"] for job in jobs} >= {ids["delayed"]}
            raw.hset("ic:{q}:stats", "finished", "[]")
            assert (await client.get("/api/queues/q")).json()["counts"]["finished"] == 0
            assert "ironclaim_" in (await client.get("/api/queues/q/metrics")).text

        asyncio.run(_with_client(HttpSettings(url=ironclaim_url, show_payloads=True), look))
        assert main(["workers", "--url", ironclaim_url, "--queue", "q"]) == 0
        assert "its beat cannot be read" in capsys.readouterr().out
        raw.set(keys.result(done), deep)
        result = queue.results.get(done)
        assert result is not None and result.ok and result.unreadable
        with pytest.raises(errors.ScriptFault, match="cannot be read"):
            result.get()


def test_streams_messages_and_paths_take_whatever_is_written(ironclaim_url: str, raw: Any) -> None:
    settings = HttpSettings(url=ironclaim_url, allow_changes=True, channels=ChannelSettings())
    odd = [*STORED, b"a\nb\r\n\nid: 7\ndata: x\n\n", "\x85\u2028\u2029\u202e".encode(), b"\0"]
    with (
        Queue("q", url=ironclaim_url) as queue,
        served(settings) as base,
        httpx.Client(base_url=base, timeout=120) as client,
    ):
        queue.events.on()
        queue.enqueue("main", 1, id="first")
        (stream,) = raw.keys("*:events")
        for field in (b"kind", b"job", b"name", b"detail", b"other"):
            for value in odd:
                raw.xadd(stream, {b"kind": b"k", b"job": b"j", field: value})
        queue.enqueue("main", 1, id="last")
        frames: list[dict[str, Any]] = []
        with client.stream("GET", "/api/queues/q/events", headers={"Last-Event-ID": "0-0"}) as answer:
            # It splits at each end of a line that Unicode knows, as clients of other makers do.
            for line in answer.iter_lines():
                kind, _, body = line.partition(": ")
                assert kind in ("retry", "id", "data", ""), line
                frames += [json.loads(body)] if kind == "data" else []
                if frames and frames[-1]["job"] == "last":
                    break
        assert len(frames) == 2 + 5 * len(odd) and frames[-2]["job"] == "j"
        # One bad message of a channel does not stop its neighbours.
        poll = "/channel/c/subscription/polling/s"
        assert client.put(poll).is_success
        for number in range(3):
            assert client.put(f"/channel/c/message/m{number}", json=number).is_success
        (key,) = raw.keys("c.{c}.m.*")[:1]
        sound = raw.get(key)
        for value in odd:
            raw.set(key, value)
            fetched = client.get(f"{poll}?timeout=0s&max=10")
            assert fetched.status_code == 200 and len(fetched.json()["messages"]) >= 2, (value[:20], fetched.text[:200])
        raw.set(key, sound)
        # What is sent: taken whole or refused, and then read.
        for id in ("a%0Ab", "%00", "%E2%80%A8", "%ff", "x" * 600):
            for body in (b"1e400", b"NaN", b'"\\ud800"', b'{"a":1,"a":2}', b"9" * 5_000, b"[" * 100_000, b"\xff", b""):
                sent = client.put(f"/channel/c/message/{id}", content=body, headers={"content-type": "application/json"})
                assert sent.status_code < 500, (id, body[:20], sent.text[:200])
        assert client.get(f"{poll}?timeout=0s&max=100").json()["messages"]
        for route in [route for route in application(settings).routes if isinstance(route, Route)]:
            method = next(name for name in sorted(route.methods or ()) if name != "HEAD")
            for name in re.findall(r"\{(\w+)[^}]*\}", route.path):
                for segment in ("%ff", "%00", "%0d%0aX:1", "%ed%a0%80", "..%2f..", "9" * 5_000, "%zz", "%F0%9F%98%80"):
                    path = re.sub(r"\{(\w+)[^}]*\}", lambda found: segment if found[1] == name else "q", route.path)  # noqa: B023
                    with client.stream(method, path) as told:
                        assert told.status_code < 500 and "X" not in told.headers, (method, path[:100], told.status_code)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lanes", "bull", "bananas", "mosquito", "bridge"])
def test_whatever_is_stored_every_face_answers(model: str, ironclaim_url: str, raw: Any, capsys: Any) -> None:
    wrong: list[str] = []
    with (
        Queue("q", models.named(model), url=ironclaim_url) as queue,
        asking(ironclaim_url, model=model, show_payloads=True) as client,
    ):
        id = queue.enqueue("main", {"a": "1"}).job
        addresses = [f"/api/queues/q{path}" for path in ("/jobs?text=x", f"/jobs/{id}", "", "/metrics")]
        addresses += [f"/queues/q/jobs/{id}", "/queues/q/jobs"]
        addresses += [f"/api/v1/jobs/{id}", "/api/v1/jobs"] if model == "bananas" else []
        kept = {key: raw.dump(key) for key in raw.keys(f"*{id}*")}
        # Each place of each of the job's own keys.
        for what, put in [(what, put) for what, put in hostile(raw) if id in what.split(" ")[0]]:
            put()
            for address in addresses:
                answer = client.get(address)
                if answer.status_code >= 500:
                    wrong.append(f"{what}: {address} {answer.status_code} {answer.text[:200]}")
                elif answer.headers["content-type"].startswith("application/json"):
                    answer.json()
            for key, dumped in kept.items():
                raw.restore(key, 0, dumped, replace=True)
        (_, put), *_ = hostile(raw)
        put()
        for words in (["jobs", "list"], ["jobs", "show", id, "--json"]):
            assert main([*words, "--url", ironclaim_url, "--model", model, "--queue", "q"]) in (0, 1, 2)
    assert not wrong, "\n".join(wrong[:20])
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("model", ["lanes", pytest.param("bananas", marks=pytest.mark.slow)])
def test_whatever_is_sent_in_is_answered_below_500_with_the_name_of_the_field(model: str, ironclaim_url: str) -> None:
    with asking(ironclaim_url, model=model, allow_changes=True, show_payloads=True) as client:
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
    with Queue("q", url=ironclaim_url) as queue, pytest.raises(errors.Malformed, match="headers"):
        queue.enqueue("a", 1, headers={"k": "\ud800"})


def test_what_json_cannot_say_is_said_as_a_text() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    said = json.loads(errors.json_text({"\ud800": [float("nan"), float("-inf"), 10**5_000, b"\xff", "\udfff"], "deep": deep}))
    assert said["\\ud800"][:2] == ["NaN", "-Infinity"] and said["\\ud800"][3:] == ["\\xff", "\\udfff"]
    assert "bits" in said["\\ud800"][2] and "list" in json.dumps(said["deep"])


async def _with_client(settings: HttpSettings, work: Callable[[httpx.AsyncClient], Any]) -> None:
    """Run this with a client of an application with these settings."""
    app = application(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        await work(client)


def _of_different_keys(places: list[tuple[str, Callable[[], Any]]]) -> list[tuple[str, Callable[[], Any]]]:
    """Some of these places, each in a key of its own; they are taken from the list."""
    some: dict[str, tuple[str, Callable[[], Any]]] = {}
    for place in list(places):
        if len(some) == PLACES:
            break
        if some.setdefault(place[0].split(" ")[0], place) is place:
            places.remove(place)
    return list(some.values())
