"""Queues in several shards: which shard a job goes to, and one face over all of them, on a real server."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from engine import AsyncQueue, Malformed, NewJob, Queue, UnsupportedFeature, models
from engine.errors import ScriptFault, ServerUnavailable, UnknownJob, UnknownParent, UnsafeServer
from engine.queue.sharding import Layout, ShardRecord, added_times, added_workers, first_record, read_record
from tests.engine.using import Blocking, Durations, HandlerTimes, Limit, WorkerInfo, refused

SHARDS = 5


@pytest.fixture
def queue(kind: str, runner: asyncio.Runner, ironclaim_url: str) -> Any:
    """A queue of each kind, behind one blocking face."""
    more: Any = {"url": ironclaim_url, "shards": SHARDS}
    made: Any = Queue("mails", **more) if kind == "sync" else Blocking(AsyncQueue("mails", **more), runner)
    yield made
    made.close()


def home(raw: Any, job: str) -> list[str]:
    """The names of the shards that hold a job."""
    return [key.decode().split("{")[1].split("}")[0] for key in raw.keys(f"ic:*:job:{job}")]


# -- where a job belongs


def test_shards_are_filled_evenly() -> None:
    counts = Counter(Layout(1, 16).home("", "", f"job-{number}") for number in range(15_000))
    assert set(counts) == set(range(1, 16)) and max(counts.values()) < 1.2 * min(counts.values())


def test_key_comes_before_unique_and_that_before_the_id() -> None:
    layout = Layout(1, 100)
    of_key = layout.home("acme", "", "a")
    assert {layout.home("acme", unique, job) for unique in ("", "u") for job in ("b", "c")} == {of_key}
    assert layout.home("", "u", "b") == layout.home("", "u", "c") != layout.home("", "", "b")
    assert layout.home("acme", "", "cron:nightly:1") == 0
    assert len({layout.home("", "", job) for job in ("b", "b>reroute", "b>success:7", "b>reroute>failure:7")}) == 1


@pytest.mark.parametrize(("before", "after"), [(16, 32), (32, 16), (7, 5), (2, 256), (1, 4)])
def test_jobs_of_a_shard_go_to_few_others(before: int, after: int) -> None:
    former, layout = Layout(1 if before > 1 else 0, before), Layout(2, after)
    for number in range(2_000):
        key = f"tenant-{number}"
        assert layout.home(key, "", "") in layout.homes_of(former, former.home(key, "", ""))
    assert before == 1 or len(layout.homes_of(former, 1)) <= after // (before - 1) + 3


def test_jobs_of_a_shard_go_to_no_shard_that_gets_none_of_them() -> None:
    former = Layout(1, 3)
    for shards, homes in {5: [[1, 2], [3, 4]], 6: [[1, 2, 3], [3, 4, 5]]}.items():
        assert [[*Layout(2, shards).homes_of(former, number)] for number in range(3)] == [[*range(1, shards)], *homes]


def test_record_is_read_as_it_was_written() -> None:
    moving = first_record(16).preparing(32).moving()
    assert read_record(moving.text()) == moving and [layout.shards for layout in moving.layouts] == [16, 32]
    assert moving.cleaning().layouts == (Layout(2, 32),)
    for shards in (16, 32):
        moving.check("mails", shards)
    refused(Malformed, "shards: 8 .* 32: so many shards has queue mails", moving.check, "mails", 8)
    assert [layout.shards for layout in first_record(16).preparing(32).layouts] == [16]
    assert moving.stable() == ShardRecord(Layout(2, 32), was=(16,)) and len(set(moving.names("mails"))) == 47
    assert moving.stable().preparing(16).moving().names("q")[1] == "q#2.1"


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"version":1,"shards":"many","phase":"stable","former":null,"was":[]}']
)
def test_a_record_that_cannot_be_read_is_said_to_be(text: str) -> None:
    refused(ScriptFault, "the record of shards cannot be read", read_record, text)


def test_limit_of_a_name_is_divided() -> None:
    limit = Limit(concurrency=18, rate=16, per_ms=1000)
    parts = limit.divided(16)
    assert sorted(Counter(part.concurrency for part in parts).items()) == [(1, 14), (2, 2)]
    assert {part.rate for part in parts} == {1} and Limit.whole(parts) == limit
    assert Limit(rate=16, per_ms=9).divided(16)[0].concurrency == 0
    refused(Malformed, "rate: 15 .* at least 16", Limit(concurrency=16, rate=15, per_ms=9).divided, 16)


def test_what_several_shards_tell_of_runs_and_workers_is_told_once() -> None:
    one = HandlerTimes("b", 20, Durations(3, 30, 15, ((4, 1), (7, 2))), Durations(1, 5, 5, ((3, 1),)))
    other = HandlerTimes("b", 10, Durations(2, 50, 40, ((1, 1), (7, 1))), Durations(0, 0, 0, ()))
    both = HandlerTimes("b", 10, Durations(5, 80, 40, ((1, 1), (4, 1), (7, 3))), one.failed)
    alone = replace(one, name="a")
    assert added_times([one, other, alone]) == [alone, both]

    def worker(pid: int, age_ms: int, *jobs: str, alive: bool = True, leads: bool = False) -> WorkerInfo:
        return WorkerInfo(
            "w", f"at {age_ms}", "host", pid, "1", alive, age_ms, 5, 9 + len(jobs), jobs, leads, 4, 100, ("send",), {}
        )

    first, last, another = worker(1, 30, "a", "b", leads=True), worker(1, 20, "c", alive=False), worker(2, 5)
    together = replace(last, jobs=("a", "b", "c"), in_hand=21, leads=True, alive=True)
    assert added_workers([first, last, another]) == [together, another]


# -- enqueues


def test_enqueued_job_is_in_the_shard_of_its_key(queue: Any, raw: Any) -> None:
    for number in range(40):
        options = {"key": f"tenant-{number % 7}"} if number % 2 else {}
        assert queue.enqueue("send", {"n": number}, id=f"j{number}", **options).result == "created"
        layout = Layout(1, SHARDS)
        assert home(raw, f"j{number}") == [layout.name("mails", layout.home(options.get("key", ""), "", f"j{number}"))]
    assert queue.enqueue("send", {}, id="j3", key="tenant-3")[2:4] == ("duplicate", "waiting")
    assert queue.counts().waiting == 40 and raw.zrange("ic:queues", 0, -1) == [b"mails"] and raw.delete("ic:queues")
    queue.enqueue("send", {})
    assert not raw.exists("ic:queues"), "a process lists its queue once"


def test_bulk_is_divided_and_keeps_the_order_of_its_results(queue: Any, raw: Any) -> None:
    queue.enqueue_many([NewJob("send", {}, id=f"j{number}") for number in range(0, 3_000, 3)])
    many = [NewJob("send", number, id=f"j{number}", unique="one" if number > 2_997 else None) for number in range(3_000)]
    came = queue.enqueue_many(many)
    results = ["duplicate" if number % 3 == 0 or number == 2_999 else "created" for number in range(3_000)]
    assert [item.result for item in came] == results
    assert [item.job for item in came[:2_999]] == [f"j{number}" for number in range(2_999)]
    assert came[-1].job == "j2998" and queue.counts().waiting == 2_999
    sizes = [raw.zcard(f"ic:{{mails#1.{number}}}:lane:send") for number in range(1, SHARDS)]
    assert sum(sizes) == 2_999 and min(sizes) > 600  # type: ignore[type-var]
    assert queue.enqueue_many([]) == []


def test_what_needs_two_shards_is_refused_before_any_call(queue: Any, raw: Any) -> None:
    bad_options: list[dict[str, Any]] = [
        *({"needs": ["a"]}, {"dedup": "d", "dedup_ms": 1000}, {"on_success": NewJob("next", {}, key="other")}),
        {"key": "acme", "on_failure": NewJob("next", {}, key="other")},
    ]
    before = raw.info("stats")["total_commands_processed"]
    for options in bad_options:
        refused(UnsupportedFeature, None, queue.enqueue, "send", {}, **options)
        refused(UnsupportedFeature, None, queue.enqueue_many, [NewJob("send", {}), NewJob("send", {}, **options)])
    refused(Malformed, None, queue.set_limit, "send", concurrency=SHARDS - 1)
    refused(UnsupportedFeature, None, Queue, "mails", models.Bull(), shards=4)
    for shards in (0, 257, True, "4"):
        refused(Malformed, "shards", Queue, "mails", shards=shards)
    assert Queue("mails", shards=256).shards == 256
    assert raw.info("stats")["total_commands_processed"] == before + 1


def test_jobs_of_a_key_may_need_each_other(queue: Any) -> None:
    queue.enqueue("send", {}, id="parent", key="acme")
    assert queue.enqueue("send", {}, id="child", key="acme", needs=["parent"]).created
    assert queue.jobs.state("child") == "blocked"
    queue.enqueue("send", {}, id="elsewhere", key="tenant-2")
    refused(UnknownParent, None, queue.enqueue, "send", {}, id="lost", key="acme", needs=["elsewhere"])


def test_unique_and_dedup_hold_inside_of_a_key(queue: Any) -> None:
    assert queue.enqueue("send", {}, id="a", unique="u").created and queue.enqueue("send", {}, id="b", unique="u").job == "a"
    assert queue.enqueue("send", {}, id="c", key="acme", dedup="d", dedup_ms=60_000).created
    assert queue.enqueue("send", {}, id="d", key="acme", dedup="d", dedup_ms=60_000).job == "c"
    assert queue.counts().waiting == 2


def test_a_queue_with_shards_refuses_what_whole_queues_alone_have(queue: Any) -> None:
    refused(UnsupportedFeature, "the test clock is for queues without shards", queue.use_test_clock, 2**43)


# -- the number of shards


def test_client_with_another_number_is_refused(queue: Any, ironclaim_url: str, raw: Any) -> None:
    queue.enqueue("send", {})
    assert read_record(raw.get("ic:{mails}:shards").decode()) == first_record(SHARDS)
    with Queue("mails", url=ironclaim_url, shards=8) as other:
        for call in (lambda: other.enqueue("send", {}), other.counts, lambda: other.schedules.put("s", "send", every_ms=1000)):
            refused(Malformed, r"shards: 8 .* 5: so many shards has queue mails", call)
    with Queue("mails", url=ironclaim_url) as plain:
        refused(UnsafeServer, "5 shards", plain.enqueue, "send", {})
        refused(
            UnsafeServer, "^job a: its queue has several shards", plain.enqueue_many, [NewJob("send", 1, id=id) for id in "ab"]
        )
    assert queue.counts().waiting == 1


def test_a_record_that_never_agrees_with_its_shards_ends_a_call(queue: Any, raw: Any) -> None:
    queue.enqueue("send", {})
    raw.set("ic:{mails}:shards", raw.get("ic:{mails}:shards") + b" ")
    refused(ServerUnavailable, "the record of the shards of queue mails changes all the time", queue.counts)
    for name in Layout(1, SHARDS).names("mails"):
        raw.hset(f"ic:{{{name}}}:stats", "moved", f"2 {SHARDS}")
    refused(ServerUnavailable, "shards of queue mails change all the time: job a was not", queue.enqueue, "send", {}, id="a")
    refused(ServerUnavailable, "the shards change all the time", queue.enqueue_many, [NewJob("send", {}), NewJob("send", {})])


def test_queue_that_has_held_jobs_whole_is_not_taken_for_new(queue: Any, ironclaim_url: str, raw: Any) -> None:
    with Queue("mails", url=ironclaim_url) as plain:
        plain.enqueue("send", {}, id="old")
    refused(Malformed, "reshard", queue.enqueue, "send", {})
    assert not raw.exists("ic:{mails}:shards")


def test_one_shard_is_a_plain_queue(ironclaim_url: str, raw: Any) -> None:
    with Queue("mails", url=ironclaim_url, shards=1) as whole_queue:
        whole_queue.enqueue("send", {}, id="a")
    assert home(raw, "a") == ["mails"]


# -- one face


def test_jobs_are_found_in_their_shards(queue: Any) -> None:
    queue.enqueue_many([NewJob("send", number, id=f"w{number}", key=f"k{number}") for number in range(20)])
    queue.enqueue_many([NewJob("later", number, id=f"d{number:02}", delay_ms=60_000 + number * 1_000) for number in range(20)])
    assert queue.jobs.get("w7").payload == 7 and queue.jobs.state("d03") == "delayed"
    assert queue.jobs.get("nobody") is None and queue.jobs.state("nobody") == "gone"
    refused(UnknownJob, "^job nobody: no shard knows such a job", queue.results.wait, "nobody")
    assert str(queue.jobs.why("w7")).startswith("waits")
    assert [job.id for job in queue.jobs.list("delayed", limit=5, offset=10)] == [f"d{number}" for number in range(10, 15)]
    assert [job.id for job in queue.jobs.list("delayed", limit=2, newest_first=True)] == ["d19", "d18"]
    assert {job.id for job in queue.jobs.list("waiting")} == {f"w{number}" for number in range(20)}
    assert [job.id for job in queue.jobs.list("waiting", key="k9")] == ["w9"]
    assert queue.jobs.counts_by_name()["later"].delayed == 20
    assert queue.jobs.run_now("d03").done and queue.jobs.state("d03") == "waiting"
    assert queue.jobs.cancel("w7").done and queue.jobs.state("w7") == "cancelled"
    assert queue.jobs.remove("w8").done and queue.jobs.cancel("nobody").state == "gone"
    assert queue.counts().waiting == 19 and sum(map(len, queue.snapshot().states.values())) == 38


def test_limits_pauses_and_cleaning_are_of_all_shards(queue: Any, raw: Any) -> None:
    queue.enqueue_many([NewJob("send", number, key=f"k{number}") for number in range(20)])
    queue.set_limit("send", concurrency=7, rate=20, per_ms=60_000)
    queue.set_limit(key="k3", concurrency=2)
    queue.set_limit(key="*", concurrency=9)
    shares = [raw.hget(f"ic:{{{name}}}:limits", "n:send") for name in Layout(1, SHARDS).names("mails")]
    assert sorted(int(share.split()[0]) for share in shares) == [1, 1, 1, 2, 2]  # type: ignore[union-attr]
    assert sum(1 for name in Layout(1, SHARDS).names("mails") if raw.hget(f"ic:{{{name}}}:limits", "k:k3")) == 1
    found = {(limit.name, limit.key): limit.concurrency for limit in queue.limits()}
    assert found == {("send", None): 7, (None, "k3"): 2, (None, "*"): 9}
    queue.remove_limit("send")
    queue.remove_limit(key="k3")
    assert {limit.key for limit in queue.limits()} == {"*"}
    queue.pause("send")
    assert all(raw.hexists(f"ic:{{{name}}}:paused", "send") for name in Layout(1, SHARDS).names("mails"))
    assert [pause.name for pause in queue.obstacles().pauses] == ["send"]
    assert queue.resume("send") is True and queue.resume("send") is False
    assert "ironclaim_jobs_waiting" in queue.metrics()
    queue.set_retention(done_max=10)
    assert raw.hget("ic:{mails#1.1}:retention", "done_max") == b"2"
    assert queue.clean("waiting", limit=5) == 5 and queue.drain() == 15 and queue.obliterate() is True
    assert queue.counts().waiting == 0 and raw.hget("ic:{mails}:stats", "moved") == b"2 5"


def test_schedules_live_in_shard_0(queue: Any, raw: Any) -> None:
    assert queue.schedules.put("nightly", "send", {"a": 1}, cron="0 3 * * *") == "new"
    assert raw.exists("ic:{mails}:cron:nightly")
    made = queue.schedules.run_now("nightly")
    assert home(raw, made.job) == ["mails"] and queue.jobs.get(made.job).payload == {"a": 1}
    assert [schedule.name for schedule in queue.schedules.list()] == ["nightly"] and queue.schedules.remove("nightly")
