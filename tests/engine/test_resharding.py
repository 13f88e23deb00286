"""Another number of shards for a queue that works on: every job is kept, nothing runs twice, interrupted anywhere, on a real
server."""

import contextlib
import os
import random
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine import Handlers, Malformed, NewJob, Queue, UnknownParent, UnsupportedFeature, Worker, WrongKeyType, models, resharding
from engine.errors import ServerUnavailable
from engine.queue.sharding import PLAIN, Layout, read_record
from engine.resharding import Resharding
from engine.testing import start_guarded
from tests.engine.helpers.by_hand import altered, bury
from tests.engine.helpers.lanes_state import BAND, ready
from tests.engine.ops import Altered, Claim, DropTaken, Failure, Finish, PutJobs, Retry, SetGate, SetShards, TakeJobs
from tests.engine.using import HANDLERS, ROOT, Desk, Inspect, Lease, Workers, raises, refused, some_handlers, wait_until


def reshard(url: str, to: int, queue: str = "mails", **options: Any) -> Any:
    with Queue(queue, url=url) as plain:
        return Resharding(plain, to).run(**options)


def states(queue: Queue) -> dict[str, list[str]]:
    """The ids in each state, over all shards."""
    return {state: sorted(job for job, _ in entries) for state, entries in queue.snapshot().states.items()}


def homes(raw: Any, queue: str = "mails") -> set[str]:
    """The names of the shards that hold jobs which are to run."""
    found = [key.decode() for key in raw.keys(f"ic:{{{queue}*}}:*")]
    return {key.split("{")[1].split("}")[0] for key in found if ":lane:" in key or key.endswith((":due", ":dead"))}


def pauses(raw: Any, shard: str) -> dict[tuple[str, str], int]:
    """Until when (ms, server time) a shard has paused names of jobs and of workers; 0: until they are resumed."""
    found: dict[tuple[str, str], int] = {}
    for part in ("paused", "settings"):
        words: Any = raw.hgetall(f"ic:{{{shard}}}:{part}")
        found |= {(part, name.decode().removeprefix("p:")): int(of.split()[0]) for name, of in words.items()}
    return found


def fill(queue: Queue, count: int = 60) -> None:
    """Jobs of all kinds: waiting, delayed, dead, finished with and without a result, with keys and unique keys."""
    handlers = some_handlers(raises(ValueError("no")), "bad")
    handlers("good")(lambda job: job.payload)
    for name in ("bad", "good"):
        some = ((n, f"k{n}" if n % 2 else None) for n in range(count // 4))
        queue.enqueue_many([NewJob(name, n, id=f"{name}{n}", attempts=1, key=key) for n, key in some])
    Worker(queue, handlers, sweep_ms=20).run(burst=True, delayed=False)
    waiting = [{"key": f"k{n % 7}"} if n % 3 == 0 else {"unique": f"u{n}"} if n % 3 == 1 else {} for n in range(count)]
    queue.enqueue_many([{"name": "send", "payload": n, "id": f"w{n}", "priority": 1 + n % 3, **waiting[n]} for n in range(count)])
    queue.enqueue_many([NewJob("later", n, id=f"d{n}", delay_ms=10**6, expires_ms=10**7, route="far") for n in range(count // 3)])


def dedup_windows(queue: Queue, prefix: str, count: int = 12) -> list[str]:
    """What came of a job in each of so many open windows: one a key, whose first job has ended."""
    options: dict[str, Any] = {"dedup_ms": 3_600_000}
    jobs = [NewJob("good", n, id=f"{prefix}{n}", key=f"t{n}", dedup=f"once-{n}", **options) for n in range(count)]
    return [enqueued.result for enqueued in queue.enqueue_many(jobs)]


# -- what is kept


@pytest.mark.parametrize(("before", "after"), [pytest.param(4, 9, marks=pytest.mark.slow), (9, 4), (1, 4)])
def test_every_job_is_kept(before: int, after: int, ironclaim_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "PAGE", 9)
    monkeypatch.setattr(resharding, "_SCAN", 10)
    with Queue("mails", url=ironclaim_url, shards=before) as old:
        old.history.on()
        assert dedup_windows(old, "first") == ["created"] * 12
        fill(old)
        # One window is open for good.
        raw.persist(next(raw.scan_iter("ic:{mails*}:dedup:*")))
        # What has ended is known for some seconds only, and a busy machine takes longer.
        for key in raw.scan_iter("ic:{mails*}:job:*"):
            if raw.pttl(key) > 0:
                raw.pexpire(key, 600_000)
        assert old.counts().finished == 27
        refused(UnknownParent, None, old.enqueue, "send", None, id="w-orphan", key="k3", needs=["nobody"])
        assert old.enqueue("send", None, id="w-rival", unique="u4").job == "w4"
        known, counts, past = states(old), old.counts(), old.history.list(limit=1_000)
        assert past and reshard(ironclaim_url, after).done
        with Queue("mails", url=ironclaim_url, shards=after) as queue:
            assert states(queue) == known and queue.history.list(limit=1_000) == past
            now = queue.counts()
            assert (now.finished, now.buried, now.done) == (counts.finished, counts.buried, counts.done) == (27, 15, 27)
            assert raw.zcard("ic:{mails}:done") == 0, "each is in the shard of its id"
            assert homes(raw) == {f"mails#{1 + (before > 1)}.{number}" for number in range(1, after)}
            assert len(raw.keys(f"ic:{{mails#{1 + (before > 1)}.*}}:job:w*")) == 60, "and none of the orphan"
            for number in range(60):
                info = queue.jobs.get(f"w{number}")
                assert info is not None and (info.payload, info.priority) == (number, 1 + number % 3)
            assert {job.last_error for job in queue.dead.list()} == {"ValueError: no"}
            assert [queue.results.get(f"good{number}").value for number in range(15)] == [*range(15)]  # type: ignore[union-attr]
            # What was there is a duplicate, also what has ended and what holds a unique key.
            there: Any = {"w3": {"key": "k3"}, "w4": {"unique": "u4"}, "w5": {}, "d5": {}, "good4": {}, "good5": {"key": "k5"}}
            for job, options in there.items():
                assert queue.enqueue("send", None, id=job, **options).result == "duplicate", job
            assert queue.enqueue("send", None, id="other", unique="u7").job == "w7"
            assert dedup_windows(queue, "again") == ["duplicate"] * 12, "a window stays open though its job has ended"
            # They come in their order, and those that expire do so.
            lanes: list[list[str]] = [raw.zrange(key, 0, -1) for key in raw.keys("ic:{mails#*}:lane:send/k3")]
            assert lanes == [sorted(lanes[0], key=lambda job: (-1 - int(job[1:]) % 3, int(job[1:])))]
            assert sum(raw.zcard(f"ic:{{mails#{1 + (before > 1)}.{number}}}:expiring") for number in range(1, after)) == 20
            # The client with the old number goes on with the new one, and the old shards hold nothing but that they are closed.
            if before > 1:
                assert old.enqueue("send", None, id="w5").result == "duplicate" and old.counts().waiting == 60
                left = {key: raw.hget(key, "moved") for key in raw.keys("ic:{mails#1.*")}
                assert left == {b"ic:{mails#1.%d}:stats" % n: b"2 %d" % after for n in range(1, before)}
            again = reshard(ironclaim_url, after)
            assert (again.jobs, again.left, again.done) == (0, 0, True), "nothing is left to do"


@pytest.mark.parametrize(("before", "after"), [(3, 4), (1, 4)])
def test_settings_are_kept(before: int, after: int, ironclaim_url: str, raw: Any) -> None:
    with Queue("mails", url=ironclaim_url, shards=before) as old:
        old.enqueue_many([NewJob("send", None, id=f"j{n}", key=f"k{n}", unique=f"u{n}") for n in range(4)])
        old.set_limit("send", concurrency=36, rate=72, per_ms=60_000, window="fixed")
        old.set_limit(key="k3", concurrency=2)
        old.set_limit(key="*", rate=50, per_ms=1_000)
        for name, length_ms in {"later": 0, "slow": 600_000, "over": 1}.items():
            old.pause(name, length_ms=length_ms)
            old.workers.pause(name, length_ms=length_ms)
        old.set_retention(done_max=720, done_age_ms=500_000, dead_max=1_440, dead_age_ms=600_000)
        old.history.on(7_200, names=["good", "bad"], payload_bytes=9)
        old.events.on(300)
        old.schedules.put("nightly", "send", None, cron="0 3 * * *")
    paused = {at: until_ms for at, until_ms in pauses(raw, "mails").items() if at[1] != "over"}
    sequence = max(int(raw.get(key)) for key in raw.keys("ic:{mails*}:seq"))
    assert reshard(ironclaim_url, after).jobs == 4
    for number, name in enumerate(Layout(1 + (before > 1), after).names("mails")):
        of_shard: Any = raw.hgetall(f"ic:{{{name}}}:retention")
        bounds = {"done_max": 720 // after, "dead_max": 1_440 // after, "done_age_ms": 500_000, "dead_age_ms": 600_000}
        assert {field.decode(): int(value) for field, value in of_shard.items()} == bounds, "shard 0 has no more than the others"
        if number:
            assert pauses(raw, name) == pytest.approx(paused, abs=60_000)
            assert raw.get(f"ic:{{{name}}}:seq") == b"%d" % (sequence + (1 << 20)), "later than all that came before"
            assert raw.hget(f"ic:{{{name}}}:stats", "events") == b"300"
    assert sum(raw.hexists(key, "k:k3") for key in raw.keys("ic:{mails#*}:limits")) == 1
    with Queue("mails", url=ironclaim_url, shards=after) as queue:
        again = [queue.enqueue("send", None, key=f"k{n}", unique=f"u{n}").job for n in range(4)]
        assert again == ["j0", "j1", "j2", "j3"], "each is where its key belongs"
        rule = queue.history.rule()
        assert rule is not None and (rule.names, rule.payload_bytes, rule.keep) == (("good", "bad"), 9, 7_200)
        found = {(each.name or each.key, each.concurrency, each.rate, each.per_ms, each.window) for each in queue.limits()}
        assert found == {("send", 36, 72, 60_000, "fixed"), ("k3", 2, 0, 0, "sliding"), ("*", 0, 50, 1_000, "sliding")}
        assert [pause.name for pause in queue.obstacles().pauses] == ["later", "slow"]
        assert [schedule.name for schedule in queue.schedules.list()] == ["nightly"]


@pytest.mark.parametrize(("before", "after"), [(4, 9), (1, 4)])
def test_dead_children_wait_for_their_parents_again_in_their_new_shard(before: int, after: int, ironclaim_url: str) -> None:
    """Of one parent that is dead, of one that was requeued, and of one that has finished since, each with a grandchild."""
    with Queue("mails", url=ironclaim_url, shards=before) as old:
        for key in ("acme", "beta", "gamma"):
            for id, needs in {"p": [], "q": [], "child": ["p", "q"], "grandchild": ["child"]}.items():
                old.enqueue("step", None, id=f"{key}-{id}", needs=[f"{key}-{each}" for each in needs], key=key, attempts=1)
        bad, ran = {f"{key}-{id}" for key in ("acme", "beta", "gamma") for id in "pq"}, list[str]()

        def step(job: Any) -> None:
            ran.append(job.id)
            if job.id in bad:
                raise ValueError("no")

        Worker(old, some_handlers(step, "step"), sweep_ms=20).run(burst=True)
        assert sorted(ran) == sorted(bad) and old.counts().dead == 12
        ran.clear()
        bad.clear()
        # The end of this parent is told to no dead child, and its tombstone and entry go to the shard of its id.
        assert old.dead.requeue("gamma-q").done
        Worker(old, some_handlers(step, "step"), sweep_ms=20).run(burst=True)
        assert old.dead.requeue("beta-p").done and reshard(ironclaim_url, after).done
        with Queue("mails", url=ironclaim_url, shards=after) as queue:
            for job, children in (("acme-p", 0), ("acme-q", 2), ("beta-p", 0), ("beta-q", 2), ("gamma-p", 2)):
                done = queue.dead.requeue(job, with_children=True)
                assert (done.done, done.children) == (job != "beta-p", children), job
            Worker(queue, some_handlers(step, "step"), sweep_ms=20).run(burst=True)
            assert len(ran) == len(set(ran)) == 12 and queue.counts().dead == 0
            for key in ("acme", "beta", "gamma"):
                order = [ran.index(f"{key}-{id}") for id in ("p", "q", "child", "grandchild")]
                assert max(order[:2]) < order[2] < order[3], ran


def test_a_dead_child_whose_parents_are_elsewhere_is_named(ironclaim_url: str) -> None:
    with Queue("mails", url=ironclaim_url) as plain:
        plain.enqueue("step", None, id="p", attempts=1)
        plain.enqueue("step", None, id="child", needs=["p"])

        Worker(plain, some_handlers(raises(ValueError("no")), "step"), sweep_ms=20).run(burst=True)
        told: list[str] = []
        assert Resharding(plain, 4, tell=told.append).run().done
        alone = "dead job child goes without the jobs that it needs, because it has no key: with_children does not revive it"
        assert told == ["prepares 4 shards", "moves the jobs of 1 shard", alone]
        with Queue("mails", url=ironclaim_url, shards=4) as queue:
            assert queue.dead.requeue("child").done


def test_each_step_of_a_move_stops_at_a_key_of_another_type_before_it_writes(ironclaim_url: str, raw: Any) -> None:
    steps = (SetGate("1 2", 5), SetShards("", "{}", "1 2"), TakeJobs(1, "x"), PutJobs("x", 1, (), 1), DropTaken(1))
    with Queue("mails", url=ironclaim_url) as queue:
        queue.counts()
        for step in steps:
            for key in queue.model.call(step).keys:
                raw.xadd(key, {"not": "ours"})
                before = sorted(raw.keys())
                refused(WrongKeyType, None, queue.driver.run, queue.model.call(step))
                assert sorted(raw.keys()) == before, (step, key)
                raw.delete(key)
        # A batch whose jobs may not move now is none.
        assert queue.driver.run(queue.model.call(TakeJobs(1, "x", ("nobody",)))).result == "stale"
        assert not raw.exists(f"{queue.model.keys.prefix}transit")


def test_a_resharding_that_ended_while_it_cleaned_is_ended_by_the_next_one(ironclaim_url: str, raw: Any) -> None:
    with Queue("mails", url=ironclaim_url) as queue:
        queue.enqueue("send", None)
        assert reshard(ironclaim_url, 2).jobs == 1
        raw.set(queue.model.keys.shards, PLAIN.preparing(2).cleaning().text())
        assert reshard(ironclaim_url, 2).done
        assert raw.get(queue.model.keys.shards) == PLAIN.preparing(2).stable().text().encode()


def test_number_must_fit_and_the_model_too(ironclaim_url: str, raw: Any) -> None:
    with Queue("mails", url=ironclaim_url, shards=4) as queue:
        queue.set_limit("send", concurrency=5)
        text = raw.get("ic:{mails}:shards")
        for wrong, said in ((6, "concurrency: 5 .* at least 6"), (1, "to"), (257, "to")):
            refused(Malformed, said, reshard, ironclaim_url, wrong)
        raw.rename("ic:{mails#1.1}:limits", "aside")
        raw.rpush("ic:{mails#1.1}:limits", "x")
        refused(WrongKeyType, "WRONGTYPE", reshard, ironclaim_url, 5)
        assert raw.get("ic:{mails}:shards") == text
    with Queue("mails", models.Bull(), url=ironclaim_url) as bull, pytest.raises(UnsupportedFeature):
        Resharding(bull, 4)


def test_of_two_that_reshard_at_once_one_is_refused(ironclaim_url: str) -> None:
    with Queue("mails", url=ironclaim_url) as plain:
        late = Resharding(plain, 4, tell=lambda text: reshard(ironclaim_url, 4) if "prepares" in text else None)
        refused(ServerUnavailable, "another resharding of this queue runs", late.run)


def test_replies_of_former_shards_are_not_taken_for_those_of_now(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread learns the new record while a call by the former one is under way."""
    with Queue("mails", url=ironclaim_url, shards=3) as queue:
        jobs = [f"job-{number}" for number in range(20)]
        queue.enqueue_many([NewJob("main", {}, id=job, delay_ms=3_600_000) for job in jobs])
        former = queue._known  # type: ignore[attr-defined]
        assert reshard(ironclaim_url, 7).done
        send: Any = queue._pipeline  # type: ignore[attr-defined]

        def overtaken(*arguments: Any) -> Any:
            replies = send(*arguments)
            queue.look_up()  # type: ignore[attr-defined]
            return replies

        monkeypatch.setattr(queue, "_pipeline", overtaken)
        for job in jobs:
            monkeypatch.setattr(queue, "_known", former)
            assert queue.jobs.run_now(job).done, job


def claimed_at_home(queue: Any, name: str) -> tuple[Any, Lease]:
    """The shard of the key acme, of three, and the lease of its only job of this name."""
    shard, until_ms = queue.shard(Layout(1, 3).name("mails", Layout(1, 3).home("acme", "", ""))), queue.driver.server_now_ms()
    claim = Claim("0123456789abcdef", 1, 9, 600_000, until_ms + 60_000, "w", 1_000, (name,))
    (job,) = queue.driver.run(shard.model.call(claim)).jobs
    return shard, job.lease


def test_what_runs_and_families_stay_until_they_have_ended(ironclaim_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue("mails", url=ironclaim_url, shards=3) as whole:
        queue: Any = whole
        queue.enqueue("send", 1, id="parent", key="acme")
        queue.enqueue("send", 2, id="child", key="acme", needs=["parent"])
        queue.enqueue("call", 3, id="caller", on_success=NewJob("send", 4))
        queue.enqueue("other", 5, id="runs", key="acme")
        shard, lease = claimed_at_home(queue, "other")
        assert lease.job == "runs"
        moved = reshard(ironclaim_url, 5, wait_ms=0)
        assert (moved.jobs, moved.left, moved.done) == (0, 4, False)
        gates = {raw.hget(f"ic:{{{name}}}:stats", "moved") for name in Layout(1, 3).names("mails")}
        assert gates == {b"1 5", b"2 3"}, "children of those that stay are taken"
        refused(Malformed, "5: a resharding to that number has begun", reshard, ironclaim_url, 7)
        # Children of what is there are taken, and everything else goes to the new shards.
        assert queue.enqueue("send", 6, id="latecomer", key="acme", needs=["parent"]).created
        assert queue.enqueue("send", 7, id="new", key="acme").created
        assert {queue.jobs.state(job) for job in ("child", "latecomer")} == {"blocked"}
        refused(UnsupportedFeature, None, queue.obliterate)
        queue.driver.run(shard.model.call(Finish((lease,))))
        ran, handlers = list[int](), Handlers()
        for name in ("send", "call"):
            handlers(name)(lambda job: ran.append(job.payload))
        Worker(queue, handlers, sweep_ms=20).run(burst=True)
        assert sorted(ran) == [1, 2, 3, 4, 6, 7] and ran.index(1) < min(ran.index(2), ran.index(6))
        with monkeypatch.context() as cut:
            # What has ended is copied, and the record does not say so.
            cut.setattr(Resharding, "_write", raises(Cut()))
            refused(Cut, "", reshard, ironclaim_url, 5)
        assert reshard(ironclaim_url, 5).done and queue.counts().finished == 7


def test_what_stays_is_counted_page_by_page_without_jobs_of_ticks(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr(resharding, "PAGE", 2)
    monkeypatch.setattr(resharding.time, "sleep", slept_s.append)
    with Queue("mails", url=ironclaim_url) as plain:
        parents, told = ["first", "second"], list[str]()
        plain.enqueue_many([NewJob("send", None, id=id, key="acme") for id in parents])
        plain.enqueue_many([NewJob("send", None, id=f"child-{n}", key="acme", needs=parents) for n in range(4)])
        plain.enqueue("send", None, id="behind-them", key="acme", priority=1)
        plain.schedules.put("nightly", "send", None, cron="0 3 * * *")
        assert plain.schedules.run_now("nightly") is not None
        made, moves = Resharding(plain, 3, tell=told.append), "moves the jobs of 1 shard"
        for _ in range(2):
            moved = made.run(wait_ms=0)
            assert (moved.jobs, moved.left, moved.done) == (1, 6, False)
        stay = [f"job {id} stays in mails for now: it runs, belongs to others, or cannot be read" for id in parents]
        assert told == ["prepares 3 shards", moves, *stay, moves] and slept_s == [0.2], "it names them once"


@pytest.mark.parametrize("before", [3, 1])
def test_what_was_rerouted_moves_unless_it_is_in_shard_0(before: int, ironclaim_url: str, raw: Any) -> None:
    """Dead and waiting ones, with a key and without, of each shard; what handlers of another queue send is in shard 0."""
    handlers = some_handlers(raises(MemoryError("much")), "away")
    handlers("gone")(raises(ValueError("no")))
    with Queue("mails", url=ironclaim_url, shards=before) as old, Queue("other", url=ironclaim_url) as other:
        for queue, n, target in [(other, 16, "mails:nobody"), *((old, n, "gone" if n < 8 else "nobody") for n in range(16))]:
            queue.enqueue("away", n, id=f"j{n}", key=f"k{n}" if n % 2 else None, attempts=1, reroute_on={"MemoryError": target})
        for queue in (other, old):
            Worker(queue, handlers, sweep_ms=20).run(burst=True)
        known = states(old)
    assert (len(known["dead"]), len(known["waiting"])) == (8, 9) and reshard(ironclaim_url, 5, wait_ms=20_000).done
    with Queue("mails", url=ironclaim_url, shards=5) as queue:
        assert states(queue) == known
    assert raw.zcard("ic:{mails}:lane:nobody") == {3: 1, 1: 5}[before]


def test_a_job_that_fails_before_the_look_at_what_is_left_is_moved(ironclaim_url: str, monkeypatch: Any, client: Any) -> None:
    with Queue("mails", url=ironclaim_url, shards=3) as queue, Queue("mails", url=ironclaim_url) as plain:
        queue.enqueue("send", 1, id="runs", key="acme", attempts=3)
        shard, lease = claimed_at_home(queue, "send")
        look: Any = Resharding._left
        failed: list[str] = []

        def fails_first(self: Resharding, source: Any) -> int:
            if not failed:
                failed.append(lease.job)
                queue.driver.run(shard.model.call(Retry((Failure(lease, "no luck", 600_000),))))
            return look(self, source)

        monkeypatch.setattr(Resharding, "_left", fails_first)
        client.delete(*client.keys("*:wake:*"))
        assert Resharding(plain, 5).run().jobs == 1 and failed == ["runs"]
        found = queue.jobs.get("runs")
        assert found is not None and (found.state, found.failures) == ("delayed", 1)
        assert states(queue)["delayed"] == ["runs"]
        (due,) = client.keys("*:due")
        assert client.llen(due.removesuffix("due") + "wake:send") == 1, "whoever takes the marker hears when it is due (rule 13)"


# -- interrupted


class Cut(BaseException):
    """The end of a process."""


def test_a_job_on_its_way_is_gone_for_who_asks(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue("mails", url=ironclaim_url) as plain, Queue("mails", url=ironclaim_url, shards=3) as queue:
        plain.enqueue("send", 1, id="a")
        monkeypatch.setattr(Resharding, "_arrive", lambda self, source, taken: raises(Cut())() if taken.to else 0)
        refused(Cut, "", Resharding(plain, 3).run)
        assert plain.driver.run(plain.model.call(Inspect(("a",), whole=False))).items[0].state == "moving"
        assert (queue.jobs.state("a"), queue.jobs.get("a"), queue.jobs.why("a").known) == ("gone", None, False)
        assert queue.jobs.cancel("a") == queue.jobs.remove("a", expected_state="waiting") == Altered("a", "changed", "gone", None)
        monkeypatch.undo()
        assert reshard(ironclaim_url, 3).done and queue.jobs.state("a") == "waiting"


def cut_after(queue: Queue, calls: int, *, sent: bool) -> None:
    """Let the driver of a queue die at this call: before it is sent, or when it has been carried out."""
    made = 0

    def dying(inner: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made >= calls and not sent:
                raise Cut
            answer = inner(*arguments, **options)
            if made >= calls:
                raise Cut
            return answer

        return call

    for name in ("run", "send", "send_many"):
        setattr(queue.driver, name, dying(getattr(queue.driver, name)))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("start", range(3))
def test_interrupted_at_any_call_it_is_run_again(start: int, sent: bool, ironclaim_url: str) -> None:
    """Meanwhile a client with the old number, and one that has just read the record, enqueue all again, and new jobs."""
    calls, ended = start + 1, False
    while not ended:
        name = f"q{calls}"
        with Queue(name, url=ironclaim_url, shards=3) as old:
            some = ((n, f"k{n}" if n % 2 else None, 600_000 * (n % 3 == 0)) for n in range(12))
            jobs = [NewJob("send", n, id=f"j{n}", key=key, delay_ms=delay_ms) for n, key, delay_ms in some]
            assert all(item.created for item in old.enqueue_many(jobs))
            with Queue(name, url=ironclaim_url) as dying:
                cut_after(dying, calls, sent=sent)
                with contextlib.suppress(Cut):
                    ended = Resharding(dying, 4).run().done
            ran: list[str] = []
            worker = Worker(old, some_handlers(lambda job, ran=ran: ran.append(job.id), "send"), sweep_ms=20)
            with Queue(name, url=ironclaim_url, shards=3) as other:
                for number, queue in enumerate((old, other)):
                    again = queue.enqueue_many(jobs)
                    assert {item.result for item in again} == {"duplicate"}, (calls, again)
                    assert queue.enqueue("send", "new", id=f"n{number}").created
                    assert queue.enqueue("send", "new", id=f"n{number}").result == "duplicate"
                    if calls % 2:
                        # What is on its way comes later; what has arrived runs now.
                        worker.run(burst=True, delayed=False)
            assert reshard(ironclaim_url, 4, name).done
            worker.run(burst=True, delayed=False)
            assert sorted(ran) == sorted([str(job.id) for job in jobs if not job.options.get("delay_ms")] + ["n0", "n1"]), calls
            assert old.counts().finished == len(ran)
            assert states(old)["delayed"] == sorted(str(job.id) for job in jobs if job.options.get("delay_ms")), calls
        calls += 5
    assert calls > 60


# -- drilled


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_again_and_again_under_load(seed: int, tmp_path: Path, ironclaim_url: str, raw: Any) -> None:
    """Two producers and two workers go on while `ironclaim reshard` is killed (SIGKILL), from 3 to 7 and then to 4 shards: every
    acknowledged job has exactly one accepted finish, and no repeat makes another job."""
    draw, workers = random.Random(seed), Workers(tmp_path, ironclaim_url)
    environment, started = {**os.environ, "PYTHONPATH": str(ROOT)}, list[subprocess.Popen[bytes]]()

    def start(*words: str, output: str = "output") -> subprocess.Popen[bytes]:
        with (tmp_path / output).open("ab") as file:
            started.append(start_guarded([sys.executable, "-m", *words], cwd=ROOT, env=environment, stdout=file, stderr=file))
        return started[-1]

    def begin(to: int) -> tuple[subprocess.Popen[bytes], Path]:
        """A resharding, once it moves jobs or has ended."""
        output = f"reshard-{len(started)}"
        process = start("engine", "reshard", "mails", "--to", str(to), "--url", ironclaim_url, output=output)
        path = tmp_path / output
        wait_until(lambda: b"moves the jobs" in path.read_bytes() or process.poll() is not None, "it begins", 60)
        return process, path

    try:
        with Queue("mails", url=ironclaim_url, shards=3) as queue:
            # What there is to move; it is made to run when all is done.
            later = [NewJob("mark", {"folder": str(tmp_path)}, id=f"later-{n}", delay_ms=3_600_000 + n) for n in range(8_000)]
            assert all(item.created for item in queue.enqueue_many(later))
            for number in range(2):
                workers.start("--lease-ms", "60000", "--shards", "3", name=f"w{number}", queue="mails", handlers=HANDLERS)
                start("tests.engine.helpers.resharding_load", ironclaim_url, "3", str(tmp_path), str(10 * seed + number))
            acknowledged = [tmp_path / f"acknowledged-{10 * seed + number}" for number in range(2)]
            wait_until(lambda: all(path.exists() and path.stat().st_size > 1_000 for path in acknowledged), "they produce", 60)
            killed = 0
            for to in (7, 4):
                code: int | None = None
                for _ in range(4):
                    process, path = begin(to)
                    try:
                        code = process.wait(draw.uniform(0.05, 0.6))
                        break
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
                        killed += 1
                if code is None:
                    process, path = begin(to)
                    code = process.wait(300)
                assert code == 0, path.read_text()
            assert killed >= 4, "it was killed in the middle"
            assert read_record(raw.get("ic:{mails}:shards").decode()).layout == Layout(3, 4)
            (tmp_path / "stop").touch()
            for producer in started[:2]:
                assert producer.wait(120) == 0, (tmp_path / "output").read_text()
            ids = [line for path in acknowledged for line in path.read_text().split()]
            ids += [job.id for job in later if job.id]
            assert len(set(ids)) == len(ids) > 500
            with ThreadPoolExecutor(4) as threads:
                changes = list(threads.map(queue.jobs.run_now, [job.id for job in later if job.id]))
                assert all(changed.done for changed in changes), [changed for changed in changes if not changed.done][:5]

            wait_until(lambda: (c := queue.counts()).waiting + c.delayed + c.active == 0, "all have ended", 300)
            counts, runs = queue.counts(), Counter(mark.job for mark in workers.marks("ran"))
            assert set(runs) >= set(ids), sorted(set(ids) - set(runs))[:20]
            assert counts.finished == len(runs) and counts.dead == 0, (counts, [job for job, times in runs.items() if times > 1])
            # Not one had to be run again: nobody was killed but the resharding.
            assert sum(runs.values()) == len(runs)
            assert [path.read_text() for path in tmp_path.glob("wrong-*")] == ["", ""]
    finally:
        workers.stop_all()
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("which", ["job", "run", "result"])
def test_what_cannot_be_read_stays_and_is_named_and_the_others_move(which: str, ironclaim_url: str, raw: Any) -> None:
    told: list[str] = []
    with Queue("mails", url=ironclaim_url) as queue:
        queue.enqueue_many([NewJob("send", n, id=f"w{n}") for n in range(12)])
        key, nameless = f"{queue.model.keys.prefix}{which}:w3", queue.model.keys.prefix.encode() + b"result:\xff"
        if which == "job":
            raw.rename(key, "aside")
        raw.rpush(key, "x")
        # Nor does one stop it that no text can name.
        raw.set(nameless, "x")
        stays = which != "result"
        moved = Resharding(queue, 4, tell=told.append).run(wait_ms=0 if stays else 20_000)
        assert (moved.jobs, moved.left, moved.done) == ((11, 1, False) if stays else (12, 0, True))
        assert [text for text in told if "job w3 stays in mails" in text] == told[-1:] * stays
        raw.delete(nameless)
        if stays:
            assert raw.lrange(key, 0, -1) == [b"x"], "it belongs to somebody else"
            # As soon as somebody has put it right, the same number goes on.
            raw.delete(key)
            if which == "job":
                raw.rename("aside", key)
            assert Resharding(queue, 4).run(wait_ms=20_000).done
    with Queue("mails", url=ironclaim_url, shards=4) as queue:
        assert states(queue)["waiting"] == sorted(f"w{n}" for n in range(12))
    assert len(homes(raw)) > 1


@pytest.mark.parametrize(("kept_ms", "there"), [(1, True), (0, False), (-1, False)])
def test_a_result_that_runs_out_while_its_job_moves_does_not_stop_it(desk: Desk, kept_ms: int, there: bool) -> None:
    raw: bytes = desk.enqueue("j").redis.get(desk.keys.job("j"))
    desk.begin()
    words = (b"waiting", b"0", raw, b"", b"", b"", b"a result", b"%d" % (kept_ms * 60_000), b"")
    packed = b"".join(b"%d:%s" % (len(word), word) for word in words)
    assert desk.run(PutJobs("other", 1, (("j", packed),))).left_out == 0
    assert desk.redis.exists(desk.keys.result("j")) == there and desk.claim()[0].lease.job == "j"


def test_nobody_of_a_family_moves_before_all_of_it_has_ended(desk: Desk) -> None:
    take = TakeJobs(1, "other", ("p", "child"))
    assert desk.family().run(take).result == "stale"
    lease = desk.one().lease
    assert desk.run(take).result == "stale" and desk.bury(lease)
    assert desk.run(take).result == "stale" and {job for job, _ in desk.swept().run(take).items} == {"p", "child"}
    desk.begin().family().finished(desk.one().lease).swept()
    # It runs where its parent's result is. A parent that has ended does not move, in whatever index it is left.
    desk.redis.zadd(desk.keys.dead, {"p": 1})
    assert desk.run(take).result == "stale"


def test_a_dead_child_takes_what_it_lacks_with_it_but_no_parent_that_has_finished_since(desk: Desk) -> None:
    def led() -> dict[str, set[bytes]]:
        found = {key.removeprefix(desk.keys.prefix): told for key, told in desk.dump().items()}
        return {key: told[1] for key, told in found.items() if re.match("lacks:|lost:", key) and told[2] == ends_ms}

    ends_ms = desk.now_ms + 90 * 86_400_000
    bury(desk.enqueue("p", "q").enqueue("child", needs=("p", "q")), "p", "q")
    altered(desk.sweeps(2), "requeue", "dead", "q")
    before = led()
    assert before == {"lacks:child": {b"p", b"q"}, "lost:p": {b"child"}, "lost:q": {b"child"}}
    desk.finished(desk.one().lease)
    taken = desk.run(TakeJobs(1, "other", ("child",)))
    assert led() == before and desk.run(DropTaken(1)).count == 1 and led() == {}
    assert desk.begin().run(PutJobs("from", 1, taken.items)).left_out == 0
    assert led() == {"lacks:child": {b"p"}, "lost:p": {b"child"}}
    desk.begin().redis.set(f"{desk.keys.prefix}lacks:child", "a text")
    assert desk.run(PutJobs("from", 1, taken.items)).left_out == 0 and led() == {}


def test_a_job_that_was_claimed_after_a_take_was_cut_off_is_no_part_of_the_batch(desk: Desk) -> None:
    assert desk.enqueue("a", "b").cut_off(TakeJobs(1, "other", ("a", "b")), 1)
    lease = desk.one(limit=1).lease
    taken = desk.run(TakeJobs(0, ""))
    assert (taken.result, taken.to, [job for job, _ in taken.items]) == ("busy", "other", ["b"])
    assert desk.run(DropTaken(1)).count == 1 and desk.finish(lease) == [("ok", "finished")]


def test_a_job_arrives_with_all_that_it_had_and_leaves_nothing_behind(desk: Desk) -> None:
    back, dead = desk.lease("back", priority=9), desk.lease("dead", unique="ud")
    desk.retried(back, delay_ms=60_000).bury(dead)
    desk.enqueue("waits", key="k", lifo=True, priority=9).enqueue("later", delay_ms=5_000, expires_ms=9_000, unique="ul")
    fences = {"back": back.fence, "dead": dead.fence, "waits": 0, "later": 0}

    def had() -> dict[str, Any]:
        """What belongs to jobs; the end of a result, which is told as a length, to ten seconds."""
        keys = {key.removeprefix(desk.keys.prefix): (*told[:2], round(told[2] / 10_000)) for key, told in desk.dump().items()}
        return {key: told for key, told in keys.items() if re.match("(job|run|lane|unique|result):|due|dead|expiring", key)}

    before = had()
    # A queue may have this name.
    taken = desk.enqueue("stays").run(TakeJobs(1, "j:to", tuple(fences)))
    assert (taken.result, taken.to, {job for job, _ in taken.items}) == ("taken", "j:to", {*fences})
    assert ready(desk) == ["main"]
    # On its way: an id that comes again, and a unique key.
    told = [desk.run(desk.enqueue_operation(job, nonce=b"another-")) for job in fences]
    assert [(one.result, one.state, one.fence) for one in told] == [("duplicate", "moving", fence) for fence in fences.values()]
    assert desk.run(desk.enqueue_operation("new", unique="ul")).holder == "later"
    assert desk.run(DropTaken(2)).count == 0 and desk.run(DropTaken(1)).count == 4
    assert desk.redis.hgetall(f"{desk.keys.prefix}transit") == {b"number": b"1"}
    assert set(had()) == {"job:new", "job:stays", "lane:main"}
    desk.begin()
    for number in (1, 2):
        assert desk.run(PutJobs("from", number, taken.items)).left_out == 0 and had() == before
    # One has ended there, and other jobs have the ids of two.
    desk.begin().finished(desk.lease("waits")).enqueue("back", "later", *"abc").redis.hset(desk.keys.stats, "turn", 7)
    assert desk.run(PutJobs("from", 1, taken.items)).left_out == 2 and desk.redis.get(desk.keys.seq) == b"6"
    assert desk.places("waits") == {"lane"} and desk.redis.zscore(desk.keys.ready("main"), "main/k") == BAND + 7
    desk.begin().enqueue("far", delay_ms=600_000)
    for job, markers in (("later", 1), ("back", 0)):
        desk.redis.delete(desk.keys.wake("main"))
        desk.run(PutJobs(job, 1, tuple(item for item in taken.items if item[0] == job)))
        assert desk.redis.llen(desk.keys.wake("main")) == markers, "only the first one that is due wakes a worker"
    # One that nobody can read has no sequence.
    words = (b"dead", b"1", b"nonsense", *[b""] * 4, b"-2", b"")
    desk.begin().run(PutJobs("from", 1, (("j", b"".join(b"%d:%s" % (len(word), word) for word in words)),), 1))
    assert desk.redis.hgetall(desk.keys.stats) == {b"finished": b"1"} and desk.redis.get(desk.keys.seq) == b"0"
