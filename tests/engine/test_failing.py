"""What becomes of a job whose run fails: attempts and back-off, what a handler may raise, and the rules that skip or reroute."""

import itertools
import json
import threading
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Bury, Discard, Handlers, Job, JobFailed, Malformed, Queue, RetryLater, Worker, validate
from engine.handlers import fault_of
from engine.ops import claims
from engine.options import checked
from engine.outcomes import DELAY_MS_MAX, Ending, backoff_delay_ms, ending, request_of
from tests import golden
from tests.engine.helpers import failing_handlers, raising
from tests.engine.helpers.machine import holding
from tests.engine.helpers.scenes import saved
from tests.engine.ops import Backoff, Drop, Failure, Options, Retry
from tests.engine.using import LEASE_MS, START_MS, Desk, at_work, raises, refused, run_fields, run_of, some_handlers, wait_until


def waits(count: int = 6, draw: float = 1.0, **options: Any) -> list[int]:
    """The waits after so many failed runs."""
    return [backoff_delay_ms(checked(options), failures, lambda: draw) for failures in range(count)]


class GpuError(RuntimeError):
    """Not enough of it."""


def run(queue: Queue, handler: Any, *, names: tuple[str, ...] = ("work",), **settings: Any) -> list[Job]:
    """Run a handler in a real worker until nothing is left; the runs."""
    ran, handlers = list[Job](), Handlers(backoff=settings.pop("backoff", None))

    def work(job: Job) -> None:
        ran.append(job)
        handler(job)

    for name in names:
        handlers(name)(work)
    Worker(queue, handlers, sweep_ms=20, **settings).run(burst=True)
    return ran


def states(queue: Queue) -> dict[str, list[str]]:
    return {state: [job for job, _ in jobs] for state, jobs in queue.snapshot().states.items() if jobs}


# -- back-off


@pytest.mark.feature("BQ29", "BL09", "MQ11", "BN10", "MQ12")
def test_the_kinds_of_back_off() -> None:
    """Mosquito's grows with the square of the failures, Banana's is two to the failures in seconds; a list ends with its last."""
    some: list[Any] = [
        {"backoff_ms": 700}, {"backoff": "fixed", "backoff_ms": 700}, {"backoff": "linear", "backoff_ms": 100},
        {"backoff": "exponential", "backoff_ms": 100, "jitter": 0}, {"backoff": "geometric", "backoff_ms": 2000},
        {"backoff": "exponential", "backoff_ms": 2000, "jitter": 0}, {"backoff": "exponential", "backoff_ms": 1000},
        {"backoff": "custom", "backoff_delays_ms": [10, 500, 3_000_000_000]},
    ]  # fmt: skip
    golden.same("engine/backoffs.txt", "".join(f"{options}: {waits(5, **options)}\n" for options in some))


@pytest.mark.feature("BQ29")
def test_the_cap_and_the_chance() -> None:
    for kind in {*get_args(Backoff)} - {"fixed", "custom"}:
        assert waits(900, backoff=kind, backoff_ms=60_000, jitter=0)[-1] == DELAY_MS_MAX
        assert waits(900, backoff=kind, backoff_ms=60_000, jitter=0, backoff_max_ms=90_000)[-1] == 90_000
    assert waits(2, backoff_ms=5000, backoff_max_ms=1000) == [1000, 1000]
    assert waits(3, backoff="custom", backoff_delays_ms=[5, 50], backoff_max_ms=20) == [5, 20, 20]
    for draw, wait, grown in ((0.0, 750, 1000), (0.5, 875, 1500), (0.999999, 999, 1999)):
        assert waits(1, draw, backoff_ms=1000, jitter=0.25) == [wait]
        assert waits(2, draw, backoff="exponential", backoff_ms=1000)[1] == grown, "from half to full"
    assert waits(1, 0.0, backoff_ms=1000, jitter=1) == [0]
    assert waits(1, 0.0, backoff="exponential", backoff_ms=1000) == [500], "half of it by chance, unless the job says otherwise"
    assert waits(13, backoff="exponential", backoff_ms=1000)[11:] == [2_048_000, DELAY_MS_MAX] == [2_048_000, 3_600_000]
    assert {*waits(8, backoff="exponential", backoff_ms=5_000_000)} == {5_000_000}, "the job starts beyond"
    assert backoff_delay_ms(checked({"backoff_ms": 1234}), 9, raises(AssertionError("no jitter here"))) == 1234


@given(st.integers(0, validate.BACKOFF_MS_MAX), st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_growing_wait_is_bounded_for_every_job(backoff_ms: int, failures: int, draw: float) -> None:
    grown = backoff_delay_ms(Options(backoff="exponential", backoff_ms=backoff_ms), failures, lambda: draw)
    assert backoff_ms // 2 <= grown <= max(backoff_ms, DELAY_MS_MAX)


@pytest.mark.parametrize(("failures", "delay"), [(0, 750), (2, 3000)])
def test_a_worker_uses_the_failures_of_the_job_and_its_own_draw(failures: int, delay: int) -> None:
    machine, (job,) = holding("a", backoff_ms=1000, backoff="exponential", failures=failures, concurrency=1)
    machine.draws = [0.5]
    assert machine.ended(job, "boom").work.failures[0].delay_ms == delay


@pytest.mark.feature("BQ28", "BL08")
def test_attempts_count_all_runs_the_first_one_included(queue: Queue) -> None:
    for attempts in (1, 2, 4):
        queue.enqueue("work", None, id=f"j{attempts}", attempts=attempts, backoff_ms=0)
    runs = sorted((job.id, job.failures) for job in run(queue, raises(ValueError("no"))))
    assert runs == [("j1", 0), ("j2", 0), ("j2", 1), *[("j4", failures) for failures in range(4)]]
    assert (found := states(queue)).keys() == {"dead"} and sorted(found["dead"]) == ["j1", "j2", "j4"]


@pytest.mark.feature("BQ28", "BL08")
def test_a_job_that_succeeds_in_its_last_attempt_has_succeeded(queue: Queue) -> None:
    def handler(job: Job) -> None:
        if job.failures < 2:
            raise ValueError("not yet")

    queue.enqueue("work", None, id="j", attempts=3, backoff_ms=0)
    assert len(run(queue, handler)) == 3 and states(queue) == {"done": ["j"]}


# -- what a handler may raise


@pytest.mark.feature("MQ12")
def test_a_handler_may_say_how_long_its_job_waits(desk: Desk) -> None:
    assert desk.run(Retry((Failure(desk.lease("j", attempts=2), "later", 5000, charge=False),))).items == (("ok", "retried"),)
    assert desk.redis.zrange(desk.keys.due, 0, -1, withscores=True)[0][1] == START_MS + 5000
    job = desk.tick(5000).one()
    assert (job.failures, job.claims) == (0, 2), "no attempt is used up"
    for _ in range(3):
        assert desk.run(Retry((Failure(job.lease, "later", 0, charge=False),))).items == (("ok", "retried"),)
        job = desk.one()
    job = desk.did(Retry((Failure(job.lease, "boom", 0),))).one()
    assert job.failures == 1 and desk.run(Retry((Failure(job.lease, "boom", 0),))).items == (("ok", "buried"),)


@pytest.mark.parametrize("way", ["thread", "inline", "coroutine", "process"])
@pytest.mark.feature("MQ12", "MQ13")
def test_what_a_handler_raises_says_how_its_run_ends(queue: Queue, client: Any, way: str) -> None:
    name = failing_handlers.NAMES[way]
    for what in ("later", "bury", "discard"):
        queue.enqueue(name, what, id=what, attempts=5, backoff_ms=60_000)
    Worker(queue, failing_handlers.handlers, sweep_ms=20, processes=int(way == "process")).run(burst=True)
    assert states(queue) == {"dead": ["bury"], "done": ["later"]}
    assert run_fields(client, queue.model.keys.run("bury"))["error"] == b"Bury: this will never work"
    assert client.get(queue.model.keys.job("discard")).startswith("\\xa0\x12")
    assert client.hget(queue.model.keys.stats, "discarded") == "1"


def test_a_delay_is_told_in_words() -> None:
    assert str(RetryLater(5)) == "again in 5 ms" and str(RetryLater(5, "no lock")) == "no lock"


@pytest.mark.feature("MQ12")
def test_a_registry_may_have_a_back_off_of_its_own(queue: Queue) -> None:
    heard: list[tuple[int, str]] = []

    def backoff(failures: int, error: str) -> int | None:
        heard.append((failures, error))
        if failures == 2:
            raise KeyError("a defect of the back-off")
        return 1 if failures == 1 else None

    queue.enqueue("work", None, id="j", attempts=4, backoff="custom", backoff_delays_ms=[3_600_000, 2, 3])
    assert len(run(queue, raises(ValueError("no")), backoff=backoff)) == 4
    assert heard == [(failures, "ValueError: no") for failures in (1, 2, 3, 4)]


# -- rules of the job


@pytest.mark.feature("BQ34")
def test_rules_name_classes_their_bases_and_their_modules() -> None:
    request = request_of(json.JSONDecodeError("no", "", 0))
    for name in ("JSONDecodeError", "json.decoder.JSONDecodeError", "ValueError", "builtins.ValueError", "Exception"):
        assert ending(checked({"skip_on": [name]}), request) == Ending("skipped")
        assert ending(checked({"reroute_on": {name: "other"}}), request) == Ending("rerouted", "other")
    for name in ("KeyError", "decoder.JSONDecodeError", "object"):
        assert ending(checked({"skip_on": [name], "reroute_on": {name: "other"}}), request) == Ending("retry")
    for kind in (json.JSONDecodeError, ValueError, Exception):
        assert ending(checked({"skip_on": [kind]}), request) == ending(checked({"skip_on": kind}), request) == Ending("skipped")
        assert ending(checked({"reroute_on": {kind: "other"}}), request) == Ending("rerouted", "other")
    assert ending(checked({"skip_on": [KeyError]}), request) == Ending("retry")
    assert ending(checked({"skip_on": ["Exception"]}), request_of(Bury("no"))) == Ending("bury")
    assert ending(checked({"skip_on": ["Exception"]}), request_of(Discard())) == Ending("discarded")
    assert ending(Options(), request) == Ending("retry")


@pytest.mark.feature("BQ34")
def test_an_error_that_the_job_skips_ends_it_without_another_run(queue: Queue, client: Any) -> None:
    queue.enqueue("work", None, id="p", attempts=5, skip_on=["LookupError"])
    queue.enqueue("work", "child", id="c", needs=["p"])

    def handler(job: Job) -> None:
        if job.payload is None:
            raise KeyError("gone")

    queue.enqueue("work", "child", id="d", needs=["p"], on_parent_failure="ignore")
    assert [job.id for job in run(queue, handler)] == ["p", "d"], "for who waits for it, it has not done its work"
    ended = states(queue)
    assert sorted(ended.pop("done")) == ["d", "p"] and ended == {"dead": ["c"]}
    assert (queue.counts().finished, queue.counts().skipped) == (1, 1)
    assert f'ironclaim_jobs_skipped_total{{queue="{queue.name}"}} 1' in queue.metrics()
    result = queue.results.get("p")
    assert result is not None and (result.outcome, result.error) == ("skipped", "KeyError: 'gone'")
    assert queue.results.wait("p", wait_ms=1000) == result
    refused(JobFailed, "KeyError: 'gone'", result.get)
    info: Any = queue.jobs.get("p")
    assert (info.state, info.last_error, info.ended_ms) == ("skipped", result.error, result.ended_ms)
    assert [job.id for job in queue.jobs.list("finished", error="KeyError")] == ["p"]
    assert client.get(queue.model.keys.job("p")).startswith("\\xa0\x15") and client.hget(queue.model.keys.stats, "skipped") == "1"


@pytest.mark.feature("BQ34")
def test_an_error_that_reroutes_sends_the_job_to_another_name(queue: Queue, client: Any) -> None:
    options: Any = {"priority": 9, "headers": {"trace": "t"}, "attempts": 5, "reroute_on": {"GpuError": "cpu"}}
    queue.enqueue("work", {"n": 1}, id="j", **options)
    queue.enqueue("work", None, id="child", needs=["j"])

    def handler(job: Job) -> None:
        if job.name == "work":
            raise GpuError("none free")

    first, second = run(queue, handler, names=("work", "cpu"))
    assert (first.id, second.id, second.name) == ("j", "j>reroute", "cpu")
    assert (second.payload, second.priority, second.headers, second.failures) == ({"n": 1}, 9, {"trace": "t"}, 0)
    assert states(queue)["done"] == ["j>reroute"]
    assert states(queue)["dead"] == ["child"], "its parent has not done its work under its own id"
    assert client.get(queue.model.keys.job("j")).startswith("\\xa0\x16")


@pytest.mark.feature("BQ34")
def test_an_error_that_reroutes_sends_the_job_to_another_queue(queue: Queue, ironclaim_url: str) -> None:
    with Queue("big", url=ironclaim_url) as other:
        queue.enqueue("work", 7, id="j", reroute_on={"GpuError": "big:gpu"})
        run(queue, raises(GpuError("none free")))
        assert (states(queue), states(other)) == ({}, {"waiting": ["j>reroute"]})
        assert [(job.id, job.payload) for job in run(other, lambda job: None, names=("gpu",))] == [("j>reroute", 7)]


@pytest.mark.feature("BQ34")
def test_a_target_that_cannot_take_the_job_makes_it_a_failed_run(queue: Queue, client: Any) -> None:
    client.set("ic:{big}:stats", "no hash")
    queue.enqueue("work", 7, id="j", attempts=2, backoff_ms=0, reroute_on={"GpuError": "big:gpu"})
    assert len(run(queue, raises(GpuError("none free")))) == 2 and states(queue) == {"dead": ["j"]}


# -- rules of the handlers


@pytest.mark.parametrize("way", ["thread", "inline", "coroutine", "process"])
@pytest.mark.parametrize("batch", [False, True], ids=["alone", "in a batch"])
def test_what_is_not_to_be_retried_is_dead_at_once_with_its_error(queue: Queue, way: str, batch: bool) -> None:
    name = failing_handlers.NAMES[way] + ("s" if batch else "")
    for what in ("ValueError", "KeyError", "ConnectionError", "transient", "TypeError"):
        queue.enqueue(name, what, id=what, attempts=2, backoff_ms=0)
    Worker(queue, failing_handlers.ruled, sweep_ms=20, processes=int(way == "process")).run(burst=True)
    dead = {job.id: (job.failures, job.last_error) for job in queue.jobs.list("dead")}
    assert {job: failures for job, (failures, _) in dead.items()} == {
        **{"ValueError": 0, "KeyError": 0},  # bury_on: of the registry, and a function of the handler
        **{"ConnectionError": 2, "transient": 2, "TypeError": 0},  # retry_on, and what it does not name
    }
    assert dead["ValueError"][1] == "ValueError: no" and queue.counts().buried == 5


def test_what_is_nearer_to_the_error_decides(queue: Queue) -> None:
    outer, inner = Handlers(bury_on=[LookupError, TypeError]), Handlers(retry_on=OSError)

    @inner("own", retry_on=(KeyError,), bury_on=lambda failure: "never" in str(failure))
    @inner("work")
    def work(job: Job) -> None:
        kinds: Any = {"K": KeyError, "O": OSError, "T": TypeError, "B": Bury, "R": partial(RetryLater, 0), "S": SystemExit}
        raise kinds[job.payload[0]](*job.payload[1:])

    outer.include(inner)
    runs: dict[str, int] = {}
    inner.hooks.before(lambda job: runs.__setitem__(job.id, job.claims))
    for name in ("own", "work"):
        for said in (["K"], ["O"], ["T"], ["B"], ["S"], ["K", "never"]):
            queue.enqueue(name, said, id=f"{name} {' '.join(said)}".replace(" ", "-"), attempts=2, backoff_ms=0)
    for name, options in {"skip": {"skip_on": ["KeyError"]}, "reroute": {"reroute_on": {"KeyError": "nobody"}}}.items():
        queue.enqueue("work", ["K"], id=name, attempts=2, **options)  # type: ignore[arg-type]
    queue.enqueue("work", ["R"], id="later", attempts=2, skip_on=["Exception"])
    Worker(queue, outer, sweep_ms=20).run(burst=True)
    assert runs == {
        "own-K": 2, "own-O": 1, "own-T": 1, "own-B": 1, "own-S": 2, "own-K-never": 1, "work-K": 1, "work-O": 2, "work-T": 1,
        "work-B": 1, "work-S": 2, "work-K-never": 1, "skip": 1, "reroute": 1, "later": 2,
    }  # fmt: skip
    assert queue.counts().skipped == 1 and states(queue)["waiting"] == ["reroute>reroute"]


def test_a_rule_that_raises_says_nothing_and_is_logged(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    handlers = Handlers(retry_on=raises(RuntimeError("a defect of the rule")))
    handlers("work")(raises(ValueError("no")))
    queue.enqueue("work", None, id="j", attempts=2, backoff_ms=0)
    Worker(queue, handlers, sweep_ms=20).run(burst=True)
    assert [job.failures for job in queue.jobs.list("dead")] == [2] and "these rules say nothing of a ValueError" in caplog.text


@pytest.mark.parametrize("way", ["thread", "coroutine", "process"])
def test_a_run_that_takes_too_long_has_raised_a_timeout(queue: Queue, way: str) -> None:
    queue.enqueue(failing_handlers.NAMES[way], "sleep", id="j", attempts=3, timeout_ms=100, backoff_ms=0)
    with at_work(Worker(queue, failing_handlers.ruled, sweep_ms=20, processes=int(way == "process"))):
        wait_until(lambda: queue.jobs.list("dead"), "it is dead")
        failing_handlers.woken.set()
    failing_handlers.woken.clear()
    (job,) = queue.jobs.list("dead")
    assert (job.failures, job.claims) == (0, 1) and "not done" in job.last_error


def test_rules_are_asked_of_a_timeout_when_there_is_one_with_its_text(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    asked, go_on = list[str](), threading.Event()

    def by_code(failure: Any) -> bool:
        asked.append(f"{failure}")
        return failure.code == 404

    handlers = Handlers(bury_on=by_code)
    handlers("work")(lambda job: go_on.wait(30))
    worker = Worker(queue, handlers, sweep_ms=20)
    assert (asked, caplog.text) == ([], ""), "not of a failure that there is not"
    queue.enqueue("work", None, id="j", attempts=1, timeout_ms=100)
    with at_work(worker):
        wait_until(lambda: queue.jobs.list("dead"), "it is dead")
        go_on.set()
    assert {*asked} == {"not done within 100 ms"} and "these rules say nothing of a TimeoutError" in caplog.text


def test_rules_are_checked_where_they_are_made(queue: Queue) -> None:
    async def late(failure: BaseException) -> bool:
        return True

    for bad in ("ValueError", [dict], [ValueError, 7], late):
        refused(Malformed, "^bury_on: .*classes of exceptions, or functions of an exception", Handlers, bury_on=bad)
        refused(Malformed, "^retry_on: ", queue.job("work", retry_on=bad), failing_handlers.nothing)  # type: ignore[call-overload]
    handlers = Handlers(bury_on=lambda failure: True)
    handlers("plain")(failing_handlers.say)
    refused(Malformed, "^handlers: .* to run in processes", Worker, queue, handlers, processes=1)


# -- the script


def drops(desk: Desk) -> Drop:
    desk.set_limit("n:main", concurrency=5).enqueue("a", "b").enqueue("c", unique="u")
    desk.enqueue("a1", needs=("a",)).enqueue("b1", needs=("b",))
    desk.enqueue("c1", needs=("c",), on_parent_failure="ignore")
    return Drop(tuple(job.lease for job in desk.claim()), ("skipped", "discarded", "rerouted"), ("E: of a", "E: of b", "E: of c"))


@pytest.mark.feature("BQ34")
@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
def test_rule_01_a_drop_cut_off_after_any_write_loses_and_doubles_nothing(desk: Desk, resend: bool) -> None:
    start = saved(desk, drops)
    for writes in itertools.count(1):
        operation = start(desk)
        was_cut = desk.cut_off(operation, writes)
        if resend:
            assert [outcome for _, outcome in desk.run(operation).items] == ["skipped", "discarded", "rerouted"], writes
        finished: set[str] = set()
        for _ in range(8):
            desk.later(LEASE_MS // 3)
            finished |= {job.lease.job for job in desk.claim("z") if desk.finish(job.lease) == [("ok", "finished")]}
        dead = {job for job in ("a1", "b1", "c1") if desk.places(job) == {"dead"}}
        # Whose end was not told has run again, and its children after it.
        again = finished & {"a", "b", "c"}
        assert not again or not resend, writes
        assert dead == {job + "1" for job in "ab" if job not in again}, (writes, again)
        kept = [result for job in "ab" if (result := desk.queue.results.get(job)) is not None and result.error]
        assert [(result.outcome, result.error) for result in kept] == ([] if "a" in again else [("skipped", "E: of a")]), writes
        assert finished - again == {"a1", "b1", "c1"} - dead, writes
        for key in (desk.keys.active, desk.keys.held("n:main"), desk.keys.blocked, desk.keys.handing):
            assert desk.redis.exists(key) == 0, (writes, key)
        assert desk.redis.exists(desk.keys.run("a")) == 0
        if not was_cut:
            assert writes > 10
            return


# -- the error history of a job: each run that came to nothing, with its trace, bounded, and written once


def entries(desk: Desk, job: str) -> dict[str, str]:
    """The fields that hold entries."""
    return {name: value for name, value in desk.run_hash(job).items() if name[0] == "e" and name[1:].isdigit()}


@pytest.mark.feature("BL13")
def test_each_failed_run_leaves_one_entry_with_its_trace_until_ten_are_kept(desk: Desk) -> None:
    desk.enqueue("j", attempts=100)
    fences: list[int] = []
    for run in range(12):
        lease = desk.one().lease
        fences.append(lease.fence)
        desk.did(Retry((Failure(lease, f"boom {run}", 0, f"at line {run}"),))).later(1)
    state = desk.run_hash("j")
    assert (state["errors"], state["error"], state["failures"]) == ("12", "boom 11", "12")
    kept = {f"e{run % 10}": f"{desk.now_ms - 12 + run} {fences[run]} failed boom {run}\0at line {run}" for run in range(2, 12)}
    assert entries(desk, "j") == kept and desk.finished(desk.one().lease).redis.exists(desk.keys.run("j")) == 0


def test_a_retry_and_a_burial_cut_off_anywhere_note_the_run_once(desk: Desk) -> None:
    for bury in (False, True):
        for writes in desk.each_cut(1):
            operation = (claims.Bury if bury else Retry)((Failure(desk.lease("j"), "boom", 100, "trace"),))
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
    fault, long = fault_of(refused(ValueError, "", deep, 3)), fault_of(ValueError("x" * 10_000))
    assert fault.error == "ValueError: no ?" and fault.trace.endswith("ValueError: no ?")
    assert "deep" in fault.trace and len(long.trace.encode()) == validate.TRACE_BYTES_MAX


def test_an_exception_whose_text_raises_still_has_a_trace() -> None:
    fault = fault_of(refused(raising.Unprintable, "", raises(raising.Unprintable())))
    assert fault.error == "Unprintable" and "in raising" in fault.trace


def test_a_worker_sends_the_trace_of_its_handler(queue: Queue) -> None:
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
        text, _, trace = run_of(queue, name)["e0"].partition("\0")
        assert text.endswith("failed ValueError: no ?") and trace.startswith("Traceback")
        assert f"in {name}" in trace and "in deep" in trace
