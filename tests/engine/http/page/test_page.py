"""The page over HTTP: what it shows to whom, and what it refuses."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from functools import partialmethod
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from engine import Bury, Channel, Handlers, Job, Queue, Worker, models, validate
from engine.http.application import application
from engine.http.page import job_views
from engine.http.settings import HttpSettings, Token
from engine.queue.asynchronous.parts import AsyncWorkers
from tests.engine.command.running import ironclaim
from tests.engine.http.page.conftest import Busy
from tests.engine.http.serving import asking, coming, served
from tests.engine.using import Book, at_work, make_worker, producing, waiting

TOKENS = (
    Token(secret="reader-0123456789", role="read", name="reader"),
    Token(secret="operator-0123456789", role="operate", name="operator"),
    Token(secret="of-one-queue-0123456789", role="admin", queues=("other",), name="of-one"),
)


def post(
    client: httpx.Client, path: str, fields: dict[str, str] | None = None, *, origin: str | None = None, token: str | None = None
) -> httpx.Response:
    """A form of the page, as a browser sends it; `token`: another one than that of the page."""
    if "ironclaim_csrf" not in client.cookies:
        client.get("/sign-in")
    form = {"csrf_token": client.cookies["ironclaim_csrf"] if token is None else token, **(fields or {})}
    return client.post(path, data=form, headers={"Origin": str(client.base_url).rstrip("/") if origin is None else origin})


def failing(name: str, error: Callable[[Job], Exception]) -> Handlers:
    def fail(job: Job) -> None:
        raise error(job)

    return producing.some_handlers(fail, name)


def test_the_first_page_is_that_of_the_queues(client: httpx.Client) -> None:
    answer = client.get("/", follow_redirects=True)
    assert answer.url.path == "/queues" and 'href="/queues/q"' in answer.text
    summary = client.get("/queues/q/summary").text
    assert re.findall(r'data-label="(\w+)">(\d+)<', summary) == [
        ("Waiting", "12"), ("Delayed", "1"), ("Blocked", "1"), ("Active", "1"), ("Dead", "1"), ("Finished", "0"),
    ]  # fmt: skip


def test_jobs_are_found_by_name_key_error_and_text(client: httpx.Client, busy: Busy) -> None:
    def ids(query: str) -> int:
        return client.get(f"/queues/q/jobs?{query}").text.count('class="id"')

    assert ids("state=waiting") == ids("name=wait") == 12 and ids("key=tenant-1") == ids("text=TENANT-1") == 4
    assert ids("name=other") == ids("key=tenant-9") == ids("text=nothing") == 0
    assert ids("state=dead&error=ValueError") == ids("state=dead&text=such+user") == 1
    assert ids("state=dead&error=Value") == 0, "an error is found by whole words"
    assert client.get(f"/queues/q/find?id={busy.dead}").headers["location"] == f"/queues/q/jobs/{busy.dead}"


def test_a_list_goes_on_where_the_look_before_has_ended(client: httpx.Client, busy: Busy) -> None:
    busy.queue.enqueue_many({"name": "many", "payload": at, "id": f"many-{at:03d}"} for at in range(120))
    seen, following = list[str](), ["?state=waiting"]
    while following:
        text = client.get(f"/queues/q/jobs{unescape(following[0])}").text
        seen += re.findall(r'title="(many-\d+)"', text)
        following = re.findall(r'rel="next" href="([^"]+)"', text)
    assert seen == [f"many-{at:03d}" for at in range(120)]


def test_one_job_is_a_timeline_with_the_jobs_around_it(client: httpx.Client, busy: Busy) -> None:
    dead = client.get(f"/queues/q/jobs/{busy.dead}").text
    assert re.findall(r"<p><strong>([^<]+)</strong> <time", dead) == ["Enqueued", "Run 1 claimed", "Run 1 failed", "Dead"]
    assert "ValueError: no such user: 7" in dead and "Traceback" in dead
    assert f'class="sentence">It {busy.queue.jobs.why(busy.dead).sentence}.<' in unescape(dead)
    fence = busy.queue.jobs.get(busy.dead)
    assert fence is not None and f"fence <code>{fence.fence}</code>" in dead
    running = client.get("/queues/q/jobs/runs").text
    assert "worker w1, fence" in running and '<a href="/queues/q/jobs/child">' in running
    assert '<a href="/queues/q/jobs/runs">' in client.get("/queues/q/jobs/child").text
    (link,) = re.findall(r'hx-get="([^"]+/events[^"]*)"', dead)
    assert link == f"/queues/q/jobs/{busy.dead}/events?since={fence.enqueued_ms}"
    recorded = client.get(link).text
    assert re.findall(r"<strong>(\w+)</strong>", recorded) == ["Created", "Claimed", "Failed", "Dead"] and ">w1<" in recorded


def test_attempts_are_one_truth_on_the_page_in_the_api_and_in_the_command(queue: Queue, ironclaim_url: str) -> None:
    ends: list[Exception] = [ValueError("no"), ValueError("no"), Bury("never")]
    handlers = failing("send", lambda job: ends.pop(0))
    queue.enqueue("send", None, id="j1", attempts=2, backoff_ms=0)
    Worker(queue, handlers).run(burst=True)
    with asking(ironclaim_url, allow_changes=True) as client:

        def told() -> set[str]:
            """What page, list, API and command say of its attempts."""
            shown = client.get("/queues/q/jobs/j1").text
            listed = client.get("/queues/q/jobs?state=dead").text
            words = re.findall(r"<dt>Attempts</dt><dd>([^<]+)<", shown) + re.findall(r'data-label="Attempts">([^<]+)<', listed)
            at = ("--queue", "q", "--url", ironclaim_url)
            for command in (("jobs", "show", "j1"), ("dead", "list")):
                (line,) = [line for line in ironclaim(*command, *at).stdout.splitlines() if " used" in line]
                found = re.search(r"\d+ of \d+ used[a-z ,]*?(?=  |$)", line)
                assert found is not None
                words.append(found[0])
            assert len(words) == 4
            return {*words, client.get("/api/queues/q/jobs/j1").json()["attempts"]}

        def runs() -> list[str]:
            return re.findall(r"<p><strong>((?:Run|Requeued)[^<]*)</strong>", client.get("/queues/q/jobs/j1").text)

        assert told() == {"2 of 2 used"}
        before = ["Run 1 claimed", "Run 1 failed", "Run 2 claimed", "Run 2 failed"]
        assert runs() == before and post(client, "/queues/q/jobs/j1/requeue").status_code == 303
        waiting = queue.jobs.get("j1")
        assert waiting is not None and waiting.requeued_ms and waiting.attempts == "0 of 2 used, since its requeue"
        assert runs() == [*before, "Requeued, with all its attempts"]
        Worker(queue, handlers).run(burst=True)
        assert told() == {"0 of 2 used, since its requeue, not to be retried"}
        assert runs() == [*before, "Requeued, with all its attempts", "Run 3 claimed", "Run 3 failed"]
        assert [error["number"] for error in client.get("/api/queues/q/jobs/j1").json()["errors"]] == [1, 2, 3]


def test_a_job_that_there_is_not_is_a_page_that_says_so(client: httpx.Client) -> None:
    answer = client.get("/queues/q/jobs/nobody")
    assert answer.status_code == 404 and "knows no job nobody" in answer.text
    for path in ("/queues/q/jobs?state=none", "/queues/q/jobs?cursor=-1", "/queues/q/jobs?cursor=99999999", "/queues/a%20b"):
        assert client.get(path).status_code == 422, path


def test_payloads_are_hidden_unless_they_may_be_seen(busy: Busy, ironclaim_url: str, client: httpx.Client) -> None:
    seen = client.get("/queues/q/jobs/runs")
    assert "someone" in seen.text and "text/html" in seen.headers["content-type"]
    with asking(ironclaim_url) as other:
        views = ("/runs", "?state=active", "?state=active&text=someone")
        hidden, listed, found = (other.get(f"/queues/q/jobs{view}").text for view in views)
    assert "someone" not in hidden and "--show-payloads" in hidden and 'title="runs"' in listed and "someone" not in listed
    assert 'title="runs"' not in found, "a filter must not tell what is hidden"


def test_a_page_that_may_change_nothing_has_no_forms_and_refuses_them(busy: Busy, ironclaim_url: str) -> None:
    with asking(ironclaim_url) as client:
        for view in ("", "/jobs?state=dead", f"/jobs/{busy.dead}", "/dead", "/schedules", "/workers", "/limits"):
            text = client.get(f"/queues/q{view}").text
            assert 'method="post"' not in text and "/sign-out" not in text, view
        refused = post(client, f"/queues/q/jobs/{busy.dead}/requeue")
    assert refused.status_code == 403 and "--allow-changes" in refused.text and busy.queue.jobs.state(busy.dead) == "dead"


@pytest.mark.parametrize("attack", [{"origin": "http://evil.example"}, {"origin": "null"}, {"token": "x" * 43}, {"token": ""}])
def test_a_form_of_another_site_changes_nothing(client: httpx.Client, busy: Busy, attack: dict[str, Any]) -> None:
    assert post(client, f"/queues/q/jobs/{busy.dead}/discard", **attack).status_code == 403
    assert busy.queue.jobs.state(busy.dead) == "dead"
    assert post(client, f"/queues/q/jobs/{busy.dead}/discard").headers["location"] == f"/queues/q/jobs/{busy.dead}?did=discarded"
    assert busy.queue.jobs.state(busy.dead) == "discarded"


def test_a_change_is_never_made_by_get(client: httpx.Client, busy: Busy) -> None:
    for path in (f"/jobs/{busy.dead}/requeue", "/pause", "/limits/remove", "/schedules/off/remove", "/workers/w1/pause"):
        assert client.get(f"/queues/q{path}").status_code == 405, path
    assert busy.queue.jobs.state(busy.dead) == "dead"


def test_who_is_not_known_signs_in_and_sees_and_does_what_the_token_allows(busy: Busy, ironclaim_url: str) -> None:
    with served(HttpSettings(url=ironclaim_url, allow_changes=True, tokens=TOKENS)) as base:

        def signed_in(secret: str) -> httpx.Client:
            client = httpx.Client(base_url=base, timeout=120)
            assert client.get("/queues/q").headers["location"] == "/sign-in"
            assert post(client, "/sign-in", {"token": secret[:-1]}).status_code == 401
            assert post(client, "/sign-in", {"token": secret}).headers["location"] == "/queues"
            return client

        with closing(signed_in(TOKENS[0].secret)) as reader:
            assert 'method="post" action="/queues' not in reader.get(f"/queues/q/jobs/{busy.dead}").text
            assert post(reader, f"/queues/q/jobs/{busy.dead}/requeue").status_code == 403
        with closing(signed_in(TOKENS[1].secret)) as operator:
            limits = operator.get("/queues/q/limits").text
            assert "/sign-out" in limits and "/queues/q/pause" in limits and "/queues/q/limits/remove" not in limits
            assert post(operator, "/queues/q/limits/remove", {"of": "name", "target": "wait"}).status_code == 403
            assert post(operator, "/queues/q/pause").headers["location"] == "/queues/q?did=paused"
            left = post(operator, "/sign-out")
            assert (left.status_code, left.headers["location"]) == (303, "/sign-in")
            assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=0"} <= set(left.headers["set-cookie"].split("; "))
            assert operator.get("/queues/q").headers["location"] == "/sign-in"
        with closing(signed_in(TOKENS[2].secret)) as stranger:
            assert stranger.get("/queues/q").status_code == 403 and "/queues/q" not in stranger.get("/queues").text
    assert {pause.name for pause in busy.queue.obstacles().pauses} == {None, "late"}
    assert [limit.name for limit in busy.queue.limits() if limit.name] == ["wait"]


def test_an_address_makes_the_page_say_nothing_of_its_own(client: httpx.Client) -> None:
    assert 'class="notice' not in client.get("/queues/q?did=%3Cb%3Ehacked&count=9").text
    assert 'class="notice' not in client.get("/queues/q?did=bulk&count=%3Cb%3E").text
    assert "Changed: 1,234 jobs." in client.get("/queues/q/jobs?did=bulk&count=1234").text


def test_many_jobs_are_changed_as_the_preview_counts(queue: Queue, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.enqueue_many({"name": f"n{at % 2}", "payload": at, "id": f"j{at}", "delay_ms": 3_600_000} for at in range(700))
    with asking(ironclaim_url, allow_changes=True, show_payloads=True) as client:
        text = client.get("/queues/q/bulk?state=delayed&action=cancel&name=n1").text
        looks = 1
        while following := re.search(r'hx-get="([^"]+)"', text):
            text = client.get(following[1].replace("&amp;", "&")).text
            looks += 1
        assert looks == 3 and "<strong>350</strong>" in text
        answer = post(client, "/queues/q/bulk", {"state": "delayed", "action": "cancel", "name": "n1", "limit": "10000"})
        assert answer.headers["location"] == "/queues/q/jobs?did=bulk&count=350"
        assert queue.counts().delayed == 350 and queue.jobs.list("delayed", name="n1") == []
        answer = post(client, "/queues/q/bulk", {"state": "delayed", "action": "run_now", "text": "j", "limit": "120"})
        assert answer.headers["location"] == "/queues/q/jobs?did=bulk&count=120" and queue.counts().waiting == 120
        monkeypatch.setattr(job_views, "_LOOKED_MAX", 1)
        answer = post(client, "/queues/q/bulk", {"state": "delayed", "action": "cancel", "limit": "10000"})
        assert answer.headers["location"] == "/queues/q/jobs?did=bulk&count=1" and queue.counts().delayed == 229
        for fields in ({"action": "discard"}, {"limit": "0"}, {"limit": "x"}, {"state": "active"}):
            given = {"state": "delayed", "action": "cancel", "limit": "10", **fields}
            assert post(client, "/queues/q/bulk", given).status_code == 422, fields


def test_a_group_of_dead_jobs_is_changed_as_it_is_counted(queue: Queue, ironclaim_url: str) -> None:
    for at in range(12):
        queue.enqueue("send", f"no user {at} at 10.0.0.{at}:80", id=f"user-{at}", attempts=1)
    for at in range(3):
        queue.enqueue("send", f"no user of route {at}", id=f"route-{at}", attempts=1)
    Worker(queue, failing("send", lambda job: ValueError(job.payload))).run(burst=True)
    with asking(ironclaim_url, allow_changes=True) as client:

        def shown() -> str:
            return client.get("/queues/q/dead").text

        def counts() -> dict[str, int]:
            rows = re.findall(r'class="error" title="([^"]+)".*?data-label="Jobs" class="number">(\d+)<', shown(), re.DOTALL)
            return {kind: int(count) for kind, count in rows}

        def act(action: str, kind: str) -> str:
            """Follow the link of a group, and send the form that it leads to."""
            links = re.findall(r'href="([^"]+)">' + action, shown())
            (link,) = [unescape(link) for link in links if quote_plus(kind) in link]
            preview = client.get(link).text
            hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview)
            fields = {name: unescape(value) for name, value in hidden if name != "csrf_token"}
            assert re.findall(r"<strong>(\d+)</strong>", preview)[0] == str(counts()[kind])
            return post(client, "/queues/q/bulk", {**fields, "limit": "10000"}).headers["location"]

        assert counts() == {"ValueError: no user … at …": 12, "ValueError: no user of route …": 3}
        assert "last: ValueError: no user " in shown() and 'data-label="First"' in shown()
        assert act("requeue", "ValueError: no user … at …") == "/queues/q/dead?did=bulk&count=12"
        assert {job.id for job in queue.jobs.list("waiting")} == {f"user-{at}" for at in range(12)}
        assert counts() == {"ValueError: no user of route …": 3}
        assert act("discard", "ValueError: no user of route …") == "/queues/q/dead?did=bulk&count=3"
        assert queue.counts().dead == 0 and queue.counts().waiting == 12


def test_names_that_no_live_worker_handles_hold_jobs_back(queue: Queue, ironclaim_url: str) -> None:
    for name in ("recipt", "nigtly"):
        queue.enqueue(name, {})
    with asking(ironclaim_url) as client:
        assert "no worker of this queue is alive" in client.get("/queues/q").text
        with at_work(make_worker(queue, Book(), "w1", beat_ms=60_000, sweep_ms=100)):
            waiting.wait_until(queue.workers.list, "the worker")
            words = "no live worker handles: nigtly, recipt"
            for path in ("/queues/q", "/queues/q/summary"):
                assert words in client.get(path).text
            page = client.get("/queues/q").text
            assert "Nothing holds jobs back" not in page and page.count("a handler: no live worker has one") == 2
            with client.stream("GET", "/queues/q/live") as answer:
                # What comes in the place of that part of the page says it, too.
                held = next(line for line in coming(answer.iter_lines(), "data: ") if "What holds jobs back" in line)
            assert words in held
            for job in queue.jobs.list("waiting"):
                queue.jobs.cancel(job.id)
            assert "Nothing holds jobs back" in client.get("/queues/q").text


def test_the_page_of_a_dead_parent_shows_its_children_and_requeues_them(queue: Queue, ironclaim_url: str) -> None:
    queue.enqueue("charge", 1, id="charge-1", attempts=1)
    for at in range(12):
        queue.enqueue("ship", at, id=f"ship-{at:02}", needs=["charge-1"])
    queue.enqueue("bill", 1, id="bill", needs=["ship-00"])
    Worker(queue, failing("charge", lambda job: ValueError("no card"))).run(burst=True)
    waiting.wait_until(lambda: queue.counts().dead == 14, "the children are buried")
    with asking(ironclaim_url, allow_changes=True) as client:
        page = client.get("/queues/q/jobs/charge-1").text
        shown = re.findall(r'<a href="/queues/q/jobs/(ship-\d\d)">\s*<g class="node is-dead', page)
        assert "Jobs around it" in page and len({*shown}) == 10 and "and 1 more" in page
        assert "Requeue with children" in page and "Requeue with children" not in client.get("/queues/q/jobs/bill").text
        done = post(client, "/queues/q/jobs/charge-1/requeue_with_children")
        assert done.status_code == 303 and "died with it wait for it again" in client.get(done.headers["location"]).text
    assert (queue.counts().waiting, queue.counts().blocked, queue.counts().dead) == (1, 13, 0)


def test_runs_are_listed_and_no_other_file_is_served(client: httpx.Client, busy: Busy, tmp_path: Path) -> None:
    listed = client.get("/runs").text
    assert "J6: a job was finished twice" in listed and 'href="/runs/20260501-120000-mixed-seed7"' in listed
    report = client.get("/runs/20260501-120000-mixed-seed7")
    assert "<p>Report" in report.text and report.headers["content-security-policy"].endswith("; sandbox")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "report.html").write_text("secret")
    (tmp_path / "runs" / "linked").symlink_to(secret)
    (tmp_path / "runs" / "plain").mkdir()
    (tmp_path / "runs" / "plain" / "report.html").symlink_to(secret / "report.html")
    for name in ("..", "..%2fsecret", "%2e%2e", "linked", "plain", "none", "20260501-120000-mixed-seed7/spec.json"):
        answer = client.get(f"/runs/{name}")
        assert answer.status_code in (303, 400, 404) and "secret" not in answer.text, name


def test_channels_show_how_far_their_subscribers_are_behind(client: httpx.Client, ironclaim_url: str) -> None:
    with Channel("news", url=ironclaim_url) as channel:
        channel.subscribe("slow")
        for number in range(3):
            channel.publish(f"m{number}", number)
        channel.subscribe("new")
    rows = re.findall(r'data-label="(?:Subscriber|Messages behind)">(\w+)<', client.get("/channels?channel=news").text)
    assert rows == ["slow", "3", "new", "0"] and client.get("/channels?cursor=x").status_code == 422


def test_an_old_keyspace_shows_what_it_knows(ironclaim_url: str) -> None:
    with Queue("old", models.Bull(), url=ironclaim_url) as queue:
        job = queue.enqueue("send", {"to": 1}).job
    with asking(ironclaim_url, model="bull") as client:
        assert "does not tell" in client.get("/queues/old").text
        assert f'title="{job}"' in client.get("/queues/old/jobs").text
        assert client.get(f"/queues/old/jobs/{job}").status_code == 200
        for tab in ("dead", "schedules", "workers", "limits"):
            assert client.get(f"/queues/old/{tab}").status_code == 200, tab


async def test_it_may_be_mounted_below_another_path(busy: Busy, ironclaim_url: str) -> None:
    app = application(HttpSettings(url=ironclaim_url))
    transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/ops", app)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        text = (await client.get("/ops/queues/q")).text
        style = re.search(r'href="([^"]+page.css[^"]*)"', text)
        assert style is not None and (await client.get(style[1])).status_code == 200
    await app.state.opened.close()
    assert set(re.findall(r'(?:href|src|action|data-live)="(/[^/"]*)', text)) == {"/ops"}


def test_the_samples_are_events_that_a_browser_can_read(client: httpx.Client, busy: Busy) -> None:
    busy.queue.enqueue_many({"name": f"n{at}", "payload": at} for at in range(9))
    kinds: dict[str, object] = {}
    with client.stream("GET", "/queues/q/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: ") and (data := json.loads(line.removeprefix("data: "))):
                kinds[kind] = data
            if {"samples", "held"} <= kinds.keys():
                break
    (sample,) = kinds["samples"]  # type: ignore[misc]
    counts = busy.queue.counts()
    shown = ("waiting", "delayed", "blocked", "active", "dead", "finished", "dead_total")
    assert {name: sample[name] for name in shown} == {name: getattr(counts, name) for name in shown} and sample["error"] == ""
    assert sample["names"] == [["wait", 12], *([f"n{at}", 1] for at in range(7))], "those with most jobs"
    assert "limit of name wait" not in str(kinds["held"]) and "the name late is paused" in str(kinds["held"])


@pytest.mark.slow
def test_a_queue_with_shards_is_looked_at_and_changed_as_one(ironclaim_url: str) -> None:
    with Queue("wide", url=ironclaim_url, shards=3) as queue:
        queue.enqueue_many({"name": "send", "payload": at, "id": f"j{at}", "key": f"k{at}"} for at in range(40))
        queue.enqueue("send", 0, id="later", delay_ms=3_600_000)
        with asking(ironclaim_url, allow_changes=True) as client:
            assert 'data-number="waiting">40<' in client.get("/queues/wide").text
            assert client.get("/queues/wide/jobs").text.count('class="id"') == 40
            assert client.get("/queues/wide/jobs/j7").status_code == client.get("/queues/wide/jobs/later").status_code == 200
            for tab in ("summary", "dead", "schedules", "workers", "limits"):
                assert client.get(f"/queues/wide/{tab}").status_code == 200, tab
            assert "run_now" in client.get("/queues/wide/jobs/later").text
            assert post(client, "/queues/wide/jobs/later/run_now").headers["location"].endswith("did=runs-now")
            form = {"state": "waiting", "action": "cancel", "limit": "30"}
            assert post(client, "/queues/wide/bulk", form).headers["location"].endswith("did=bulk&count=30")
            assert post(client, "/queues/wide/pause").status_code == 303
        assert queue.counts().waiting == 11 and [pause.name for pause in queue.obstacles().pauses] == [None]


FORMS: list[tuple[str, dict[str, str], str]] = [
    ("pause", {"name": "mail", "length_s": "600"}, "?did=paused"), ("pause", {"view": "limits"}, "/limits?did=paused"),
    ("resume", {"name": "mail"}, "?did=resumed"), ("resume", {"name": "mail"}, "?did=not-paused"),
    ("pause", {"name": "mail", "length_s": "600"}, "?did=paused"), ("resume", {"view": "limits"}, "/limits?did=resumed"),
    ("limits", {"of": "name", "target": "mail", "concurrency": "3"}, "/limits?did=limit"),
    ("limits", {"of": "key", "target": "k", "rate": "5", "per_s": "60", "window": "fixed"}, "/limits?did=limit"),
    ("limits/remove", {"of": "name", "target": "wait"}, "/limits?did=no-limit"),
    ("limits/remove", {"of": "key", "target": "tenant-1"}, "/limits?did=no-limit"),
    ("schedules/off/enable", {}, "/schedules?did=schedule"), ("schedules/never/enable", {}, "/schedules?did=no-schedule"),
    ("schedules/never/disable", {}, "/schedules?did=no-schedule"), ("schedules/nightly/disable", {}, "/schedules?did=schedule"),
    ("schedules/off/run-now", {}, "/schedules?did=ran"), ("schedules/never/run-now", {}, "/schedules?did=no-schedule"),
    ("schedules/nightly/remove", {}, "/schedules?did=schedule"), ("schedules/nightly/remove", {}, "/schedules?did=no-schedule"),
    ("workers/w1/pause", {"length_s": "60"}, "/workers?did=worker"), ("workers/w2/pause", {}, "/workers?did=worker"),
    ("workers/w1/concurrency", {"concurrency": "7"}, "/workers?did=worker"), ("workers/w2/resume", {}, "/workers?did=worker"),
    *((f"{of}/none", {}, "404") for of in ("jobs/late", "schedules/off", "workers/w1")), ("pause", {"length_s": "x"}, "422"),
]  # fmt: skip


def noting(self: Any, told: list[Any], real: Any, *given: Any, **more: Any) -> Any:
    told.append((*given, more))
    return real(self, *given, **more)


MOST_S = validate.DURATION_MS_MAX // 1_000


BAD_FORMS = [
    *((path, "length_s", f"{MOST_S + 1}", f"a whole number from 0 to {MOST_S}") for path in ("pause", "workers/w1/pause")),
    *(("limits", "per_s", "9" * digits, f"a whole number from 0 to {MOST_S}") for digits in (13, 20)),
    *(("limits", field, "9" * 13, f"a whole number from 0 to {validate.RATE_MAX}") for field in ("rate", "concurrency")),
    *(("pause", "length_s", value, "a whole number of at most 20 digits") for value in ("9" * 21, "-1", "1.5")),
]


@pytest.mark.parametrize(("path", "field", "value", "bound"), BAD_FORMS)
def test_a_form_is_refused_by_what_was_typed(client: httpx.Client, path: str, field: str, value: str, bound: str) -> None:
    answer = post(client, f"/queues/q/{path}", {"of": "name", "target": "mail", field: value})
    shown = unescape(answer.text)
    assert answer.status_code == 422 and field in shown and value in shown and bound in shown


def test_each_form_changes_what_it_says(client: httpx.Client, busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[Any, ...]]()
    for method in ("pause", "resume", "set_concurrency"):
        monkeypatch.setattr(AsyncWorkers, method, partialmethod(noting, told, getattr(AsyncWorkers, method)))
    for path, fields, there in FORMS:
        answer = post(client, f"/queues/q/{path}", fields)
        assert answer.headers.get("location", str(answer.status_code)).removeprefix("/queues/q") == there, (path, fields)
    assert told == [("w1", {"length_ms": 60_000}), ("w2", {"length_ms": 0}), ("w1", 7, {}), ("w2", {})]
    now_ms, pauses = busy.queue.driver.server_now_ms(), {one.name: one.until_ms for one in busy.queue.obstacles().pauses}
    assert set(pauses) == {"late", "mail"} and 500_000 < pauses["mail"] - now_ms <= 600_000
    limits = [(one.name, one.key, one.concurrency, one.rate, one.per_ms, one.window) for one in busy.queue.limits()]
    assert sorted(limits, key=str) == [("mail", None, 3, 0, 0, "sliding"), (None, "k", 0, 5, 60_000, "fixed")]
    schedules = [(one.name, one.enabled) for one in busy.queue.schedules.list()]
    assert schedules == [("off", True)] and busy.queue.counts().waiting == 13
