"""The error history of a job: each run that came to nothing, with its stack trace, bounded, and written once."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Queue, validate
from engine.handlers import fault_of
from engine.ops.claims import Bury, Failure, Retry
from engine.ops.jobs import Lease
from engine.worker.worker import Worker
from tests.engine.desk import Desk, run_texts
from tests.engine.helpers.producing import some_handlers


def entries(desk: Desk, job: str) -> dict[str, str]:
    """The fields that hold entries."""
    return {name: value for name, value in desk.run_hash(job).items() if name[0] == "e" and name[1:].isdigit()}


def fail(lease: Lease, error: str, trace: str = "", delay_ms: int = 0) -> Retry:
    return Retry((Failure(lease, error, delay_ms, trace),))


@pytest.mark.feature("BL13")
def test_each_failed_run_leaves_one_entry_with_its_trace_until_ten_are_kept(desk: Desk) -> None:
    desk.enqueue("j", attempts=100)
    fences: list[int] = []
    for run in range(12):
        lease = desk.one().lease
        fences.append(lease.fence)
        desk.did(fail(lease, f"boom {run}", f"at line {run}")).later(1)
    state = desk.run_hash("j")
    assert (state["errors"], state["error"], state["failures"]) == ("12", "boom 11", "12")
    assert entries(desk, "j") == {
        f"e{run % 10}": f"{desk.now_ms - 12 + run} {fences[run]} failed boom {run}\0at line {run}" for run in range(2, 12)
    }
    assert desk.finished(desk.one().lease).redis.exists(desk.keys.run("j")) == 0


def test_a_retry_and_a_burial_cut_off_anywhere_note_the_run_once(desk: Desk) -> None:
    for bury in (False, True):
        for writes in desk.each_cut(1):
            failure = Failure(desk.lease("j"), "boom", 100, "trace")
            operation = Bury((failure,)) if bury else Retry((failure,))
            desk.cut_off(operation, writes)
            desk.did(operation).run(operation)
            assert (desk.run_hash("j")["errors"], len(entries(desk, "j"))) == ("1", 1), writes


def test_a_lost_worker_is_an_entry_too_and_a_burial_keeps_its_own_reason(desk: Desk) -> None:
    desk.enqueue("j", crashes_max=2)
    first, _ = desk.crash("j", worker="b")
    assert entries(desk, "j") == {"e0": f"{desk.now_ms} {first.fence} lost the worker b was lost\0"}
    desk.crash("j", worker="c")
    state = desk.run_hash("j")
    assert (state["errors"], state["error"]) == ("2", "crashed 2 times, 1 are allowed")
    assert state["e1"].split(" ", 2)[2] == "lost the worker c was lost\0" and desk.places("j") == {"dead"}


def deep(depth: int) -> None:
    if not depth:
        raise ValueError("no \udcff")
    deep(depth - 1)


@pytest.mark.feature("BL13")
def test_the_end_of_a_stack_trace_travels_as_utf_8_and_is_bounded() -> None:
    try:
        deep(3)
    except ValueError as failure:
        fault, long = fault_of(failure), fault_of(ValueError("x" * 10_000))
    assert fault.error == "ValueError: no ?" and fault.trace.endswith("ValueError: no ?")
    assert "deep" in fault.trace and len(long.trace.encode()) == validate.TRACE_BYTES_MAX


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_exception_whose_text_raises_still_has_a_trace() -> None:
    try:
        raise Unspeakable
    except Unspeakable as failure:
        fault = fault_of(failure)
    assert fault.error == "Unspeakable" and "test_an_exception_whose_text_raises" in fault.trace


def test_a_worker_sends_the_trace_of_its_handler(queue: Queue, client: Any) -> None:
    def bad(job: object) -> None:
        deep(2)

    async def worse(job: object) -> None:
        deep(2)

    handlers = some_handlers(bad, "bad")
    handlers("worse")(worse)
    for name in ("bad", "worse"):
        queue.enqueue(name, {}, id=name, attempts=1)
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    for name in ("bad", "worse"):
        text, _, trace = run_texts(client, queue.model.keys.run(name))["e0"].partition("\0")
        assert text.endswith("failed ValueError: no ?") and trace.startswith("Traceback")
        assert f"in {name}" in trace and "in deep" in trace
