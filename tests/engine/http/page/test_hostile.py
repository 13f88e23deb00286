"""Names, keys, payloads, errors, stack traces and names of workers come from whoever can reach the server: none becomes markup.

The page's policy would refuse scripts anyway, and then the console says so; here nothing gets that far.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine import Handlers, Job, Queue, Worker
from engine.http.settings import HttpSettings
from engine.models.dsps import DspsKeys
from tests.engine.helpers import at_work, waiting
from tests.engine.http.page.conftest import of_everything, put_run
from tests.engine.http.page.test_page_browser import SCRIPTS, ready
from tests.engine.http.serving import served
from tests.reports.browser import Browser

#: What each place gets: a script, a tag that loads something, an attribute that breaks out, and a template's own syntax.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>{{7*7}}"
#: Where slashes and spaces have a meaning of their own.
HOSTILE_NAME = "<img\tsrc=x\tonerror=alert(4)>\"'>"


@pytest.fixture
def hostile(queue: Queue, monkeypatch: pytest.MonkeyPatch, raw: Any, tmp_path: Path) -> str:
    """A queue that somebody has filled to harm who looks at it; the id of a dead job."""
    handlers = Handlers()

    @handlers("fail")
    def fail(job: Job) -> None:
        raise ValueError(HOSTILE)

    queue.events.on()
    dead = queue.enqueue("fail", {"payload": HOSTILE}, attempts=1, headers={"x": HOSTILE}, unique="u").job
    with at_work.at_work(Worker(queue, handlers, name="w1")):
        waiting.wait_until(lambda: queue.jobs.state(dead) == "dead", "the job dies")
    keys = queue.model.keys
    # A producer and a worker that check nothing write what they like.
    with monkeypatch.context() as patch:
        patch.setattr("engine.validate._matching", lambda field, value, pattern: value)
        for number in range(3):
            queue.enqueue(HOSTILE_NAME, number, key=HOSTILE_NAME, id=f"named-{number}")
        queue.pause(HOSTILE_NAME)
        queue.set_limit(HOSTILE_NAME, concurrency=1)
        queue.schedules.put("nightly", HOSTILE_NAME, cron="0 3 * * *")
    queue.enqueue("fine", {HOSTILE: HOSTILE}, id="payload")
    about: dict[str, Any] = {"name": HOSTILE, "host": HOSTILE, "pid": 1, "concurrency": 1, "in_hand": 1, "jobs": [HOSTILE_NAME]}
    about |= {"handlers": [HOSTILE], "started_ms": 1, "version": HOSTILE}
    raw.zadd(keys.workers, {"feedfacefeedface": queue.driver.server_now_ms() + 600_000})
    raw.set(f"{keys.prefix}worker:feedfacefeedface", f"1 600000 9000 0 {json.dumps(about)}")
    hostile_channel = DspsKeys(HOSTILE_NAME)
    raw.set(hostile_channel.clock, 5)
    raw.set(hostile_channel.cursor("<svg onload=alert(5)>"), 2)
    spec, verdict = dict.fromkeys(("scenario", "model", "git_commit"), HOSTILE), {"verdict": HOSTILE, "reasons": [HOSTILE]}
    put_run(tmp_path, spec, verdict, f"<!DOCTYPE html><p>Report{HOSTILE}<script>parent.alert(6); fetch('/queues')</script>")
    return dead


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_hostile_becomes_markup(window: Browser, hostile: str, ironclaim_url: str, tmp_path: Path, width: int) -> None:
    views = {
        "/queues": "q", "/queues/q": "alert(4)", "/queues/q/jobs": "alert(4)", "/queues/q/jobs?state=dead": "alert(1)",
        "/queues/q/jobs?text=%22%3E%3Cscript%3Ealert(7)%3C/script%3E": "alert(7)",
        "/queues/q/jobs/named-0": "alert(4)", f"/queues/q/jobs/{hostile}": "onerror=alert(2)",
        "/queues/q/bulk?state=dead&action=requeue&text=%3Cimg%20src=x%20onerror=alert(8)%3E": "alert(8)",
        "/queues/q/dead": "alert(1)", "/queues/q/schedules": "alert(4)", "/queues/q/workers": "alert(1)",
        "/queues/q/jobs/payload": "{{7*7}}", "/queues/q/limits": "alert(4)", "/channels": "alert(4)", "/runs": "alert(1)",
        "/queues/%3Cscript%3Ealert(9)%3C%7Cscript%3E": "alert(9)",
    }  # fmt: skip
    with served(of_everything(ironclaim_url, tmp_path)) as base:
        for path, text in views.items():
            window.open(base + path, width=width)
            ready(window)
            assert window.run(SCRIPTS["markup"]) == [], path
            assert text in re.sub(r"\s+", " ", window.run(SCRIPTS["text"])), path
            assert [line for line in window.console() if "status of 422" not in line] == [], path
            assert [asked for asked in window.requests() if not asked.startswith((base + "/", "data:"))] == []


@pytest.mark.slow
def test_a_report_runs_in_a_sandbox_of_its_own(window: Browser, hostile: str, ironclaim_url: str, tmp_path: Path) -> None:
    with served(HttpSettings(url=ironclaim_url, runs=tmp_path / "runs")) as base:
        window.open(f"{base}/runs/20260501-120000-mixed-seed7")
        assert "Report" in window.run("return document.body.innerText")
        assert window.run("return self.origin") == "null"
        assert [asked for asked in window.requests() if asked.endswith("/queues")] == []
        assert all("script" in said or "img-src" in said for said in window.console())
