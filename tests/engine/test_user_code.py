"""Whatever the code of a service raises, BaseException included: each run has an end and its place comes back. And whatever a run
leaves behind, the next one does not see it."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engine import Handlers, Job, Queue, Worker, WorkerGroup
from engine.errors import EngineError, logger
from engine.queue.era import _call  # pyright: ignore[reportPrivateUsage]
from engine.worker.runs import Coroutines, LoopThread, RunContexts
from tests.engine.helpers import raising
from tests.engine.helpers.raising import FAILURES, NONSENSE, misbehave, session, tenant
from tests.engine.using import DEADLINE_S, LeasedJob, ids_of, raises, raw_client, run_texts, some_handlers

#: Where a run of the service's code fails, or only what watches it does.
FATAL = ("handler", "before", "enter", "leave", "result", "backoff", "filter")
HARMLESS = ("after", "started", "ended")


class Observing:
    """An observer that raises as the headers of the job say."""

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        self._look("started", job)
        return None

    def handler_ended(self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None) -> None:
        self._look("ended", job)

    def _look(self, place: str, job: LeasedJob) -> None:
        misbehave(Job(job), place)

    def invoked(self, *_: Any) -> None:
        raise SystemExit

    completed = connected = configured = invoked


def log_filter(record: logging.LogRecord) -> bool:
    _, found, what = record.getMessage().partition("filter:")
    if found:
        raise FAILURES[what.partition(":")[0]]()
    return True


@pytest.fixture
def filtered() -> Iterator[None]:
    log = logging.getLogger("ironclaim.worker")
    log.addFilter(log_filter)
    yield
    log.removeFilter(log_filter)


def work_off(worker: Worker | WorkerGroup) -> None:
    """Run a worker until its queue is empty; one that never gets there is stopped. Raises what it raises."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(worker.run(burst=True))
        except BaseException as failure:
            came.append(failure)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    stuck = thread.is_alive()
    if stuck:
        worker.stop(at_once=True)
        thread.join(DEADLINE_S)
    assert (stuck, came) == (False, ["empty"])


@pytest.mark.usefixtures("filtered")
@pytest.mark.parametrize("kind", raising.NAMES)
def test_whatever_code_of_a_service_raises_each_run_has_an_end(queue: Queue, ironclaim_url: str, kind: str, client: Any) -> None:
    cases = [(place, what) for place in (*FATAL, *HARMLESS) for what in FAILURES]
    cases += [("nonsense", what) for what in NONSENSE]
    # One of the batch is not to be failed by its neighbours' hooks.
    cases += [("", f"good-{number}") for number in range(4)]
    name = "thread" if kind == "process" else kind
    observer: Any = Observing()
    with Queue("q", url=ironclaim_url, observer=observer) as watched:
        queue.enqueue_many(
            [
                # Lanes of their own, so that a batch is of one job; but for the last ones.
                {"name": name, "payload": 1, "id": f"{place or 'none'}-{what}", "attempts": 1, "result_ttl_ms": 60_000}
                | {"key": f"{place}-{what}" if place else "same", "headers": {"place": place, "what": what}}
                for place, what in cases
            ]
        )
        queue.enqueue(name, 1, id="none-hook", key="same", attempts=1, headers={"place": "before", "what": "exit"})
        work_off(Worker(watched, raising.hooked, concurrency=1, sweep_ms=50, processes=int(kind == "process"), beat_ms=0))
    fatal = {f"{place}-{what}" for place, what in cases if place in (*FATAL, "nonsense")} | {"none-hook"}
    if kind == "process":
        # A child sees neither; its worker has no result to read.
        assert {name for name in fatal if name.startswith("result")} <= {*ids_of(queue, "dead")}
    assert client.zcard(queue.model.keys.active) == 0, "no lease is left"
    texts = {job: run_texts(client, queue.model.keys.run(job)) for job in fatal}
    assert {*ids_of(queue, "dead")} == fatal
    assert {*ids_of(queue, "done")} == {f"{place or 'none'}-{what}" for place, what in cases} - fatal
    names = {"value": "ValueError", "cancelled": "CancelledError", "exit": "SystemExit", "interrupt": "KeyboardInterrupt"}
    for place in ("handler", "before", "enter", "leave"):
        assert {what: texts[f"{place}-{what}"]["error"].partition(":")[0] for what in names} == names, place
        assert texts[f"{place}-unprintable"]["error"] == "Unprintable"


def test_a_group_of_a_batch_keeps_its_neighbours(queue: Queue) -> None:
    """What validates one payload, or writes one result, fails that job alone."""

    class Picky(dict[str, int]):
        def items(self) -> Any:
            raise SystemExit

    @queue.job("typed", batch=10, attempts=1, result_ttl_ms=60_000)
    def typed(numbers: list[int]) -> list[Any]:
        return [Picky(a=1) if number == 2 else number for number in numbers]

    read = typed.parameters.item

    def item(payload: Any) -> Any:
        if payload == {"numbers": 1}:
            raise asyncio.CancelledError
        return read(payload)

    for number in range(4):
        typed.with_options(id=f"n{number}").enqueue(number)
    typed.parameters.item = item  # type: ignore[method-assign]
    work_off(Worker(queue, concurrency=1, sweep_ms=50))
    assert sorted(ids_of(queue, "dead")) == ["n1", "n2"] and sorted(ids_of(queue, "done")) == ["n0", "n3"]


def test_a_gate_that_raises_or_answers_nonsense_is_closed_and_asked_again(queue: Queue) -> None:
    handlers, asked = Handlers(), []
    handlers("work")(lambda job: None)
    answers: list[Any] = [SystemExit(), asyncio.CancelledError(), float("nan"), "many", None, float("inf")]

    def gate() -> Any:
        asked.append(1)
        answer = answers.pop(0) if answers else True
        if isinstance(answer, BaseException):
            raise answer
        return answer

    queue.enqueue("work", 1, id="a")
    worker = Worker(queue, handlers, sweep_ms=50, gate=gate)
    worker.on_lead(raises(SystemExit()))
    work_off(worker)
    assert (len(asked) >= 6, ids_of(queue, "done")) == (True, ["a"])


def outcome_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except EngineError as error:
        return type(error).__name__
    except BaseException as error:
        return type(error).__mro__[0].__name__
    return "returned"


@pytest.mark.parametrize("what", FAILURES)
def test_what_an_enqueue_calls_raises_reaches_nobody_but_where_the_caller_is_meant(queue: Queue, what: str) -> None:
    class Writing:
        name = "writing"
        dumps = loads = raises(FAILURES[what]())

    raised = type(FAILURES[what]()).__mro__[0].__name__
    passes = raised if what in ("exit", "interrupt") else ""
    with Queue("q", url=queue.url, serializers=[Writing()]) as made:
        made.hooks.after(raises(FAILURES[what]()))
        # In the main thread signal handlers raise those two, and the service wants them to end it.
        assert outcome_of(lambda: made.enqueue("work", 1, id="a")) == (passes or "returned")
        assert outcome_of(lambda: made.enqueue("work", 1, serializer="writing")) == (passes or "Malformed")
        elsewhere: list[str] = []
        for call in (lambda: made.enqueue("work", 1, id="b"), lambda: made.enqueue("work", 1, serializer="writing")):
            thread = threading.Thread(target=lambda call=call: elsewhere.append(outcome_of(call)))
            thread.start()
            thread.join(DEADLINE_S)
        assert elsewhere == ["returned", "Malformed"]
        assert (made.counts().waiting, ids_of(made, "waiting")) == (2, ["a", "b"])


def test_what_is_told_of_a_loss_raises_into_no_loop_and_is_cancelled_with_it() -> None:
    async def main(callback: Callable[[Any], Any]) -> bool:
        task = asyncio.create_task(_call(callback, DATA_LOSS))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=DEADLINE_S)
        return task.cancelled()

    assert {what: asyncio.run(main(raises(make()))) for what, make in FAILURES.items()} == dict.fromkeys(FAILURES, False)
    assert asyncio.run(main(lambda loss: asyncio.sleep(30)))


DATA_LOSS: Any = SimpleNamespace(queue="q")


@pytest.mark.parametrize("what", FAILURES)
def test_a_logger_of_the_engine_never_raises(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    log, told = logger("ironclaim.of-a-test"), []

    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append((record.getMessage(), record.funcName))
            raise FAILURES[what]()

    failing = Failing()
    log.addHandler(failing)
    try:
        thread = threading.Thread(target=lambda: (log.error("%s", "a"), told.append("next")))
        thread.start()
        thread.join(DEADLINE_S)
    finally:
        log.removeHandler(failing)
    assert told == [("a", "<lambda>"), "next"] and capsys.readouterr().err
    assert logger("ironclaim.of-a-test") is log


def test_a_run_whose_task_is_cancelled_before_it_begins_is_begun_again() -> None:
    begun, queued, done = threading.Event(), threading.Event(), threading.Event()
    loop = LoopThread("loop")
    coroutines = Coroutines(loop, RunContexts())

    async def cancels_all() -> None:
        begun.set()
        queued.wait(DEADLINE_S)
        # Now the other task is there, and has not begun.
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def other() -> None:
        done.set()

    coroutines.run(cancels_all)
    assert begun.wait(DEADLINE_S)
    coroutines.run(other)
    queued.set()
    assert done.wait(DEADLINE_S)
    coroutines.close()
    done.clear()
    coroutines.run(other)
    Coroutines(loop, RunContexts()).wait_for(lambda: asyncio.sleep(0))
    assert not done.is_set(), "none begins any more"
    loop.close()
    assert loop._loop is not None and loop._loop.is_closed()


# -- state


def results(queue: Queue) -> dict[str, Any]:
    with raw_client(queue.url) as client:
        keys = {job: queue.model.keys.result(job) for job in ids_of(queue, "done")}
        return {job: json.loads(client.get(key) or b"{}")["value"] for job, key in keys.items()}


@pytest.mark.parametrize("kind", raising.NAMES)
def test_no_run_sees_the_context_variables_of_another(queue: Queue, kind: str) -> None:
    """Nor its decimal context, which a copied context would share."""
    child, name = kind == "process", "thread" if kind == "process" else kind
    queue.enqueue_many(
        [{"name": name, "payload": 1, "id": f"j{at}", "key": f"k{at}", "result_ttl_ms": 60_000} for at in range(6)]
    )

    def started() -> None:
        tenant.set("service")
        decimal.getcontext().prec = 20
        work_off(Worker(queue, raising.states, concurrency=1, sweep_ms=50, processes=int(child)))

    before = decimal.getcontext().prec
    contextvars.Context().run(started)
    # What the service has set in the worker the child does not know.
    expected = [["nobody", f"j{at}", 28] if child else ["service", f"j{at}", 20] for at in range(6)]
    assert results(queue) == {f"j{at}": expected[at] for at in range(6)}
    assert (tenant.get(), session.get(), decimal.getcontext().prec) == ("nobody", "none", before)


def test_workers_of_groups_and_shards_begin_in_the_context_of_who_runs_them(queue: Queue, ironclaim_url: str) -> None:
    seen: list[str] = []
    handlers = some_handlers(lambda job: seen.append(tenant.get()))

    def started(make: Callable[[], Worker | WorkerGroup]) -> None:
        tenant.set("service")
        work_off(make())

    with Queue("s", url=ironclaim_url, shards=2) as sharded, Queue("other", url=ironclaim_url) as other:
        for one in (queue, other, sharded):
            one.enqueue("work", 1)
        contextvars.Context().run(started, lambda: WorkerGroup([queue, other], handlers, sweep_ms=50))
        contextvars.Context().run(started, lambda: Worker(sharded, handlers, sweep_ms=50))
    assert seen == ["service"] * 3


def test_a_child_process_is_put_back_after_each_run(queue: Queue) -> None:
    ids = ["first", "second", "third", "fourth"]
    queue.enqueue_many([{"name": "spoil", "payload": 1, "id": id, "attempts": 1, "result_ttl_ms": 60_000} for id in ids])
    work_off(Worker(queue, raising.processes, concurrency=1, processes=1, sweep_ms=50))
    assert ids_of(queue, "dead") == ["third"]
    found = results(queue)
    assert found["first"][0] == os.getcwd() and found["first"][2] == [] and found["second"] == found["fourth"] == found["first"]


def test_a_child_process_that_cannot_read_the_serialisers_fails_its_runs(queue: Queue, client: Any) -> None:
    with Queue("q", url=queue.url, serializers=[raising.Unreadable()]) as made:
        made.enqueue("thread", 1, id="a", attempts=1)
        work_off(Worker(made, raising.handlers, concurrency=1, processes=1, sweep_ms=50))
        assert run_texts(client, made.model.keys.run("a"))["error"] == "SystemExit: not here"
