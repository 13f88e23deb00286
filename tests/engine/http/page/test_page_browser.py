"""The page in headless Chromium: at 390 and 1,440 pixels, light and dark, it is quiet, asks nobody else for anything,
and axe-core finds nothing; what is done in the browser is done in the queue."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from tests.engine.helpers.waiting import wait_until
from tests.engine.http.page.conftest import Busy
from tests.reports.browser import Browser

VIEWS = (
    *("", "/jobs", "/jobs?state=dead", "/jobs/{dead}", "/jobs/{running}", "/dead"),
    *("/bulk?state=dead&action=requeue&error=ValueError", "/schedules", "/workers", "/limits"),
)
SITE = ("/queues", "/channels", "/runs", "/sign-in")

AXE = """
return axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(
  one => one.id + ' ' + one.nodes.map(node => node.target + ': ' + node.failureSummary).join(' | ')));
"""
#: What sticks out of the window, apart from what scrolls by itself.
STICKING_OUT = """
const scrolls = '.scroll, pre, .tabs, .pills, .unseen, thead', edge = document.documentElement.clientWidth + 1;
return Array.from(document.querySelectorAll('main *, header *'))
  .filter(element => !element.closest(scrolls) && element.getBoundingClientRect().right > edge)
  .map(element => element.outerHTML.slice(0, 80));
"""
#: The parts of a page that htmx asks for have come, and on the overview the first samples.
SETTLED = """
return document.readyState === 'complete' && !document.querySelector('.htmx-request, .pending')
  && (!document.querySelector('[data-live]') || !!document.querySelector('.live.on'));
"""


def ready(window: Browser) -> None:
    """Wait until the page shows all that it is going to."""
    wait_until(lambda: window.run(SETTLED), "the page is there", 60)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_each_view_is_quiet_stays_inside_and_can_be_used_by_all(
    window: Browser, busy: Busy, axe: str, width: int, dark: bool
) -> None:
    addresses = [busy.of_queue + view.format(dead=busy.dead, running=busy.running) for view in VIEWS]
    found: dict[str, Any] = {}
    for address in (*addresses, *(busy.base + path for path in SITE)):
        window.open(address, width=width, dark=dark)
        ready(window)
        said = window.console()
        elsewhere = [asked for asked in window.requests() if not asked.startswith((busy.base + "/", "data:"))]
        window.run(axe)
        wrong = [said, elsewhere, window.run(AXE), window.run(STICKING_OUT)]
        if any(wrong):
            found[address] = wrong
    assert found == {}


@pytest.mark.slow
def test_axe_would_find_what_a_bad_page_does(window: Browser, busy: Busy, axe: str) -> None:
    window.open(busy.of_queue)
    ready(window)
    window.run("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"data:,\"><input>')")
    window.run(axe)
    assert {one.split(" ")[0] for one in window.run(AXE)} == {"image-alt", "label"}


@pytest.mark.slow
def test_the_overview_goes_on_by_itself_and_asks_for_nothing_else(window: Browser, busy: Busy) -> None:
    window.open(busy.of_queue, width=1440)
    ready(window)
    shown = "return document.querySelector('[data-number=waiting]').textContent"
    before = int(window.run(shown))
    window.requests()
    busy.queue.enqueue("wait", 1)
    wait_until(lambda: int(window.run(shown)) == before + 1, "the new job is counted")
    assert window.requests() == []
    assert window.run("return document.querySelectorAll('.chart path.line').length") >= 1
    labels = "return Array.from(document.querySelectorAll('.chart svg[role=img]'), one => one.getAttribute('aria-label'))"
    wait_until(lambda: window.run(labels)[1] == f"Waiting by name: wait {before + 1}", "the chart has it too")
    assert len(window.run(labels)) == 4 and window.requests() == []


def test_a_page_is_worked_by_keyboard(window: Browser, busy: Busy) -> None:
    window.open(f"{busy.of_queue}/jobs/{busy.dead}", width=1440)
    ready(window)
    seen: list[str] = []
    for _ in range(60):
        press(window, "Tab")
        seen.append(
            window.run("const at = document.activeElement; return (at.textContent || at.getAttribute('aria-label') || '').trim()")
        )
        if seen[-1] == "Requeue":
            break
    assert seen[0] == "Skip to the content" and seen[-1] == "Requeue", seen
    assert window.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(window, "Enter", "\r")
    wait_until(lambda: busy.queue.counts().buried == 2, "it was requeued, and died again")


def press(window: Browser, key: str, text: str = "") -> None:
    """One key."""
    for kind in ("keyDown", "keyUp"):
        code = {"Tab": 9, "Enter": 13}[key]
        window.devtools(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            code=key,
            text=text if kind == "keyDown" else "",
            windowsVirtualKeyCode=code,
        )


#: Fills in a form and sends it, as somebody does who clicks its button.
SUBMIT = """
const form = Array.from(document.forms).find(form => form.method === 'post' && form.getAttribute('action').endsWith(action));
for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
form.requestSubmit();
"""


def submit(window: Browser, busy: Busy, view: str, action: str, **fields: str) -> str:
    """Send a form of a view in the browser; what the page says then."""
    window.open(busy.of_queue + view, width=1440)
    ready(window)
    window.devtools("Page.enable")
    window.run(f"window.old = true; const [action, fields] = {json.dumps([action, fields])};" + SUBMIT)
    wait_until(lambda: window.run("return document.readyState === 'complete' && !window.old"), f"the answer to {action}", 60)
    assert window.console() == []
    return window.run(
        "const said = document.querySelector('[role=status].notice'); return said ? said.textContent : document.body.innerText"
    )


@pytest.mark.slow
def test_each_action_in_the_browser_shows_on_raw_keys(window: Browser, busy: Busy, ironclaim_url: str) -> None:
    server, keys = redis.Redis.from_url(ironclaim_url, decode_responses=True), busy.queue.model.keys
    assert isinstance(keys.paused, str)

    assert "Paused" in submit(window, busy, "", "/pause")
    assert server.hexists(keys.paused, "*")
    assert submit(window, busy, "", "/resume") == "Resumed."
    assert not server.hexists(keys.paused, "*")
    submit(window, busy, "/limits", "/pause", name="wait", length_s="3600")
    assert server.hexists(keys.paused, "wait")

    assert submit(window, busy, "/limits", "/limits", of="key", target="tenant-2", concurrency="3") == "The limit is set."
    assert server.hget(keys.limits, "k:tenant-2") == "3 0 0 sliding"
    assert submit(window, busy, "/limits", "/limits/remove") == "The limit was removed."
    assert server.hlen(keys.limits) == 2

    assert submit(window, busy, "/schedules", "/off/enable") == "The schedule was changed."
    assert server.zscore(keys.cron, "off") != float("inf")
    assert submit(window, busy, "/schedules", "/off/disable") == "The schedule was changed."
    assert server.zscore(keys.cron, "off") == float("inf")
    made = int(busy.queue.counts().waiting)
    assert "enqueued" in submit(window, busy, "/schedules", "/nightly/run-now")
    assert busy.queue.counts().waiting == made + 1
    submit(window, busy, "/schedules", "/off/remove")
    assert server.zscore(keys.cron, "off") is None

    submit(window, busy, "/workers", "/w1/concurrency", concurrency="1")
    assert server.hget(keys.settings, "c:w1") == "1"
    submit(window, busy, "/workers", "/w1/pause")
    assert server.hget(keys.settings, "p:w1") is not None

    assert "claimable" in submit(window, busy, "/jobs/late", "/late/run_now")
    assert server.zcard(keys.due) == 0
    assert submit(window, busy, "/jobs/late", "/late/cancel") == "The job was cancelled."
    assert busy.queue.jobs.state("late") == "cancelled"
    # The worker is paused, so a job that was requeued waits.
    assert "requeued" in submit(window, busy, f"/jobs/{busy.dead}", "/requeue")
    assert server.zcard(keys.dead) == 0 and server.zscore(keys.lane("fail"), busy.dead) is not None
    waiting = busy.queue.jobs.list("waiting", name="wait")
    assert submit(window, busy, "/bulk?state=waiting&action=cancel&name=wait", "/bulk", limit="5") == "5 jobs were changed."
    assert len(busy.queue.jobs.list("waiting", name="wait")) == len(waiting) - 5
