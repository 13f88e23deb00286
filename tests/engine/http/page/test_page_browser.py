"""The page in headless Chromium: at 390 and 1,440 pixels, light and dark, it is quiet, asks nobody else for anything,
and axe-core finds nothing; what is done in the browser is done in the queue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Job, Queue, Worker
from engine.http.page.live import Sample
from engine.http.settings import HttpSettings
from tests.engine.helpers import producing, waiting
from tests.engine.http.page.conftest import Busy
from tests.engine.http.serving import served
from tests.reports.browser import Browser

VIEWS = (
    *("", "/jobs", "/jobs?state=dead", "/jobs/{dead}", "/jobs/{running}", "/dead"),
    *("/bulk?state=dead&action=requeue&error=ValueError", "/schedules", "/workers", "/limits"),
)
#: What runs in a page, each as the body of a function; the first line says what it is for.
SCRIPTS = {path.stem: path.read_text() for path in Path(__file__).with_name("scripts").glob("*.js")}


def ready(window: Browser) -> None:
    """Wait until the page shows all that it is going to."""
    waiting.wait_until(lambda: window.run(SCRIPTS["settled"]), "the page is there", 60)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_each_view_is_quiet_and_inside_and_all_can_use_it(window: Browser, busy: Busy, axe: str, width: int, dark: bool) -> None:
    addresses = [busy.of_queue + view.format(dead=busy.dead, running=busy.running) for view in VIEWS]
    found: dict[str, Any] = {}
    for address in (*addresses, *(busy.base + path for path in ("/queues", "/channels", "/runs", "/sign-in"))):
        window.open(address, width=width, dark=dark)
        ready(window)
        said = window.console()
        elsewhere = [asked for asked in window.requests() if not asked.startswith((busy.base + "/", "data:"))]
        window.run(axe)
        looks = ("violations", "sticking_out", "broken_words", "unreached_tabs")
        wrong = [said, elsewhere, *(window.run(SCRIPTS[look]) for look in looks)]
        if any(wrong):
            found[address] = wrong
    assert found == {}


@pytest.mark.slow
def test_short_names_are_not_broken_in_the_middle_of_a_word(window: Browser, queue: Queue, ironclaim_url: str) -> None:
    def fail(job: Job) -> None:
        raise ValueError("the customer has neither a card nor an account that could be charged: " + "ask them for one, " * 4)

    queue.history.on()
    for at in range(4):
        queue.enqueue("charge-customer", {"to": "someone"}, key=f"customer-{at}0001", attempts=1)
    queue.enqueue("charge-customer", {"to": "someone"}, id="7" * 60, key="send_an_invoice.to_somebody:" * 3, attempts=1)
    Worker(queue, producing.some_handlers(fail, "charge-customer"), name="checkout-worker1").run(burst=True)
    with served(HttpSettings(url=ironclaim_url, allow_changes=True)) as base:
        for view in ("history", "dead", "jobs?state=dead"):
            window.open(f"{base}/queues/q/{view}", width=1200)
            ready(window)
            assert window.run("return document.body.innerText").count("charge-customer") >= 1
            assert [window.run(SCRIPTS[look]) for look in ("broken_words", "sticking_out")] == [[], []], view


@pytest.mark.slow
def test_axe_would_find_what_a_bad_page_does(window: Browser, busy: Busy, axe: str) -> None:
    window.open(busy.of_queue)
    ready(window)
    window.run("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"data:,\"><input>')")
    window.run(axe)
    assert {one.split(" ")[0] for one in window.run(SCRIPTS["violations"])} == {"image-alt", "label"}


@pytest.mark.slow
def test_the_overview_goes_on_by_itself_and_asks_for_nothing_else(window: Browser, busy: Busy) -> None:
    window.open(busy.of_queue, width=1440)
    ready(window)
    shown = "return document.querySelector('[data-number=waiting]').textContent"
    before = int(window.run(shown))
    window.requests()
    busy.queue.enqueue("wait", 1)
    waiting.wait_until(lambda: int(window.run(shown)) == before + 1, "the new job is counted")
    assert window.requests() == [] and window.run("return document.querySelectorAll('.chart path.line').length") >= 1
    labels = "return Array.from(document.querySelectorAll('.chart svg[role=img]'), one => one.getAttribute('aria-label'))"
    waiting.wait_until(lambda: window.run(labels)[1] == f"Waiting by name: wait {before + 1}", "the chart has it too")
    assert len(window.run(labels)) == 4 and window.requests() == []


@pytest.fixture
def fed(window: Browser, busy: Busy) -> Iterator[Browser]:
    """The overview, whose samples a test gives."""
    window.devtools("Page.enable")
    made = window.devtools("Page.addScriptToEvaluateOnNewDocument", source=SCRIPTS["fed"])
    window.open(busy.of_queue, width=1440)
    waiting.wait_until(lambda: window.run("return document.readyState === 'complete' && !!window.feed"), "the page is there", 60)
    yield window
    window.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=made["identifier"])


def drawn(window: Browser, chart: str, samples: list[Sample]) -> tuple[dict[str, list[list[list[float]]]], int]:
    """What a chart shows of these samples: the corners of its lines (s before the last one, value), and how many gaps."""
    told = json.dumps([sample.fields() for sample in samples])
    found, gaps = window.run(f"feed({told}); const chart = {json.dumps(chart)};" + SCRIPTS["drawn"])
    assert window.console() == []
    return found, gaps


def test_no_line_is_drawn_where_nobody_watched_or_the_server_was_away(fed: Browser) -> None:
    def sample(at_s: int, oldest_ms: int = 3, error: str = "") -> Sample:
        return Sample(1_000_000 + 1_000 * at_s, oldest_ms=None if error else oldest_ms, waiting=at_s, error=error)

    watched = [sample(at_s) for at_s in (0, 1, 2, 20, 21)]
    lines, gaps = drawn(fed, "names", [*watched, sample(22, error="away"), sample(23), sample(24)])
    assert gaps == 2 and lines == {"0": [[[24, 0], [23, 1], [22, 2]], [[4, 20], [3, 21]], [[1, 23], [0, 24]]]}


def test_what_happens_now_and_then_is_drawn_as_steps(fed: Browser) -> None:
    rates = (None, 0.0, 0.0, 1.0, 0.0, 0.0)
    samples = [Sample(1_000_000 + 1_000 * at_s, finished_per_s=rate) for at_s, rate in enumerate(rates)]
    lines, gaps = drawn(fed, "rates", samples)
    # One job in the second before the third sample from the end: neither a slope to it nor one from it.
    assert (lines["1"], gaps) == ([[[5, 0], [4, 0], [4, 0], [3, 0], [3, 1], [2, 1], [2, 0], [1, 0], [1, 0], [0, 0]]], 0)
    # Who comes back sees what there was, and steps begin anew.
    again = [Sample(1_000_000 + 1_000 * at_s, finished_per_s=rate) for at_s, rate in ((40, None), (41, 2.0))]
    lines, gaps = drawn(fed, "rates", again)
    assert gaps == 1 and lines["1"][1] == [[1, 2], [0, 2]]


def test_a_page_is_worked_by_keyboard(window: Browser, busy: Busy) -> None:
    window.open(f"{busy.of_queue}/jobs/{busy.dead}", width=1440)
    ready(window)
    at = "const at = document.activeElement; return (at.textContent || at.getAttribute('aria-label') || '').trim()"
    seen = tabbed(window, 60, at, "Requeue")
    assert seen[0] == "Skip to the content" and seen[-1] == "Requeue", seen
    assert window.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(window, "Enter", "\r")
    waiting.wait_until(lambda: busy.queue.counts().dead_total == 2, "it was requeued, and died again")


def test_each_tab_is_reached_by_keyboard_on_a_phone(window: Browser, busy: Busy) -> None:
    window.open(f"{busy.of_queue}/limits", width=390)
    ready(window)
    tabs = window.run("return Array.from(document.querySelectorAll('.tabs a'), tab => tab.textContent)")
    at = """
        const at = document.activeElement, box = at.getBoundingClientRect();
        const inside = box.left >= 0 && box.right <= document.documentElement.clientWidth && box.top >= 0;
        return at.closest('.tabs') && inside ? at.textContent : '';
    """
    assert [tab for tab in tabbed(window, 30, at, tabs[-1]) if tab] == tabs and len(tabs) >= 6


def tabbed(window: Browser, most: int, script: str, last: str) -> list[str]:
    """What a script tells after each press of the tabulator, until it tells this."""
    seen: list[str] = []
    while len(seen) < most and last not in seen:
        press(window, "Tab")
        seen.append(window.run(script))
    return seen


def press(window: Browser, key: str, text: str = "") -> None:
    """One key."""
    told = {"key": key, "code": key, "windowsVirtualKeyCode": {"Tab": 9, "Enter": 13}[key]}
    for kind in ("keyDown", "keyUp"):
        window.devtools("Input.dispatchKeyEvent", type=kind, text=text if kind == "keyDown" else "", **told)


def submit(window: Browser, busy: Busy, view: str, action: str, **fields: str) -> str:
    """Send a form of a view in the browser; what the page says then."""
    window.open(busy.of_queue + view, width=1440)
    ready(window)
    window.devtools("Page.enable")
    window.run(f"window.old = true; const [action, fields] = {json.dumps([action, fields])};" + SCRIPTS["submit"])
    loaded = "return document.readyState === 'complete' && !window.old"
    waiting.wait_until(lambda: window.run(loaded), f"the answer to {action}", 60)
    assert window.console() == []
    said = "const said = document.querySelector('[role=status].notice')"
    return window.run(f"{said}; return said ? said.textContent : document.body.innerText")


@pytest.mark.slow
def test_each_action_in_the_browser_shows_on_raw_keys(window: Browser, busy: Busy, raw: Any) -> None:
    keys = busy.queue.model.keys
    assert isinstance(keys.paused, str)

    assert "Paused" in submit(window, busy, "", "/pause") and raw.hexists(keys.paused, "*")
    assert submit(window, busy, "", "/resume") == "Resumed." and not raw.hexists(keys.paused, "*")
    submit(window, busy, "/limits", "/pause", name="wait", length_s="3600")
    assert raw.hexists(keys.paused, "wait")

    assert submit(window, busy, "/limits", "/limits", of="key", target="tenant-2", concurrency="3") == "The limit is set."
    assert raw.hget(keys.limits, "k:tenant-2") == b"3 0 0 sliding"
    assert submit(window, busy, "/limits", "/limits/remove") == "The limit was removed."
    assert raw.hlen(keys.limits) == 2

    assert submit(window, busy, "/schedules", "/off/enable") == "The schedule was changed."
    assert raw.zscore(keys.cron, "off") != float("inf")
    assert submit(window, busy, "/schedules", "/off/disable") == "The schedule was changed."
    assert raw.zscore(keys.cron, "off") == float("inf")
    made = int(busy.queue.counts().waiting)
    assert "enqueued" in submit(window, busy, "/schedules", "/nightly/run-now")
    assert busy.queue.counts().waiting == made + 1
    submit(window, busy, "/schedules", "/off/remove")
    assert raw.zscore(keys.cron, "off") is None

    submit(window, busy, "/workers", "/w1/concurrency", concurrency="1")
    assert raw.hget(keys.settings, "c:w1") == b"1"
    submit(window, busy, "/workers", "/w1/pause")
    assert raw.hget(keys.settings, "p:w1") is not None

    assert "claimable" in submit(window, busy, "/jobs/late", "/late/run_now") and raw.zcard(keys.due) == 0
    assert submit(window, busy, "/jobs/late", "/late/cancel") == "The job was cancelled."
    assert busy.queue.jobs.state("late") == "cancelled"
    # The worker is paused, so a job that was requeued waits.
    assert "requeued" in submit(window, busy, f"/jobs/{busy.dead}", "/requeue")
    assert raw.zcard(keys.dead) == 0 and raw.zscore(keys.lane("fail"), busy.dead) is not None
    waiting = busy.queue.jobs.list("waiting", name="wait")
    assert submit(window, busy, "/bulk?state=waiting&action=cancel&name=wait", "/bulk", limit="5") == "Changed: 5 jobs."
    assert len(busy.queue.jobs.list("waiting", name="wait")) == len(waiting) - 5
