"""Rules 1 and 27: every script on a cluster of three primaries while the queue's slot moves: no job lost, none ended twice."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from engine.models.lanes import Lanes
from engine.testing.cluster import EmbeddedCluster
from engine.wire.call import Call
from engine.wire.operations import (
    AcquireLock,
    AdminAction,
    Alter,
    Bury,
    Clean,
    CloseWindows,
    Connected,
    Count,
    Drop,
    DropTaken,
    EnableSchedule,
    EndRestore,
    Enqueue,
    EnqueueMany,
    Explain,
    Extend,
    ExtendLock,
    Failure,
    Finish,
    Forget,
    Inspect,
    Lease,
    Listing,
    ListObstacles,
    ListRunTimes,
    ListSchedules,
    ListWorkers,
    LoadRestore,
    Look,
    MakeTestQueue,
    Mark,
    NoteEra,
    NoteProgress,
    Operation,
    Page,
    Pause,
    PutJobs,
    PutSchedule,
    ReadWorkerUpdates,
    ReapLost,
    Release,
    ReleaseLock,
    RemoveSchedule,
    ReplicationProbe,
    Resume,
    Retry,
    RunTimes,
    SetEvents,
    SetGate,
    SetLimit,
    SetRetention,
    SetShards,
    SetWorker,
    TakeJobs,
    Tick,
    TickPolicy,
    Timing,
    Value,
)
from tests.engine.cluster_desk import CALM_MS, ClusterDesk, NotNow
from tests.engine.desk import LEASE_MS

# -- scenes: what each script meets. A script runs on a half-moved slot only when all its declared keys are at one node, so each
# scene begins with a queue that has every one of them.


def busy(desk: ClusterDesk) -> tuple[Lease, ...]:
    """A queue that has every key: jobs in every state, limits with leases and lanes that wait, pauses, a marker, records of
    worker `a` and of the sweeper. The leases of `a`: `leased1`, `leased2`, and `limited1`, which `limited2` waits for."""
    desk.limit("k:acme", concurrency=1, rate=1000, per_ms=1000)
    desk.limit("n:main", concurrency=1000, rate=1000, per_ms=1000)
    desk.run(put_operation(desk, "hourly"))
    desk.pause("other", 0)
    desk.pause("another", 600_000)
    desk.run(SetRetention(desk.op_id(), desk.now_ms + 10_000, (("done_max", 1000),)))
    desk.run(SetEvents(desk.op_id(), desk.now_ms + 10_000, 1000))
    desk.enqueue("finished", "buried")
    finished, buried = (job.lease for job in desk.claim("b"))
    desk.finish(finished)
    desk.run(Bury((Failure(buried, "no"),)))
    desk.enqueue("promoted", delay_ms=10)
    desk.tick(20)
    desk.sweep()
    desk.enqueue("leased1", "leased2", priority=9)
    desk.enqueue("limited1", "limited2", priority=8, key="acme")
    leases = tuple(job.lease for job in desk.claim("a", limit=3))
    assert {lease.job for lease in leases} == {"leased1", "leased2", "limited1"}
    desk.enqueue("soon", delay_ms=30)
    desk.enqueue("later", delay_ms=50_000)
    desk.enqueue("waits1", "waits2")
    desk.enqueue("waits3", key="other")
    desk.tick(40)
    return leases


def enqueue_new(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.enqueue_operation("new")


def enqueue_unique(desk: ClusterDesk) -> Operation:
    """The holder of the key is not in KEYS: it has ended, and the new job takes the key over."""
    busy(desk)
    desk.enqueue("holder", unique="u", priority=10)
    (job,) = desk.claim("b", limit=1)
    desk.finish(job.lease)
    desk.redis.set(desk.keys.unique("u"), "holder")
    return desk.enqueue_operation("new", unique="u")


def close_windows(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.enqueue("w1", dedup="outbox:w1", dedup_ms=60_000)
    desk.enqueue("w2", dedup="other", dedup_ms=60_000)
    return CloseWindows((("outbox:w1", "w1"), ("other", "w2")))


def close_windows_again(desk: ClusterDesk) -> Operation:
    return repeated(desk, close_windows(desk))


def enqueue_repeated(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.enqueue_operation("leased1")


def enqueue_duplicate(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.enqueue_operation("leased1", nonce=b"another-")


def enqueue_first(desk: ClusterDesk) -> Operation:
    return desk.enqueue_operation("new")


def family(desk: ClusterDesk) -> Lease:
    """A parent in hand, three children that wait for it, one of them for another too, and a burial that is still to be told."""
    busy(desk)
    desk.enqueue("parent1", "parent2", "parent3", priority=10)
    desk.enqueue("child1", "child2", needs=("parent1",))
    desk.enqueue("child3", needs=("parent1", "parent2"))
    desk.enqueue("child4", needs=("parent3",))
    first, second, third = (job.lease for job in desk.claim("b", limit=3))
    desk.run(Release((second,)))
    desk.run(Bury((Failure(third, "no"),)))
    return first


def enqueue_needing(desk: ClusterDesk) -> Operation:
    family(desk)
    desk.enqueue("parent4", needs=("parent1",))
    return desk.enqueue_operation("new", needs=("parent1", "parent2", "parent4", "finished"))


def enqueue_duplicate_needing(desk: ClusterDesk) -> Operation:
    family(desk)
    return desk.enqueue_operation("leased1", nonce=b"another-", needs=("parent1",))


def finish_of_a_parent(desk: ClusterDesk) -> Operation:
    return Finish((family(desk),))


def finish_of_a_parent_and_claim(desk: ClusterDesk) -> Operation:
    return Finish((family(desk),), desk.claim_operation("b", limit=2))


def bury_of_a_parent(desk: ClusterDesk) -> Operation:
    return Bury((Failure(family(desk), "no"),))


def drop(desk: ClusterDesk) -> Operation:
    """A job that others wait for among them."""
    lease = family(desk)
    (other,) = desk.claim("c", limit=1)
    return Drop((lease, other.lease), ("skipped", "discarded"))


def promote_of_children(desk: ClusterDesk) -> Operation:
    """As a finish that was cut off leaves them: ended, and nobody told."""
    lease = family(desk)
    desk.redis.rename(desk.keys.feeding, "{desk}kept")
    desk.finish(lease)
    desk.redis.rename("{desk}kept", desk.keys.feeding)
    return desk.sweep_operation()


def enqueue_many_new(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.enqueue_many_operation("new1", "new2", "new3", delays_ms=(500,))


def enqueue_many_repeated(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.enqueue_many_operation("leased1", "leased2", "waits1")


def claim(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.claim_operation("a")


def claim_one(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.claim_operation("a", limit=1)


def claim_of_a_new_worker(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.claim_operation("n")


def finish_and_claim(desk: ClusterDesk) -> Operation:
    return Finish(busy(desk), desk.claim_operation("a"))


def finish(desk: ClusterDesk) -> Operation:
    return Finish(busy(desk))


def finish_with_a_token_twice(desk: ClusterDesk) -> Operation:
    """`active` is gone when the second one is looked at: on a node that the slot leaves, the call fails after its writes."""
    leases = busy(desk)
    return Finish((*leases, leases[0]))


def release(desk: ClusterDesk) -> Operation:
    return Release(busy(desk))


def retry(desk: ClusterDesk) -> Operation:
    return Retry(tuple(Failure(lease, "boom", 200) for lease in busy(desk)))


def bury(desk: ClusterDesk) -> Operation:
    return Bury(tuple(Failure(lease, "no") for lease in busy(desk)))


def extend(desk: ClusterDesk) -> Operation:
    return desk.extend_operation(*busy(desk))


def mark(desk: ClusterDesk) -> Operation:
    return Mark(busy(desk)[0])


def promote(desk: ClusterDesk) -> Operation:
    busy(desk)
    return desk.sweep_operation()


def reap(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.sweep_past(LEASE_MS - 100)
    desk.tick(200)
    return desk.sweep_operation()


def reap_of_a_new_sweeper(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.sweep_past(LEASE_MS - 100)
    desk.tick(200)
    return desk.sweep_operation("n")


def counts(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Count()


def progress(desk: ClusterDesk) -> Operation:
    return NoteProgress(busy(desk)[0], 1, b'"percent":5}')


def look(desk: ClusterDesk) -> Operation:
    leases = busy(desk)
    return Look(leases[0].job)


def look_and_wait(desk: ClusterDesk) -> Operation:
    leases = busy(desk)
    return Look(leases[0].job, "f" * 16)


def finish_with_values(desk: ClusterDesk) -> Operation:
    """Somebody waits for one of them."""
    leases = busy(desk)
    desk.run(Look(leases[0].job, "f" * 16))
    return Finish(leases, None, (Value(0, b"7", 60_000, 5),))


def listing(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Listing(0, 100)


def make_test_queue(desk: ClusterDesk) -> Operation:
    busy(desk)
    return MakeTestQueue()


def pause(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Pause(desk.op_id(), desk.now_ms + 10_000, "main", 5_000)


def pause_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, pause(desk))


def resume(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.pause("main", 0)
    return Resume(desk.op_id(), desk.now_ms + 10_000, "main")


def resume_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, resume(desk))


def set_limit(desk: ClusterDesk) -> Operation:
    """Lanes that wait for the limit come back."""
    busy(desk)
    desk.claim("b", limit=100)
    return SetLimit(desk.op_id(), desk.now_ms + 10_000, "k:acme", None)


def set_limit_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, set_limit(desk))


def put_operation(desk: ClusterDesk, name: str, **timing: Any) -> PutSchedule:
    """A schedule that is due in 20 ms."""
    job = desk.enqueue_operation("template")
    due_ms = desk.now_ms + 20
    policy, hourly = TickPolicy(), Timing(every_ms=3_600_000, **timing)
    return PutSchedule(desk.op_id(), desk.now_ms + 10_000, name, hourly, policy, job, due_ms, due_ms, None)


def put_schedule(desk: ClusterDesk) -> Operation:
    busy(desk)
    return put_operation(desk, "new")


def put_schedule_again(desk: ClusterDesk) -> Operation:
    busy(desk)
    return put_operation(desk, "hourly", start_ms=1)


def put_schedule_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, put_schedule(desk))


def enable_schedule(desk: ClusterDesk) -> Operation:
    busy(desk)
    return EnableSchedule(desk.op_id(), desk.now_ms + 10_000, "hourly", 1, 0)


def remove_schedule(desk: ClusterDesk) -> Operation:
    busy(desk)
    return RemoveSchedule(desk.op_id(), desk.now_ms + 10_000, "hourly")


def schedules(desk: ClusterDesk) -> Operation:
    busy(desk)
    return ListSchedules()


def tick(desk: ClusterDesk) -> Operation:
    """Of ticks of this call one has made its job before: a copy of the call was cut off."""
    busy(desk)
    due_ms = int(desk.redis.zscore(desk.keys.cron, "hourly") or 0)  # type: ignore[arg-type]
    desk.enqueue(f"cron:hourly:{due_ms}")
    return Tick("a" * 16, 1, "hourly", "1", due_ms, (due_ms, due_ms + 1), due_ms + 3_600_000, 0, "allow")


def tick_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, tick(desk))


def beat(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.beat("a")
    return desk.beat_operation("a")


def reap_lost(desk: ClusterDesk) -> Operation:
    """The leases of `a`, whose control connection is gone."""
    busy(desk)
    desk.run(replace(desk.beat_operation("a"), connection="7 run"))
    counter = desk.sweep_operation().counter
    return ReapLost("s" * 16, counter, 100, desk.now_ms + 500, (Connected("a" * 16, 7),), "run")


def orphans(desk: ClusterDesk) -> Operation:
    """The leases of `a`, which has stopped beating."""
    desk.beat("a", ttl_ms=3_000)
    busy(desk)
    for _ in range(4):
        desk.tick(1_000)
        desk.beat("b", ttl_ms=3_000)
    return desk.orphans_operation()


def workers(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.beat("a")
    return ListWorkers(0, 100)


def report_run_times(desk: ClusterDesk) -> Operation:
    """One name has times already, the other one is new; so is the hash of the names that have no room."""
    busy(desk)
    desk.run(desk.took_operation(RunTimes("*", "ok", 1, 1, ((3, 1),))))
    desk.run(desk.took_operation())
    return desk.took_operation(RunTimes("main", "ok", 7, 7, ((45, 1),)), RunTimes("new", "failed", 7, 7, ((45, 1),)))


def took(desk: ClusterDesk) -> Operation:
    desk.run(report_run_times(desk))
    return ListRunTimes(0, 100)


def lock_acquire(desk: ClusterDesk) -> Operation:
    busy(desk)
    return AcquireLock("nightly", "f" * 16, 5_000, desk.now_ms + 10_000)


def lock_extend(desk: ClusterDesk) -> Operation:
    desk.run(lock_acquire(desk))
    return ExtendLock("nightly", "f" * 16, 1, 5_000, desk.now_ms + 10_000)


def lock_release(desk: ClusterDesk) -> Operation:
    desk.run(lock_acquire(desk))
    return ReleaseLock("nightly", "f" * 16)


def witness(desk: ClusterDesk) -> Operation:
    busy(desk)
    return ReplicationProbe()


def enqueue_routed(desk: ClusterDesk) -> Operation:
    """The first job of a class with a target: its name's classes and the news are not in KEYS."""
    busy(desk)
    return desk.enqueue_operation("new", route="gpu")


def enqueue_many_routed(desk: ClusterDesk) -> Operation:
    busy(desk)
    return EnqueueMany(tuple(desk.enqueue_operation(f"new{at}", route=f"gpu{at}") for at in (1, 2)))


def news(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.enqueue("new", route="gpu")
    return ReadWorkerUpdates(0, "a")


def set_worker(desk: ClusterDesk) -> Operation:
    busy(desk)
    return SetWorker(desk.op_id(), desk.now_ms + 10_000, "p:a", 5_000)


def set_worker_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, set_worker(desk))


def alter(desk: ClusterDesk, action: AdminAction, state: str, *jobs: str) -> Operation:
    return Alter(desk.op_id(), desk.now_ms + 10_000, action, jobs, state)


def cancel(desk: ClusterDesk) -> Operation:
    """A lane that waits for the slot of one of them comes back."""
    busy(desk)
    return alter(desk, "cancel", "active", "leased1", "limited1", "waits1")


def cancel_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, cancel(desk))


def discard(desk: ClusterDesk) -> Operation:
    busy(desk)
    return alter(desk, "discard", "dead", "buried")


def requeue(desk: ClusterDesk) -> Operation:
    busy(desk)
    return alter(desk, "requeue", "dead", "buried", "waits1")


def requeue_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, requeue(desk))


def run_now(desk: ClusterDesk) -> Operation:
    busy(desk)
    return alter(desk, "run_now", "delayed", "later", "waits1")


def run_now_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, run_now(desk))


def clean(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Clean(desk.op_id(), desk.now_ms + 10_000, "waiting", 0, None, 0, 100, 100)


def clean_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, clean(desk))


def forget(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Forget(desk.op_id(), desk.now_ms + 10_000, "begin", True)


def forget_at_the_end(desk: ClusterDesk) -> Operation:
    """Jobs are left, so classes and counters stay."""
    busy(desk)
    return repeated(desk, Forget(desk.op_id(), desk.now_ms + 10_000, "end", True))


def set_retention(desk: ClusterDesk) -> Operation:
    busy(desk)
    return SetRetention(desk.op_id(), desk.now_ms + 10_000, (("dead_max", 50),))


def set_retention_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, set_retention(desk))


def set_events(desk: ClusterDesk) -> Operation:
    busy(desk)
    return SetEvents(desk.op_id(), desk.now_ms + 10_000, 50)


def set_events_repeated(desk: ClusterDesk) -> Operation:
    return repeated(desk, set_events(desk))


def inspect(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Inspect(("leased1", "waits1", "later", "buried", "finished", "nobody"))


def page(desk: ClusterDesk) -> Operation:
    busy(desk)
    return Page("waiting", 0, 100)


def obstacles(desk: ClusterDesk) -> Operation:
    """With a limit that is full and a lane that waits for it."""
    busy(desk)
    desk.set_limit("k:*", concurrency=1)
    desk.enqueue("tenant1", "tenant2", key="acme")
    desk.claim("w", 1)
    desk.pause("other", 60_000)
    return ListObstacles()


def why(desk: ClusterDesk) -> Operation:
    obstacles(desk)
    return Explain("tenant2")


def note_era(desk: ClusterDesk) -> Operation:
    busy(desk)
    desk.run(NoteEra("first", "", "", 0))
    return NoteEra("second", "first", "", 2, (("a" * 16, 1, True),))


def restore_begins(desk: ClusterDesk) -> Operation:
    """Into a queue that is not empty."""
    busy(desk)
    return LoadRestore("begin", "backup", "owner")


def restore_ends(desk: ClusterDesk) -> Operation:
    """All is loaded; three jobs were leased."""
    busy(desk)
    keys, client = desk.keys, cast("Any", desk.redis)
    values, sequence = [client.dump(key) for key in (keys.sweep, keys.seq)], int(client.get(keys.seq))
    desk.redis.delete(keys.seq)
    desk.redis.rpush(keys.seq, "restore backup owner", 0)
    desk.redis.set(keys.sweep, "restore")
    desk.redis.rpush(keys.era, "first 0 1")
    return EndRestore("backup", "owner", "second", 100, sequence, *values)


def shard_record(desk: ClusterDesk) -> Operation:
    busy(desk)
    return SetShards("", "a record", "")


def shard_gate(desk: ClusterDesk) -> Operation:
    busy(desk)
    return SetGate("", 500)


def shard_take_looks(desk: ClusterDesk) -> Operation:
    """Jobs that are taken are in no state until they arrive elsewhere: tests/engine/test_resharding.py has those."""
    busy(desk)
    return TakeJobs(0, "")


def shard_put_counters(desk: ClusterDesk) -> Operation:
    """The last batch of a shard brings its counters and no jobs."""
    busy(desk)
    return PutJobs("other", 1, (), finished=3)


def shard_drop_again(desk: ClusterDesk) -> Operation:
    busy(desk)
    return DropTaken(1)


def repeated(desk: ClusterDesk, operation: Operation) -> Operation:
    """The operation, which was carried out: it has left its own key, so that a copy may run on a half-moved slot."""
    desk.run(operation)
    return operation


#: The scenes of each script. A script without one fails `test_every_script_has_a_scene`.
SCENES: dict[str, list[Callable[[ClusterDesk], Operation]]] = {
    "beat": [beat],
    "bury": [bury, bury_of_a_parent],
    "claim": [claim, claim_one, claim_of_a_new_worker, finish_and_claim, finish_of_a_parent_and_claim],
    "clean": [clean, clean_repeated],
    "close_windows": [close_windows, close_windows_again],
    "counts": [counts],
    "discard": [cancel, cancel_repeated, discard],
    "drop": [drop],
    "enable_schedule": [enable_schedule],
    "enqueue": [
        *(enqueue_new, enqueue_unique, enqueue_repeated, enqueue_duplicate, enqueue_first),
        *(enqueue_needing, enqueue_duplicate_needing, enqueue_routed),
    ],
    "enqueue_many": [enqueue_many_new, enqueue_many_repeated, enqueue_many_routed],
    "extend": [extend],
    "finish": [finish, finish_with_a_token_twice, finish_of_a_parent, finish_with_values],
    "forget": [forget, forget_at_the_end],
    "inspect": [inspect],
    "listing": [listing],
    "lock_acquire": [lock_acquire],
    "lock_extend": [lock_extend],
    "lock_release": [lock_release],
    "look": [look, look_and_wait],
    "make_test_queue": [make_test_queue],
    "mark": [mark],
    "read_worker_updates": [news],
    "orphans": [orphans],
    "reap_lost": [reap_lost],
    "note_era": [note_era],
    "obstacles": [obstacles],
    "page": [page],
    "pause": [pause, pause_repeated],
    "progress": [progress],
    "put_schedule": [put_schedule, put_schedule_again, put_schedule_repeated],
    "release": [release],
    "remove_schedule": [remove_schedule],
    "requeue": [requeue, requeue_repeated],
    "restore_end": [restore_ends],
    "restore_load": [restore_begins],
    "resume": [resume, resume_repeated],
    "retry": [retry],
    "run_now": [run_now, run_now_repeated],
    "schedules": [schedules],
    "set_limit": [set_limit, set_limit_repeated],
    "set_worker": [set_worker, set_worker_repeated],
    "set_events": [set_events, set_events_repeated],
    "set_retention": [set_retention, set_retention_repeated],
    "report_run_times": [report_run_times],
    "shard_drop": [shard_drop_again],
    "shard_gate": [shard_gate],
    "shard_put": [shard_put_counters],
    "shard_record": [shard_record],
    "shard_take": [shard_take_looks],
    "sweep": [promote, promote_of_children, reap, reap_of_a_new_sweeper],
    "tick": [tick, tick_repeated],
    "list_run_times": [took],
    "replication_probe": [witness],
    "workers": [workers],
    "why": [why],
}

EACH_SCENE = [(script, scene) for script, scenes in SCENES.items() for scene in scenes]

# -- orders in which the keys move

#: The keys in the order in which they move, and how many of them before the call is first sent.
Order = Callable[[list[str], Call[Any]], tuple[list[str], int]]


def kind_of(key: str) -> str:
    """`job`, `run`, or `index` for what is neither."""
    name = key.split("}:", 1)[1].split(":", 1)[0]
    return name if name in ("job", "run") else "index"


def by_kind(*kinds: str) -> Order:
    """The keys of each kind together, sent first when those of the first kind have moved."""
    return lambda keys, call: (
        sorted(keys, key=lambda key: (kinds.index(kind_of(key)), key)),
        sum(kind_of(key) == kinds[0] for key in keys),
    )


def declared(*, first: bool) -> Order:
    """The keys that the call declares, before or after those that the script builds from the prefix; sent in between: the
    script then runs at one node while all others of its keys are at the other."""
    return lambda keys, call: (
        sorted(keys, key=lambda key: ((key in call.keys) != first, key)),
        sum((key in call.keys) == first for key in keys),
    )


def from_the_start(order: Order) -> Order:
    return lambda keys, call: (order(keys, call)[0], 0)


def shuffled(seed: int) -> Order:
    """Any order, sent from any stage on."""

    def order(keys: list[str], call: Call[Any]) -> tuple[list[str], int]:
        dice = random.Random(seed)
        return dice.sample(sorted(keys), len(keys)), dice.randrange(len(keys) + 1)

    return order


def shuffled_halves(seed: int, *, first: bool) -> Order:
    """As `declared`, with some of the undeclared keys on the same side as the declared ones."""

    def order(keys: list[str], call: Call[Any]) -> tuple[list[str], int]:
        dice = random.Random(seed)
        ours = {key for key in sorted(keys) if key in call.keys or dice.random() < 0.5}
        return sorted(dice.sample(sorted(keys), len(keys)), key=lambda key: (key in ours) != first), (
            len(ours) if first else len(keys) - len(ours)
        )

    return order


ORDERS: dict[str, Order] = {
    "jobs first": by_kind("job", "run", "index"),
    "runs first": by_kind("run", "index", "job"),
    "index first": by_kind("index", "run", "job"),
    "declared first": declared(first=True),
    "declared last": declared(first=False),
    "from the start": from_the_start(declared(first=True)),
    **{f"seed {seed}": shuffled(seed) for seed in (1, 2)},
    **{f"declared first, seed {seed}": shuffled_halves(seed, first=True) for seed in (3, 4)},
    **{f"declared last, seed {seed}": shuffled_halves(seed, first=False) for seed in (5, 6)},
}

#: The others take six times as long, and see what these two see of an edited script but for the rarest of half-moved keys.
FIRST_TIER = ("declared first", "index first")


# -- fixtures


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(node_timeout_ms=CALM_MS) as made:
        yield made


@pytest.fixture(scope="module")
def shared_desk(cluster: EmbeddedCluster) -> Iterator[ClusterDesk]:
    made = ClusterDesk(
        cluster,
        Lanes("desk"),
    )
    yield made
    made.close()


@pytest.fixture
def desk(shared_desk: ClusterDesk) -> ClusterDesk:
    """An empty desk."""
    shared_desk.reset()
    return shared_desk


# -- what must hold


def drain(desk: ClusterDesk) -> dict[str, int]:
    """What healthy workers do afterwards: sweep past every lease and back-off, run what is there. Accepted finishes by job."""
    accepted: dict[str, int] = {}
    for _ in range(3):
        desk.sweep_past(LEASE_MS + 1000)
        desk.tick(60_000)
        desk.sweep()
        while jobs := desk.claim("z", classes=("main", "main@gpu", "main@gpu1", "main@gpu2")):
            for job, (result, _) in zip(jobs, desk.finish(*[job.lease for job in jobs]), strict=True):
                accepted[job.lease.job] = accepted.get(job.lease.job, 0) + (result == "ok")
        counts = desk.run(Count())
        if not (counts.waiting or counts.delayed or counts.active or counts.blocked):
            break
    return accepted


def accepted_by(operation: Operation, reply: object) -> dict[str, int]:
    """Ends that the operation itself reports as accepted, by this send or by one that was not answered."""
    if not isinstance(operation, Finish | Drop):
        return {}
    items: Any = getattr(reply, "finished", reply)
    return {
        lease.job: int(result in ("ok", "repeated")) for lease, (result, _) in zip(operation.leases, items.items, strict=True)
    }


def created_by(operation: Operation) -> set[str]:
    if isinstance(operation, Tick):
        return {f"cron:{operation.schedule}:{tick_ms}" for tick_ms in operation.ticks_ms}
    jobs = operation.jobs if isinstance(operation, EnqueueMany) else [operation] if isinstance(operation, Enqueue) else []
    return {job.job for job in jobs}


def ended_by_hand(operation: Operation, places: Mapping[str, set[str]]) -> set[str]:
    """Jobs that the operation has ended: they have a tombstone, and nobody runs them any more."""
    match operation:
        case Alter(action="cancel" | "discard"):
            return {job for job in operation.jobs if places[job] == {"ended"}}
        case Clean():
            return {job for job, at in places.items() if job[:-1] in ("waits", "promote", "limited") and at == {"ended"}}
        case _:
            return set()


def check_ended(desk: ClusterDesk, jobs: set[str], accepted: Mapping[str, int]) -> None:
    """Each job is finished once or dead, and nothing is left that waits, is leased or counts against a limit."""
    places = desk.where()
    wrong = {job: (accepted.get(job, 0), places.get(job, set())) for job in jobs}
    wrong = {job: ended for job, ended in wrong.items() if ended not in ((1, {"ended"}), (0, {"dead"}))}
    assert wrong == {}, desk.router.met
    assert {name: left for kind in ("lane:", "due", "active", "held:") for name, left in desk.members(kind).items() if left} == {}


def test_every_script_has_a_scene() -> None:
    assert set(SCENES) == set(Lanes("desk").scripts)


@pytest.mark.parametrize("order", [name if name in FIRST_TIER else pytest.param(name, marks=pytest.mark.slow) for name in ORDERS])
@pytest.mark.parametrize(("script", "scene"), EACH_SCENE, ids=[scene.__name__ for _, scene in EACH_SCENE])
def test_rule_01_a_script_loses_and_doubles_nothing_while_its_slot_moves(
    desk: ClusterDesk, script: str, scene: Callable[[ClusterDesk], Operation], order: str
) -> None:
    """The call is sent at every stage of the move: in the orders with a name until it is answered, in those of a seed all the
    way, as late copies of it would be."""
    copies = "seed" in order
    operation = scene(desk)
    call = desk.call(operation)
    assert call.script is not None and call.script.name == script
    before = desk.where()
    move = desk.cluster.begin_move(desk.slot, (desk.cluster.owner_of(desk.slot) + 1) % 3)
    answers: list[Any] = []

    def attempt() -> None:
        with contextlib.suppress(NotNow):
            answers.append(desk.router.run(call))

    there = move.keys_left()
    keys, first_send = ORDERS[order]([key.decode() for key in there], call)
    for moved in range(len(keys) + 1):
        if moved >= first_send and (not answers or copies):
            attempt()
        move.move_keys(key.encode() for key in keys[moved : moved + 1])
    move.finish()
    desk.look_again()
    if not answers or copies:
        attempt()
    assert answers

    places = desk.where()
    jobs = set(before) | created_by(operation)
    assert {job: at for job in jobs if len(at := places.get(job, set())) != 1} == {}, desk.router.met
    by_hand = ended_by_hand(operation, places)
    accepted = Counter(accepted_by(operation, answers[-1]))
    accepted.update(drain(desk))
    check_ended(desk, {job for job in jobs - by_hand if before.get(job) != {"ended"}}, accepted)
    assert not by_hand & set(accepted) and (by_hand or getattr(operation, "action", "") not in ("cancel", "discard"))


# -- all of it at once


class Mix:
    """A producer, two workers and a sweeper, each with one call outstanding that it sends again until it is answered; all that
    they do comes from one seed."""

    def __init__(self, desk: ClusterDesk, seed: int) -> None:
        self.desk = desk
        self.dice = random.Random(seed)
        self.created: dict[str, bool] = {}
        self.accepted: Counter[str] = Counter()
        self.outstanding: dict[str, Call[Any]] = {}
        self.leases: dict[str, tuple[Lease, ...]] = {"a": (), "b": ()}
        self.sent: list[Call[Any]] = []

    def stage(self) -> None:
        """Let time pass, and each of them send once; now and then a late copy of any call arrives as well."""
        desk, dice = self.desk, self.dice
        desk.tick(dice.choice((0, 1, 50, LEASE_MS // 6)))
        for client in dice.sample(("producer", "a", "b", "sweeper"), 4):
            if client not in self.outstanding:
                self.outstanding[client] = desk.call(self._next(client))
                self.sent.append(self.outstanding[client])
            with contextlib.suppress(NotNow):
                self._answered(client, desk.send(self.outstanding[client]))
        if dice.random() < 0.3:
            with contextlib.suppress(NotNow):
                desk.send(dice.choice(self.sent))

    def settle(self) -> None:
        """Send what is outstanding until it is answered."""
        for client, call in list(self.outstanding.items()):
            self._answered(client, self.desk.send(call))

    def _next(self, client: str) -> Operation:
        desk, dice = self.desk, self.dice
        if client == "producer":
            options: dict[str, Any] = {"delay_ms": dice.choice((0, 0, 20)), "key": dice.choice(("", "acme", "other"))}
            names = [f"j{len(self.created) + count}" for count in range(dice.randrange(1, 4))]
            jobs = [desk.enqueue_operation(name, **options) for name in names]
            return EnqueueMany(tuple(jobs)) if len(jobs) > 1 else jobs[0]
        if client == "sweeper":
            return dice.choice((desk.sweep_operation, desk.sweep_operation))()
        leases = self.leases[client]
        if not leases:
            return desk.claim_operation(client, limit=3)
        failures = tuple(Failure(lease, "boom", 100) for lease in leases)
        kinds = (Finish(leases), Release(leases), Retry(failures), Bury(failures[:1]), desk.extend_operation(*leases))
        return dice.choice((*kinds, Finish(leases, desk.claim_operation(client, limit=3))))

    def _answered(self, client: str, reply: Any) -> None:
        operation = self.outstanding.pop(client).operation
        if client == "producer":
            # Time runs on while a call waits for the move: it may be refused in the end (rule 3), and then no job is there.
            self.created.update({each.job: each.created for each in getattr(reply, "items", (reply,))})
        self.accepted.update(accepted_by(operation, reply))
        if client in self.leases and not isinstance(operation, Extend):
            claimed = getattr(reply, "claimed", reply)
            self.leases[client] = tuple(job.lease for job in getattr(claimed, "jobs", ()))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_rule_01_many_calls_and_late_copies_lose_and_double_nothing_while_the_slot_moves(desk: ClusterDesk, seed: int) -> None:
    busy(desk)
    there = set(desk.where()) - {"finished"}
    mix = Mix(desk, seed)
    for _ in range(2):
        for _ in range(10):
            mix.stage()
        move = desk.cluster.begin_move(desk.slot, (desk.cluster.owner_of(desk.slot) + 1) % 3)
        mix.stage()
        while keys := sorted(move.keys_left()):
            # Indexes first in every other seed: what points to jobs is then ahead of the jobs.
            indexes = [key for key in keys if kind_of(key.decode()) == "index"]
            move.move_keys([mix.dice.choice(indexes if indexes and seed % 2 else keys)])
            mix.stage()
        move.finish()
        desk.look_again()
    mix.settle()
    mix.accepted.update(drain(desk))
    assert sum(mix.created.values()) > 10
    refused = {job for job, created in mix.created.items() if not created}
    assert refused & set(desk.where()) == set()
    check_ended(desk, there | set(mix.created) - refused, mix.accepted)
