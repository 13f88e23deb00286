"""A busy queue behind the page, and a browser."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from chaos.interop import node
from engine import Handlers, Job, Queue, Worker
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings
from tests.engine.helpers import at_work, waiting
from tests.engine.http.serving import served
from tests.reports.browser import window as window


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core."""
    return (node.modules(folder=Path(__file__).with_name("node")) / "axe-core" / "axe.min.js").read_text()


@dataclass(frozen=True)
class Busy:
    """A queue with something in each state, and the address of its page."""

    queue: Queue
    base: str
    dead: str
    running: str

    @property
    def of_queue(self) -> str:
        return f"{self.base}/queues/{self.queue.name}"


def of_everything(url: str, folder: Path) -> HttpSettings:
    """An application that shows and changes everything, with the runs of a folder."""
    runs, channels = folder / "runs", ChannelSettings()
    return HttpSettings(url=url, allow_changes=True, show_payloads=True, runs=runs, channels=channels)


def put_run(folder: Path, spec: object, verdict: object, report: str) -> None:
    """A run of a drill among those of the folder."""
    run = folder / "runs" / "20260501-120000-mixed-seed7"
    run.mkdir(parents=True)
    for name, content in (("spec.json", json.dumps(spec)), ("verdict.json", json.dumps(verdict)), ("report.html", report)):
        (run / name).write_text(content)


@pytest.fixture
def busy(queue: Queue, ironclaim_url: str, tmp_path: Path) -> Iterator[Busy]:
    """Jobs that wait, are delayed, blocked, active and dead, a schedule, a pause, limits, a worker and a run of a drill."""
    handlers, let_go = Handlers(), threading.Event()

    @handlers("hold")
    def hold(job: Job) -> None:
        let_go.wait()

    @handlers("fail")
    def fail(job: Job) -> None:
        raise ValueError(f"no such user: {job.payload}")

    queue.events.on()
    dead = queue.enqueue("fail", 7, attempts=1).job
    running = queue.enqueue("hold", {"to": "someone"}, id="runs", headers={"trace": "someone"}).job
    for number in range(12):
        queue.enqueue("wait", number, key=f"tenant-{number % 3}")
    queue.enqueue("late", None, delay_ms=3_600_000, id="late")
    queue.enqueue("child", None, needs=["runs"], id="child")
    queue.schedules.put("nightly", "wait", cron="0 3 * * *", zone="Europe/Berlin")
    queue.schedules.put("off", "wait", every_ms=60_000, enabled=False)
    queue.pause("late")
    queue.set_limit("wait", concurrency=2)
    queue.set_limit(key="tenant-1", rate=5, per_ms=60_000)
    spec = {"scenario": "mixed", "model": "lanes", "seed": 7, "started_utc": "2026-05-01T12:00:00Z"}
    report = "<!DOCTYPE html><html lang=en><title>r</title><style>p { color: red }</style><p>Report"
    put_run(tmp_path, spec, {"verdict": "violated", "reasons": ["J6: a job was finished twice"]}, report)
    worker = Worker(queue, handlers, name="w1", concurrency=2, beat_ms=2_000)
    with ExitStack() as stack:
        stack.enter_context(at_work.at_work(worker))
        stack.callback(let_go.set)
        waiting.wait_until(lambda: queue.jobs.state(dead) == "dead", "the job dies")
        waiting.wait_until(lambda: queue.jobs.state(running) == "active", "the job runs")
        waiting.wait_until(lambda: any(info.in_hand for info in queue.workers.list()), "the worker tells what it has in hand")
        yield Busy(queue, stack.enter_context(served(of_everything(ironclaim_url, tmp_path))), dead, running)


@pytest.fixture
def client(busy: Busy) -> Iterator[httpx.Client]:
    """A client of the page that is no browser."""
    with httpx.Client(base_url=busy.base, timeout=120) as made:
        yield made
