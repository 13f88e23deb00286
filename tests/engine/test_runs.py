"""The runs of a worker, without a server: what happens to one reaches it whichever of two threads comes first, and how the log
tells that one has failed."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from engine import Bury, Discard, Handlers, RetryLater
from engine.handlers import Fault
from engine.logs import Source
from engine.serializers import BUILT_IN
from engine.worker.child_processes import ChildFailed, WorkerStopped
from engine.worker.runs import Runs
from tests.engine.ops import Lease, LeasedJob, Options

PLAIN = Options(soft_timeout_ms=50, timeout_ms=90)


def job(name: str = "work", failures: int = 0, **options: Any) -> LeasedJob:
    """A job that is leased."""
    return LeasedJob(Lease("j", 7, "n"), 99, name, name, name, b"{}", replace(PLAIN, **options), 1, 1, 1, failures, 0)


def all_runs() -> Runs:
    handlers = Handlers()
    handlers("work")(lambda job: None)
    handlers("other")(lambda job: None)
    handlers("picky", bury_on=ValueError)(lambda job: None)
    return Runs(handlers, None, say=lambda said: None, serializers=BUILT_IN, source=Source("w", "mails"))


#: What happens to a run, and what reaches it of that.
HAPPENS: dict[str, tuple[Any, list[str]]] = {
    "lost": (lambda runs: runs.lose(job().lease, cancelled=False), ["told False"]),
    "cancelled": (lambda runs: runs.lose(job().lease, cancelled=True), ["told True", "stopped"]),
    "timeout": (lambda runs: runs.stop(job(), "timeout"), ["stopped"]),
    "stop": (lambda runs: runs.stop(job(), "stop"), ["stopped"]),
    "soft timeout": (lambda runs: runs.stop(job(), "soft timeout"), ["softened"]),
    "given up": (lambda runs: runs.give_up(job().lease), []),
}


@pytest.mark.parametrize("what", HAPPENS)
def test_what_happens_to_a_run_reaches_it_once_whichever_thread_comes_first(what: str) -> None:
    happens, wanted = HAPPENS[what]
    for order in ("happens first", "begins first", "of a batch", "has ended", "is forgotten"):
        runs, seen = all_runs(), list[str]()

        def begins(runs: Runs = runs, seen: list[str] = seen, alone: bool = order != "of a batch") -> None:
            runs.register(job(), lambda *, cancelled: seen.append(f"told {cancelled}"), lambda: seen.append("softened"))
            runs.stoppable(job(), lambda: seen.append("stopped"), alone=alone)

        if order == "happens first":
            happens(runs)
        if order == "is forgotten":
            happens(runs)
            runs.forget(job().lease)
        begins()
        if order == "has ended":
            runs.over(job(), None, 0, None)
        if order not in ("happens first", "is forgotten"):
            happens(runs)
        if order == "begins first" and "stopped" in wanted:
            happens(runs)
        stays = order in ("has ended", "is forgotten")
        of_batch = [each for each in wanted if what != "cancelled" or each != "stopped"]
        assert sorted(set(seen)) == sorted([] if stays else of_batch if order == "of a batch" else wanted), order
        assert seen.count("stopped") <= 1


def test_a_soft_timeout_of_a_thread_is_said_once_of_each_name(caplog: pytest.LogCaptureFixture) -> None:
    runs = all_runs()
    for number, name in enumerate(("work", "work", "other", "picky")):
        leased = job(name)._replace(lease=Lease(f"j{number}", 7, "n"))
        made = runs.job(leased)
        if name == "picky":
            runs.lose(leased.lease, cancelled=False)
        runs.stop(leased, "soft timeout")
        assert made.cancelled
    said = [f"job {id} ({name}) has run for its soft_timeout_ms of 50" for id, name in (("j0", "work"), ("j2", "other"))]
    assert [record.getMessage().partition(", and goes on")[0] for record in caplog.records] == said


ENDED = "job j (work), attempt 1 of 3, ended: "
RAISED = "job j (work), attempt 1 of 3, failed: ValueError: no"
LATE = "job j (work), attempt 1 of 3, failed: TimeoutError: not done within 90 ms"
GOES_BACK = "job j (work) goes back uncharged: its worker stops"
BY_RULE = "dead, by the rules of its handler (bury_on, retry_on)"
NO, KILLED = ValueError("no"), ChildFailed(Fault("killed", ""))
LAST, LAST_ENDED = {"failures": 2}, ENDED.replace("1", "3")
#: How a failed run is logged: level, text, and outcome, None where the server decides otherwise; of which failure of which job,
#: and what had happened to it before.
FAILING: list[tuple[str, str, str | None, BaseException, dict[str, Any], str]] = [
    ("WARNING", f"{RAISED}; again in 1000 ms", "retried", NO, {}, ""),
    ("WARNING", f"{RAISED}; again in at most 1000 ms", "retried", NO, {"backoff": "exponential", "jitter": 0.5}, ""),
    ("WARNING", f"{RAISED.replace('1', '3')}; dead: no attempt is left", "dead", NO, LAST, ""),
    ("WARNING", f"{RAISED}; rerouted to b (reroute_on)", "rerouted", NO, {"reroute_on": (("ValueError", "b"),)}, ""),
    ("INFO", f"{ENDED}ValueError: no; skipped (skip_on)", "skipped", NO, {"skip_on": ("ValueError",)}, ""),
    ("WARNING", f"{RAISED.replace('work', 'picky')}; {BY_RULE}", "dead", NO, {"name": "picky"}, ""),
    ("INFO", f"{ENDED}RetryLater: soon; again in 5 ms", "retried", RetryLater(5, "soon"), {}, ""),
    ("INFO", f"{LAST_ENDED}RetryLater: soon; again in 5 ms", "retried", RetryLater(5, "soon", charge=False), LAST, ""),
    ("WARNING", f"{LAST_ENDED}RetryLater: soon; dead: no attempt is left", "dead", RetryLater(5, "soon"), LAST, ""),
    ("WARNING", f"{ENDED}Bury: no; dead", "dead", Bury("no"), {}, ""),
    ("WARNING", f"{ENDED}Bury: no; dead", "dead", Bury("no"), {}, "stop"),
    ("INFO", f"{ENDED}Discard: no; discarded", "discarded", Discard("no"), {}, ""),
    ("INFO", f"{ENDED}it was cancelled", None, asyncio.CancelledError(), {}, "cancelled"),
    ("INFO", f"{ENDED}it was cancelled", None, KILLED, {}, "cancelled"),
    *(("WARNING", RAISED, None, NO, {}, before) for before in ("lost", "cancelled", "given up")),
    ("WARNING", GOES_BACK, None, WorkerStopped("no"), {}, ""), ("WARNING", GOES_BACK, None, NO, {}, "stop"),
    ("WARNING", f"{LATE}; again in 1000 ms", "retried", asyncio.CancelledError(), {}, "timeout"),
    ("WARNING", f"{LATE}; again in 1000 ms", "retried", KILLED, {}, "timeout"),
    ("WARNING", f"{LATE}, then ValueError: no; again in 1000 ms", "retried", NO, {}, "timeout"),
    ("WARNING", f"{RAISED}; again in 1000 ms\nTraceback", "retried", ChildFailed(Fault("ValueError: no", "Traceback\n")), {}, ""),
]  # fmt: skip


def test_a_failed_run_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for level, text, outcome, failure, options, before in FAILING:
        runs = all_runs()
        if before:
            HAPPENS[before][0](runs)
        caplog.clear()
        with caplog.at_level(logging.INFO, "ironclaim.worker"):
            fault = runs.failed(job(**options), failure)
        (record,) = caplog.records
        assert (record.levelname, record.getMessage(), getattr(record, "outcome", None)) == (level, text, outcome)
        # A trace has what went wrong in this process.
        assert bool(record.exc_info) == (", failed: " in text and not isinstance(failure, ChildFailed)), text
        error = text.partition("ed: ")[2].partition(";")[0]
        assert fault.error == {"its worker stops": "its worker stopped", "it was cancelled": "cancelled"}.get(error, error), text
