"""The engine and the original Bull on one queue: what one of them sends, pauses, fails or returns is understood by the other."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

import engine
from chaos.interop.talker import Talker
from engine import Job, models
from engine.models.foreign.bull import UNNAMED
from tests.engine.using import at_work, wait_until

pytestmark = pytest.mark.nightly

#: An idle worker of the engine looks again after 50 ms, one of Bull is woken; nothing that is held comes through in this time.
HELD_S = 0.4


class Ours:
    """The engine's side: a queue, and a worker that does what the payload says, as that of the adapter does."""

    def __init__(self, queue: engine.Queue) -> None:
        self.queue = queue
        self.ran: list[Job] = []
        #: When each of these runs began.
        self.began_s: list[float] = []

    def send(self, payload: dict[str, Any], **options: Any) -> str:
        return self.queue.enqueue(UNNAMED, payload, **options).job

    @contextmanager
    def at_work(self) -> Iterator[None]:
        handlers = engine.Handlers()

        @handlers(UNNAMED)
        def run(job: Job) -> Any:
            self.began_s.append(time.monotonic())
            # A job that is retried by hand after its last run counts as being at that run again.
            failed = max(job.failures, self.ran_ids().count(job.id))
            self.ran.append(job)
            time.sleep(job.payload.get("work_ms", 0) / 1_000)
            if failed < job.payload.get("fail_first", 0):
                raise ValueError(f"our planned failure {job.failures + 1}")
            return job.payload.get("value")

        with at_work(engine.Worker(self.queue, handlers, lease_ms=5_000, sweep_ms=100)):
            yield

    def ran_ids(self) -> list[str]:
        return [job.id for job in self.ran]


@pytest.fixture
def ours(ironclaim_url: str) -> Iterator[Ours]:
    with engine.Queue("mail", models.Bull(), url=ironclaim_url) as queue:
        yield Ours(queue)


def ended(bull: Talker, job: str, state: str) -> dict[str, Any]:
    """What Bull says of a job once it is in that state."""

    def look() -> Any:
        found = bull.ask("job", job)
        return found if found and found["state"] == state else None

    return bull.until(look)


def test_bull_sends_and_the_engine_works(bull: Talker, ours: Ours) -> None:
    with ours.at_work():
        job = bull.ask("add", {"to": "ann@example.org", "value": {"sent": 1}}, {})
        found = ended(bull, str(job["jobId"]), "completed")
    assert found["returnvalue"] == {"sent": 1}
    assert [job.payload for job in ours.ran] == [{"to": "ann@example.org", "value": {"sent": 1}}]


def test_the_engine_sends_and_bull_works(bull: Talker, ours: Ours) -> None:
    bull.ask("process", 1)
    job = ours.send({"value": {"sent": 1}})
    result = ours.queue.results.wait(job, wait_ms=120_000)
    assert (result.outcome, result.value) == ("finished", {"sent": 1})
    assert bull.ran("completed") == [(job, {"sent": 1})]


@pytest.mark.parametrize("value", [None, 7, "text", [1, {"a": None}], {"naïve": "☃"}])
def test_values_that_bull_returns_are_read(bull: Talker, ours: Ours, value: Any) -> None:
    bull.ask("process", 1)
    assert ours.queue.results.wait(ours.send({"value": value}), wait_ms=120_000).value == value


@pytest.mark.parametrize("value", [None, 7, "text", [1, {"a": None}], {"naïve": "☃"}])
def test_values_that_the_engine_returns_are_read_by_bull(bull: Talker, ours: Ours, value: Any) -> None:
    with ours.at_work():
        job = str(bull.ask("add", {"value": value}, {})["jobId"])
        assert ended(bull, job, "completed")["returnvalue"] == value


def test_a_failure_of_bull_is_read_with_its_stack_trace(bull: Talker, ours: Ours) -> None:
    bull.ask("process", 1)
    job = ours.send({"fail_first": 9}, attempts=1)
    wait_until(lambda: ours.queue.jobs.state(job) == "dead", "dead for the engine")
    found = ours.queue.jobs.get(job)
    assert found is not None and "planned failure 1 of 9" in found.last_error and found.failures == 1
    result = ours.queue.results.get(job)
    assert result is not None and result.outcome == "dead" and "planned failure 1 of 9" in result.error


def test_a_failure_of_the_engine_is_read_by_bull_with_its_stack_trace(bull: Talker, ours: Ours) -> None:
    with ours.at_work():
        found = ended(bull, str(bull.ask("add", {"fail_first": 9}, {"attempts": 1})["jobId"]), "failed")
    assert found["attemptsMade"] == 1
    (trace,) = found["stacktrace"]
    assert "ValueError" in trace and "our planned failure 1" in trace and "test_beside_bull" in trace


def test_a_job_that_fails_with_bull_is_tried_again_by_the_engine(port: int, ours: Ours) -> None:
    with Talker("mail", port=port) as first:
        first.ask("process", 1)
        job = ours.send({"fail_first": 1, "value": "second"}, attempts=2, backoff="fixed", backoff_ms=3_000)
        first.until(lambda: first.ran("failed"))
    with ours.at_work():
        result = ours.queue.results.wait(job, wait_ms=120_000)
    assert (result.outcome, result.value) == ("finished", "second")
    (run,) = ours.ran
    assert (run.attempt, run.attempts) == (2, 2)


def test_a_job_that_fails_with_the_engine_is_tried_again_by_bull(bull: Talker, ours: Ours) -> None:
    with ours.at_work():
        job = str(bull.ask("add", {"fail_first": 1, "value": 2}, {"attempts": 2, "backoff": 3_000})["jobId"])
        ended(bull, job, "delayed")
    bull.ask("process", 1)
    found = ended(bull, job, "completed")
    assert ours.ran_ids() == [job]
    assert (found["attemptsMade"], found["returnvalue"], len(found["stacktrace"])) == (1, 2, 1)


@pytest.mark.parametrize(("backoff", "waits_ms"), [("fixed", [100, 100]), ("exponential", [100, 300])])
def test_waits_between_runs_are_those_of_bull(bull: Talker, ours: Ours, backoff: str, waits_ms: list[int]) -> None:
    """A machine that stands still makes a wait longer, and never shorter: one job of several shows that none is too long."""

    def late_ms() -> float:
        ours.ran.clear()
        ours.began_s.clear()
        job = bull.ask("add", {"fail_first": 2}, {"attempts": 3, "backoff": {"type": backoff, "delay": 100}})
        ended(bull, str(job["jobId"]), "completed")
        waited_ms = [(later - earlier) * 1_000 for earlier, later in pairwise(ours.began_s)]
        late = [waited - planned for waited, planned in zip(waited_ms, waits_ms, strict=True)]
        assert min(late) >= -20
        return max(late)

    with ours.at_work():
        assert any(late_ms() < 400 for _ in range(10))


def test_a_pause_by_bull_holds_the_engine(bull: Talker, ours: Ours) -> None:
    with ours.at_work():
        bull.ask("pause")
        added = str(bull.ask("add", {}, {})["jobId"])
        job = ours.send({})
        time.sleep(HELD_S)
        assert ours.ran_ids() == []
        bull.ask("resume")
        wait_until(lambda: sorted(ours.ran_ids()) == sorted([added, job]), "both ran after the resume")


def test_a_pause_by_the_engine_holds_bull(bull: Talker, ours: Ours) -> None:
    bull.ask("process", 1)
    ours.queue.pause()
    job = ours.send({})
    added = str(bull.ask("add", {}, {})["jobId"])
    time.sleep(HELD_S)
    assert bull.ran("active") == []
    ours.queue.resume()
    bull.until(lambda: len(bull.ran("completed")) == 2)
    assert {job for job, _ in bull.ran("completed")} == {job, added}


def test_a_delayed_job_of_the_engine_reaches_a_bull_that_was_asleep(bull: Talker, ours: Ours) -> None:
    bull.ask("process", 1)
    sent_s = time.monotonic()
    ours.send({}, delay_ms=600)
    bull.until(lambda: bull.ran("completed"))
    assert 0.55 < time.monotonic() - sent_s < 5.0  # without the message of its due time Bull looks only after 5 s


def test_bull_lists_what_the_engine_has_sent(bull: Talker, ours: Ours) -> None:
    first, second = ours.send({"n": 1}), ours.send({"n": 2}, attempts=3, backoff="exponential", backoff_ms=50)
    third = ours.send({"n": 3}, delay_ms=60_000)
    assert sorted(str(job["jobId"]) for job in bull.ask("jobs", "Waiting")) == sorted([first, second])
    (found,) = [job for job in bull.ask("jobs", "Waiting") if str(job["jobId"]) == second]
    assert found["opts"] == {"attempts": 3, "backoff": {"type": "exponential", "delay": 50}}
    (delayed,) = bull.ask("jobs", "Delayed")
    assert (str(delayed["jobId"]), delayed["delay"], delayed["data"]) == (third, 60_000, {"n": 3})


def test_bull_promotes_retries_and_removes_what_the_engine_has_sent(bull: Talker, ours: Ours) -> None:
    delayed, doomed = ours.send({}, delay_ms=60_000), ours.send({"gone": True}, delay_ms=60_000)
    bull.ask("promote", delayed)
    bull.ask("remove", doomed)
    assert (ours.queue.jobs.state(delayed), ours.queue.jobs.state(doomed)) == ("waiting", "gone")
    with ours.at_work():
        failing = ours.send({"fail_first": 1}, attempts=1)
        ended(bull, failing, "failed")
        bull.ask("retry", failing)
        assert ended(bull, failing, "completed")["attemptsMade"] == 1
        ended(bull, delayed, "completed")


def test_a_job_in_hand_of_bull_is_left_alone(bull: Talker, ours: Ours) -> None:
    bull.ask("process", 1)
    job = ours.send({"work_ms": 2_600, "value": "once"})
    bull.until(lambda: bull.ran("active"))
    with ours.at_work():
        assert ours.queue.results.wait(job, wait_ms=120_000).value == "once"
    assert (ours.ran_ids(), bull.ran("completed")) == ([], [(job, "once")])


def test_a_job_in_hand_of_the_engine_is_left_alone_by_bull(bull: Talker, ours: Ours) -> None:
    with ours.at_work():
        job = ours.send({"work_ms": 600, "value": "once"})
        wait_until(lambda: ours.ran, "in hand")
        # Bull looks for jobs that nobody has locked when it begins.
        bull.ask("process", 1)
        assert ours.queue.results.wait(job, wait_ms=120_000).value == "once"
    assert (ours.ran_ids(), bull.ran("active")) == ([job], [])


@pytest.mark.parametrize(("name", "prefix"), [("video transcoding", "bull"), ('é {x}*?[y]\\:"z', "{pre fix}*")])
def test_a_queue_of_any_name_is_shared(ironclaim_url: str, name: str, prefix: str) -> None:
    port = int(ironclaim_url.rpartition(":")[2].partition("/")[0])
    queue = engine.Queue(name, models.Bull(), url=ironclaim_url, prefix=prefix)
    with Talker(name, port=port, prefix=prefix) as bull, queue:
        ours = Ours(queue)
        with ours.at_work():
            theirs = str(bull.ask("add", {"value": 1}, {})["jobId"])
            assert ended(bull, theirs, "completed")["returnvalue"] == 1
            # Node reads such an id as NaN, so its worker must not see it.
            own = queue.enqueue(UNNAMED, {"value": 2}, id="order é 7").job
            assert queue.results.wait(own, wait_ms=20_000).value == 2
        bull.ask("process", 1)
        job = ours.send({"value": 3})
        assert ended(bull, job, "completed")["returnvalue"] == 3
        assert ours.ran_ids() == [theirs, own]
        assert sorted(info.id for info in queue.jobs.list("finished")) == sorted([theirs, own, job])
