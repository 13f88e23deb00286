"""`enqueue_many` of both faces: checked whole before any I/O, in pieces of bounded size, each job once, the truth when a piece
fails."""

import asyncio
import time
from base64 import urlsafe_b64decode
from typing import Any

import pytest

from engine import Malformed, NewJob, OutcomeUnknown, PartlyEnqueued, Queue, ScriptFault, ServerUnavailable
from engine.models.lanes import Lanes
from engine.options import PLAIN
from engine.queue import producing
from record.history import HistoryFile
from record.recorder import Recorder
from tests.engine.helpers.schema import checked_rows
from tests.engine.using import Desk, EnqueueMany, Relay, claim, full, hurried, ids_of, lent, refused


@pytest.fixture
def history(tmp_path: Any) -> Recorder:
    return Recorder(HistoryFile(tmp_path / "p.jsonl", proc="p", role="producer"), queue="q")


@pytest.fixture
def queue(kind: str, runner: asyncio.Runner, relay: Relay, history: Recorder) -> Any:
    """A recorded queue through the relay."""
    made = hurried(kind, runner, "q", relay.url, observer=history)
    made.counts()
    yield from lent(made)


def new_jobs(count: int, **options: Any) -> list[NewJob]:
    return [NewJob("work", {"n": number}, id=f"j{number}", **options) for number in range(count)]


def results(items: Any) -> list[str]:
    return [getattr(item, "result", type(item).__name__) for item in items]


def rows(history: Recorder) -> list[dict[str, Any]]:
    history.close()
    return [row for row in checked_rows(history.file.path) if row["kind"] == "operation"]


def test_what_is_kept_out_names_the_job_that_is_there(queue: Any, direct: Queue) -> None:
    first, other = queue.enqueue("work", 1, unique="u"), queue.enqueue("work", 2, unique="u")
    assert (other.result, other.job, other.holder) == ("duplicate", first.job, first.job)
    window = queue.enqueue("work", 1, dedup="d", dedup_ms=60_000)
    jobs = [NewJob("work", 3, unique="u"), NewJob("work", 4, id="fresh"), NewJob("work", 5, dedup="d", dedup_ms=60_000)]
    many = queue.enqueue_many([*jobs, NewJob("work", 6, unique="u", id="mine")])
    assert results(many) == ["duplicate", "created", "duplicate", "duplicate"]
    assert [item.job for item in many] == [first.job, "fresh", window.job, first.job]
    assert all(direct.jobs.get(item.job) is not None for item in (first, other, *many))


def test_one_call_in_order_with_every_option(relay: Relay, queue: Any, direct: Queue) -> None:
    jobs = [
        NewJob("a", [1], id="j0", priority=9, attempts=7, backoff_ms=5, timeout_ms=6, headers={"h": "v"}, backoff="exponential"),
        {"name": "b", "payload": None, "id": "j1", "delay_ms": 60_000, "crashes_max": 9},
        NewJob("c", {"x": 1}, id="j2", lifo=True), {"name": "d", "payload": "text"},
    ]  # fmt: skip
    before, items = relay.calls, queue.enqueue_many(iter(jobs))
    assert relay.calls == before + 1
    assert results(items) == ["created"] * 4 and [item.job for item in items[:3]] == ["j0", "j1", "j2"]
    assert len(items[3].job) == 12 and all(item.srv_us == items[0].srv_us for item in items)
    assert ids_of(direct, "delayed") == ["j1"]
    found = claim(direct, classes=("a", "b", "c", "d")).jobs
    assert [job.name for job in found] == ["a", "c", "d"]
    first = found[0].options
    assert (first.priority, first.attempts, first.backoff_ms, first.timeout_ms, first.headers) == (9, 7, 5, 6, (("h", "v"),))
    assert (first.backoff, found[1].options.lifo, found[0].payload, found[1].payload) == ("exponential", True, b"[1]", b'{"x":1}')


@pytest.mark.parametrize("delays_ms", [(0, 0, 0, 0), (900, 0, 500, 0), (900, 500, 700, 500)])
@pytest.mark.parametrize("before_ms", [None, 0, 500, 600])
def test_a_bulk_leaves_the_keys_of_one_call_for_each_job(desk: Desk, delays_ms: tuple[int, ...], before_ms: int | None) -> None:
    """Index, envelopes, sequence, and the wake marker only when there is something new to wake for."""
    left: list[dict[str, Any]] = []
    for bulk in (False, True):
        desk.begin()
        if before_ms is not None:
            desk.enqueue("before", delay_ms=before_ms)
        desk.redis.delete(desk.keys.wake("main"))
        each: list[Any] = [{"delay_ms": ms, "priority": at + 1, "lifo": at == 2} for at, ms in enumerate(delays_ms)]
        jobs = tuple(desk.enqueue_operation(f"j{at}", headers=(("a", "b"),), **some) for at, some in enumerate(each))
        for operation in [EnqueueMany(jobs)] if bulk else jobs:
            desk.run(operation)
        if before_ms == 0:
            # One call leaves the marker of a lane that was ready to whoever has taken it.
            desk.redis.delete(desk.keys.wake("main"))
        left.append(desk.dump())
    assert left[0] == left[1] and len(left[0]) >= 8


def test_nothing_is_nothing(relay: Relay, queue: Any) -> None:
    before = relay.calls
    assert queue.enqueue_many([]) == [] and queue.enqueue_many({}) == [] and relay.calls == before


def test_a_duplicate_is_told_beside_the_others(queue: Any, direct: Queue) -> None:
    direct.enqueue("work", {}, id="j1")
    items = queue.enqueue_many(new_jobs(3))
    assert results(items) == ["created", "duplicate", "created"]
    assert (items[1].state, items[0].created, items[1].created, direct.counts().waiting) == ("waiting", True, False, 3)


def test_jobs_and_sizes_of_payloads_have_bounds(kind: str, runner: asyncio.Runner, monkeypatch: Any, closed_port: int) -> None:
    queue = hurried(kind, runner, "q", f"redis://127.0.0.1:{closed_port}/0", deadline_ms=10, payload_bytes_max=10)
    jobs = [{"name": "work", "payload": "12345678"}, {"name": "work", "payload": "123456789"}]
    refused(Malformed, r"^jobs\[1\]\.payload: '11 bytes' .* at most 10 bytes", queue.enqueue_many, jobs)
    assert producing.JOBS_MAX == 100_000
    monkeypatch.setattr(producing, "JOBS_MAX", 50)
    refused(Malformed, "^jobs: 'more than 50 jobs' ", queue.enqueue_many, ({"name": "work", "payload": 1} for _ in iter(int, 1)))


@pytest.mark.parametrize(("count", "size", "calls"), [(1000, 1, 1), (1001, 1, 2), (2, 600_000, 2), (5, 250_000, 2)])
def test_pieces_have_bounds(history: Recorder, queue: Any, direct: Queue, count: int, size: int, calls: int) -> None:
    vars(queue).get("_target", queue).payload_bytes_max = 1_000_000
    items = queue.enqueue_many([NewJob("work", "x" * size, id=f"j{number}") for number in range(count)])
    assert results(items) == ["created"] * count and direct.counts().waiting == count
    enqueues = [row["items"] for row in rows(history) if row["f"] == "enqueue" and row["type"] == "ok"]
    assert len(enqueues) == calls
    assert [item["job"] for items in enqueues for item in items] == [f"j{number}" for number in range(count)]


def test_a_large_list_goes_in_pipelines_of_eight_pieces_in_order(relay: Relay, queue: Any, direct: Queue) -> None:
    before = relay.calls
    items = queue.enqueue_many({"name": "work", "payload": number, "id": f"j{number}"} for number in range(10_500))
    assert [item.job for item in items] == ids_of(direct, "waiting") == [f"j{number}" for number in range(10_500)]
    assert relay.calls == before + 2


def test_ids_that_nobody_has_chosen_are_of_9_random_bytes_each(queue: Any) -> None:
    """Two pieces of 64, so that their seam is crossed."""
    ids = [item.job for item in queue.enqueue_many([NewJob("work", number) for number in range(130)])]
    assert len(set(ids)) == 130 and all(len(urlsafe_b64decode(id)) == 9 for id in ids)


LOST = {"lose_reply": "repeated", "lose_request": "created", "cut_request": "created"}


@pytest.mark.parametrize(("rule", "result"), LOST.items())
def test_a_lost_request_or_reply_loses_and_doubles_none(relay: Relay, queue: Any, direct: Queue, rule: Any, result: str) -> None:
    relay.next(rule)
    items = queue.enqueue_many(new_jobs(300, delay_ms=0))
    assert results(items) == [result] * 300 and all(item.created for item in items)
    assert ids_of(direct, "waiting") == [f"j{number}" for number in range(300)]


def test_when_some_pieces_fail_the_error_tells_them_apart(relay: Relay, queue: Any, direct: Queue) -> None:
    """Eight pieces go out in one pipeline, and a connection is lost behind the first of them."""
    jobs = new_jobs(9_500)
    relay.standing = "one_reply"
    target = vars(queue.driver).get("_target", queue.driver)
    patience = target.not_after_ms
    target.not_after_ms = lambda: patience() + 10_000
    target.deadline_ms = 0
    partly = "^1000 of 9500 jobs are answered, the others not: enqueue many: 1 of 1 sends"
    caught = refused(PartlyEnqueued, partly, queue.enqueue_many, jobs)
    told = results(caught.results)
    assert isinstance(caught, OutcomeUnknown) and told[:1000] == ["created"] * 1000
    assert told[1000:8000] == ["OutcomeUnknown"] * 7000
    assert told[8000:] == ["ServerUnavailable"] * 1500, "after a failure no further pipeline goes out"
    relay.standing, target.deadline_ms = "pass", 10_000
    again = results(queue.enqueue_many(jobs))
    # Of the pieces behind the lost connection the server may have seen some.
    assert again[:1000] == ["duplicate"] * 1000 and again[8000:] == ["created"] * 1500
    assert sorted(ids_of(direct, "waiting")) == sorted(job.id or "" for job in jobs)


def test_a_failure_of_all_is_that_failure(relay: Relay, queue: Any, direct: Queue, client: Any) -> None:
    client.set(direct.model.keys.due, "no zset")
    refused(ScriptFault, "enqueue many: the server answered WRONGTYPE", queue.enqueue_many, new_jobs(2))
    client.delete(direct.model.keys.due)
    with full(client):
        said = "enqueue many: 1 tries, nothing was applied, last error OOM"
        refused(ServerUnavailable, said, queue.enqueue_many, new_jobs(1500))
    relay.standing = "lose_reply"
    vars(queue.driver).get("_target", queue.driver).deadline_ms = 200
    assert type(refused(OutcomeUnknown, "sends unanswered", queue.enqueue_many, new_jobs(2))) is OutcomeUnknown


def test_rule_03_it_starts_once_more_when_its_estimate_of_the_time_was_off(queue: Any, direct: Queue) -> None:
    queue.driver.clock.learn(queue.driver.server_now_ms() * 1000 - 3_600_000_000, time.monotonic_ns())
    # On a busy machine a reply may take longer than the engine waits for it: then its second copy is told `repeated`.
    assert set(results(queue.enqueue_many(new_jobs(2500)))) <= {"created", "repeated"} and direct.counts().waiting == 2500


def test_rule_31_a_late_refusal_after_an_unanswered_send_is_no_refusal(relay: Relay, history: Recorder, queue: Any) -> None:
    """The first copy may still arrive: here it has, and its job has ended and its tombstone is gone."""
    queue.driver.clock.learn(queue.driver.server_now_ms() * 1000 - 3_600_000_000, time.monotonic_ns())
    relay.next("lose_request")
    refused(PartlyEnqueued, "refused as late after an unanswered send", queue.enqueue_many, new_jobs(2))
    (row,) = [row for row in rows(history) if row["type"] != "invoke" and row["f"] == "enqueue"]
    assert (row["type"], [item["result"] for item in row["items"]]) == ("info", ["unknown", "unknown"])


def test_history_rows_hold_one_item_for_each_job(relay: Relay, history: Recorder, queue: Any, direct: Queue) -> None:
    direct.enqueue("work", {}, id="j1")
    relay.next("lose_reply")
    intended_ns = time.monotonic_ns()
    queue.enqueue_many(new_jobs(3, priority=7, delay_ms=5), intended_ns=intended_ns)
    invoke, done = (row for row in rows(history) if row["f"] == "enqueue")
    assert (invoke["type"], done["type"], done["sends"], len(done["errors"])) == ("invoke", "ok", 2, 1)
    assert invoke["op"] == done["op"] and invoke["intended_ns"] == done["intended_ns"] == intended_ns
    assert [item["result"] for item in done["items"]] == ["repeated", "duplicate", "repeated"]
    for number, (before, after) in enumerate(zip(invoke["items"], done["items"], strict=True)):
        assert (before["job"], before["priority"], before["delay_ms"], before["lane"]) == (f"j{number}", 7, 5, "work")
        assert {name: value for name, value in after.items() if name != "result"} == before and isinstance(before["crc"], int)


OUTSIDE = [[1, b"cc", []], [1, b"d", []], [1, b"q", []], [1, b"c"], [b"x", b"c", []], None, [1, b"c", [b"a", 1]]]


@pytest.mark.parametrize("raw", OUTSIDE)
def test_a_reply_outside_the_contract_is_a_fault(raw: Any) -> None:
    (draft,) = producing.drafts(new_jobs(1), 100)
    refused(ScriptFault, "^EnqueueMany: reply outside the contract", Lanes("q").call(EnqueueMany((draft,))).parse, raw)


def test_a_job_without_options_has_the_defaults() -> None:
    """They are not checked again for each job."""
    assert [draft.options is PLAIN for draft in producing.drafts([NewJob("work", 1)], 100)] == [True]


@pytest.mark.parametrize("options", [{"priority": 5.5}, {"lifo": 0}, {"attempts": True}, {"headers": ()}, {"delay_ms": False}])
def test_options_that_only_equal_the_defaults_are_checked(options: dict[str, Any]) -> None:
    refused(Malformed, rf"^jobs\[0\]\.{next(iter(options))}: ", producing.drafts, [NewJob("work", 1, **options)], 100)
