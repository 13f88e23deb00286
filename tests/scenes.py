"""The prepared call of each script, written once: what a queue holds, and the call that comes.

Every property of a call is a test over these scenes: cut off after any write, sent twice, late, in a full memory, on a slot that
moves. A script of Lanes without a scene fails `test_every_script_has_a_scene`. Scenes in the worlds `nothing` and `simple` are
played on foreign formats, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from engine.ops import admin, workers
from engine.ops.claims import Bury, Drop, Failure, Finish, Mark, ReadWorkerUpdates, ReapLost, Release, Retry, Value
from engine.ops.looks import Count, Explain, Inspect, ListHistory, Listing, ListObstacles, Look, NoteProgress, Page, Relatives
from engine.ops.schedules import EnableSchedule, ListSchedules, PutSchedule, RemoveSchedule, Tick, TickPolicy, Timing
from tests.engine.desk import LEASE_MS, START_MS, Desk
from tests.engine.helpers.by_hand import alter, bury, clean, forget, revive, set_events, set_history, set_retention
from tests.engine.ops import CloseWindows, EnqueueMany, Lease, Operation

#: What worker `a` (in some worlds `b`) has in hand, by job.
Held = dict[str, Lease]
World = Callable[[Desk], Held]
Make = Callable[[Desk, Held], Operation]

#: Every class of the jobs of any scene.
CLASSES = ("main", "sms", "push", "main@gpu", "push@gpu", "main@gpu1", "main@gpu2")
#: The children of all scenes and whom each needs.
PARENTS = {"c1": {"p1", "p2"}, "c2": {"p1", "p2"}, "c3": {"p2"}, "g1": {"c1", "p2"}, "child": {"p"}}

OWNER = "f" * 16
RESULT_MS = 5_000


class Scene(NamedTuple):
    """A call that comes to a queue in some state. The name begins with the script's."""

    name: str
    world: World
    make: Make
    #: Jobs that are dead when the call was carried out and all others have run.
    dead: frozenset[str] = frozenset()
    #: Jobs that the call ends without a run.
    gone: frozenset[str] = frozenset()
    #: Jobs that the call makes run again, or now.
    runs: frozenset[str] = frozenset()
    #: False where the call changes no key: it only looks, or is a copy.
    writes: bool = True

    @property
    def script(self) -> str:
        return self.name.split(":")[0]

    @property
    def id(self) -> str:
        return f"{self.name} ({self.world.__name__})"

    def begin(self, desk: Desk) -> Operation:
        """Prepare the queue, which is empty; the operation."""
        return self.make(desk, self.world(desk))


# -- worlds


def nothing(desk: Desk) -> Held:
    return {}


def held_by(desk: Desk, worker: str = "a", limit: int = 20, classes: tuple[str, ...] = ("main",)) -> Held:
    return {job.lease.job: job.lease for job in desk.claim(worker, limit, classes=classes)}


def simple(desk: Desk) -> Held:
    """A job in each state, and two or three where a script takes several; `soon` is due."""
    ends = held_by(desk.enqueue("finished", "buried"), "b")
    desk.finished(ends["finished"]).run(Bury((Failure(ends["buried"], "no"),)))
    held = held_by(desk.enqueue("leased1", "leased2", "leased3"))
    desk.enqueue("waits1", "waits2").enqueue("soon", delay_ms=50).enqueue("later", delay_ms=5_000).tick(2_000)
    return held


def limited(desk: Desk) -> Held:
    """Limits of every kind, lanes that wait and lanes that rest, and what a worker has in hand."""
    desk.set_limit("n:main", concurrency=3).set_limit("n:sms", rate=3, per_ms=1000)
    desk.set_limit("n:push", rate=3, per_ms=1000).set_limit("k:*", concurrency=1)
    desk.set_limit("k:r", rate=1, per_ms=1000, window="fixed")
    desk.set_limit("k:both", concurrency=1, rate=2, per_ms=1000).enqueue("m0", "m1", key="k", priority=9)
    desk.enqueue("b0", key="both", unique="ub", attempts=1).enqueue("b1", key="both", unique="uw")
    desk.enqueue("s0", "s1", name="sms", key="k").enqueue("s2", "s3", name="sms")
    desk.enqueue("r0", "r1", name="push", key="r").enqueue("p0", name="push", key="p", unique="up")
    desk.enqueue("p1", name="push", dedup="dp", dedup_ms=2000)
    held = held_by(desk.enqueue("late", key="k", delay_ms=400, unique="ul"), classes=CLASSES)
    assert set(held) == {"m0", "b0", "s2", "s3", "r0", "p0", "p1"}
    parked: Any = desk.redis.hgetall(desk.keys.parked)
    assert parked == {b"main/k": b"k:k", b"main/both": b"k:both", b"sms/k": b"k:k", b"push/r": b"rest"}
    return held


def busy(desk: Desk) -> Held:
    """Every key that any script declares: jobs in every state, limits with leases and lanes that wait, pauses, a marker, records
    of worker `a` and of the sweeper. A script runs on a half-moved slot only when all its declared keys are at one node. Of `key`
    acme, `limited2` waits for `limited1`, which `a` holds."""
    desk.set_limit("k:acme", concurrency=1, rate=1000, per_ms=1000)
    desk.set_limit("n:main", concurrency=1000, rate=1000, per_ms=1000).run(schedule(desk, "hourly"))
    desk.pause("other").pause("another", 600_000).run(set_retention(desk, done_max=1000))
    desk.did(set_events(desk, 1000)).run(set_history(desk, 1000, payload_bytes=100))
    ends = held_by(desk.enqueue("finished", "buried"), "b")
    desk.finished(ends["finished"]).run(Bury((Failure(ends["buried"], "no"),)))
    desk.enqueue("promoted", delay_ms=10).tick(20).swept().enqueue("leased1", "leased2", priority=9)
    held = held_by(desk.enqueue("limited1", "limited2", priority=8, key="acme"), limit=3)
    assert set(held) == {"leased1", "leased2", "limited1"}
    desk.enqueue("soon", delay_ms=30).enqueue("later", delay_ms=5_000).enqueue("waits1", "waits2")
    desk.enqueue("waits3", key="other").tick(40)
    return held


def relatives(desk: Desk) -> Held:
    """Busy, with a parent in the hand of `b`, three children that wait for it, one of them for another too, and a burial that is
    still to be told."""
    busy(desk)
    desk.enqueue("parent1", "parent2", "parent3", priority=10).enqueue("child1", "child2", needs=("parent1",))
    desk.enqueue("child3", needs=("parent1", "parent2")).enqueue("child4", needs=("parent3",))
    held = held_by(desk, "b", 3)
    desk.did(Release((held["parent2"],))).run(Bury((Failure(held["parent3"], "no"),)))
    return {"parent1": held["parent1"]}


def parents(desk: Desk) -> Held:
    """Two parents in hand, and who needs both, one of them late."""
    desk.enqueue("p1", "p2").enqueue("c1", "c2", needs=("p1", "p2"))
    return held_by(desk.enqueue("c3", needs=("p2",), delay_ms=1500))


def generations(desk: Desk) -> Held:
    """A parent in hand; its child has a child, and another one goes on without it."""
    desk.enqueue("p1", "p2").enqueue("c1", needs=("p1", "p2")).enqueue("g1", needs=("c1", "p2"))
    return held_by(desk.enqueue("c3", needs=("p1",), on_parent_failure="ignore"), limit=1)


def kept(desk: Desk) -> Held:
    """A parent in hand, whose result is kept for its child."""
    return held_by(desk.enqueue("p").enqueue("child", needs=("p",), on_parent_failure="ignore"))


# -- what several scenes begin with


def failures(leases: Iterable[Lease], delay_ms: int = 0) -> tuple[Failure, ...]:
    return tuple(Failure(lease, "boom", delay_ms) for lease in leases)


def named(held: Held, *jobs: str) -> list[Lease]:
    return [held[job] for job in jobs]


def ending(lease: Lease) -> Finish:
    """A finish with a result that lives for five seconds."""
    return Finish((lease,), values=(Value(0, b"1", RESULT_MS, 3),))


def expire(desk: Desk) -> Desk:
    """Let time pass while somebody sweeps, until every lease is about to be reaped by the next sweep."""
    return desk.past(int(desk.redis.zrange(desk.keys.active, -1, -1, withscores=True)[0][1]) - desk.now_ms).tick(1)


def deaths(desk: Desk, held: Held) -> Desk:
    return desk.did(Bury(failures(named(held, "m0", "b0", "p0"))))


def corrupt(desk: Desk, *jobs: str) -> None:
    for job in jobs:
        desk.redis.setrange(desk.keys.job(job), 0, b"\xff")


def schedule(desk: Desk, name: str, **timing: Any) -> PutSchedule:
    """A schedule that is due in 20 ms."""
    job, due_ms = desk.enqueue_operation("template"), desk.now_ms + 20
    hourly = Timing(every_ms=3_600_000, **timing)
    return PutSchedule(name, hourly, TickPolicy(), job, due_ms, due_ms, None, **desk.identity())


def lock(desk: Desk, held: Held) -> workers.AcquireLock:
    return workers.AcquireLock("nightly", OWNER, 5_000, not_after_ms=desk.now_ms + 10_000)


def an_extension_of_a_lock(desk: Desk, held: Held) -> Operation:
    desk.run(lock(desk, held))
    return workers.ExtendLock("nightly", OWNER, 1, 60_000, not_after_ms=desk.now_ms + 10_000)


def a_release_of_a_lock(desk: Desk, held: Held) -> Operation:
    desk.run(lock(desk, held))
    return workers.ReleaseLock("nightly", OWNER)


# -- calls that need more than a line


def a_claim_of_what_came_back(desk: Desk, held: Held) -> Operation:
    """Freed slots, a window that is over, a job that is due; and it parks again."""
    return desk.finished(*named(held, "m0", "s2", "s3", "p1")).tick(1000).claim_operation("b", 20, classes=CLASSES)


def a_claim_of_corrupt_jobs(desk: Desk, held: Held) -> Operation:
    corrupt(desk.finished(held["m0"]), "m1")
    desk.redis.delete(desk.keys.job("s0"))
    return desk.claim_operation("b", 20, classes=CLASSES)


def a_claim_of_classes_with_one_name(desk: Desk, held: Held) -> Operation:
    desk.enqueue("g0", "g1", "g2", route="gpu").enqueue("g3", name="push", route="gpu", key="r")
    return desk.finished(*named(held, "m0", "b0")).claim_operation("b", 20, classes=CLASSES)


def a_claim_under_a_limit(desk: Desk, held: Held) -> Operation:
    return desk.set_limit("n:main", concurrency=2, rate=100, per_ms=1000).enqueue("j1", "j2", "j3").claim_operation()


def a_claim_of_what_nobody_can_read(desk: Desk, held: Held) -> Operation:
    corrupt(desk.enqueue("j1", "j2").enqueue("j3", delay_ms=50), "j1", "j3")
    return desk.tick(100).claim_operation()


def finish_and_claim(desk: Desk, held: Held, worker: str = "a", **more: Any) -> Operation:
    return Finish(tuple(held.values()), desk.claim_operation(worker, **more))


def a_finish_and_claim_under_limits(desk: Desk, held: Held) -> Operation:
    return finish_and_claim(desk.tick(450), held, limit=20, classes=CLASSES)


def a_finish_that_somebody_waits_for(desk: Desk, held: Held) -> Operation:
    desk.run(Look(next(iter(held.values())).job, OWNER))
    return Finish(tuple(held.values()), None, (Value(0, b"7", 60_000, 5),))


def a_last_attempt(desk: Desk, held: Held) -> Operation:
    return Retry(failures(held_by(desk.enqueue("j1", attempts=1)).values()))


def an_enqueue_that_takes_a_key_over(desk: Desk, held: Held) -> Operation:
    """The holder of the unique key is not in KEYS: it has ended."""
    desk.enqueue("holder", unique="u", priority=10).finish(*held_by(desk, "b", 1).values())
    desk.redis.set(desk.keys.unique("u"), "holder")
    return desk.enqueue_operation("new", unique="u")


def an_enqueue_of_a_child(desk: Desk, held: Held) -> Operation:
    return desk.enqueue("p1", "p2").enqueue_operation("c1", needs=("p1", "p2"), unique="u", dedup="d", dedup_ms=1000)


def an_enqueue_of_a_child_of_a_dead_parent(desk: Desk, held: Held) -> Operation:
    desk.enqueue("p1", "p2").run(Bury(failures(held_by(desk, limit=1).values())))
    return desk.enqueue_operation("c1", needs=("p1", "p2"))


def an_enqueue_of_a_child_of_four(desk: Desk, held: Held) -> Operation:
    desk.enqueue("parent4", needs=("parent1",))
    return desk.enqueue_operation("new", needs=("parent1", "parent2", "parent4", "finished"))


def an_enqueue_after_a_parent(desk: Desk, held: Held) -> Operation:
    return desk.enqueue("p").did(ending(held_by(desk)["p"])).enqueue_operation("child", needs=("p",))


def a_bulk(desk: Desk, held: Held) -> Operation:
    job = desk.enqueue_operation
    first = job("new1", key="k", unique="un"), job("new2", name="push", key="z", dedup="dz", dedup_ms=1000)
    more = job("new3", name="sms", key="r", delay_ms=200), job("new4", unique="up"), job("new5", name="push", unique="un")
    return EnqueueMany(first + more)


def a_bulk_of_new_classes(desk: Desk, held: Held) -> Operation:
    job = desk.enqueue_operation
    late = job("new2", name="push", route="gpu", delay_ms=200)
    return EnqueueMany((job("new1", route="gpu"), late, job("new3", route="gpu", key="k")))


def a_bulk_of_routes(desk: Desk, held: Held) -> Operation:
    return EnqueueMany(tuple(desk.enqueue_operation(f"new{at}", route=f"gpu{at}") for at in (1, 2)))


def a_close(desk: Desk, held: Held) -> Operation:
    desk.enqueue("w1", dedup="outbox:w1", dedup_ms=60_000).enqueue("w2", dedup="other", dedup_ms=60_000)
    return CloseWindows((("outbox:w1", "w1"), ("other", "w2")))


def a_reap(desk: Desk, held: Held, sweeper: str = "s") -> Operation:
    return expire(desk).sweep_operation(sweeper)


def a_reap_after_a_step_back(desk: Desk, held: Held) -> Operation:
    return desk.enqueue("j1", "j2", "j3").held().swept().tick(-900_000).sweep_operation()


def a_reap_after_a_step_back_in_a_pause(desk: Desk, held: Held) -> Operation:
    return desk.tick(400).swept().pause("push", 3000).swept().tick(-1_000_000).sweep_operation()


def a_reap_after_crashes(desk: Desk, held: Held) -> Operation:
    again = held_by(expire(desk).swept(), "b")
    for job in ("leased1", "leased2"):
        assert desk.mark(again[job]) == "ok"
    return expire(desk).sweep_operation()


def a_reap_of_what_kills_its_workers(desk: Desk, held: Held) -> Operation:
    """One is buried, one cannot be read, one waits again."""
    assert desk.enqueue("j1", "j2", crashes_max=2).crash_all("j1", "j2").mark(held_by(desk)["j1"]) == "ok"
    corrupt(desk, "j2")
    return expire(desk.enqueue("j3").held("b")).sweep_operation()


def a_mark_of_what_has_crashed(desk: Desk, held: Held) -> Operation:
    return Mark(held_by(desk.enqueue("j1", "j2", crashes_max=2).crash_all("j1", "j2"))["j1"])


def a_promotion_of_a_corrupt_job(desk: Desk, held: Held) -> Operation:
    corrupt(desk.enqueue("j1", "j2", "j3", delay_ms=50), "j2")
    return desk.tick(100).sweep_operation()


def a_promotion_of_children(desk: Desk, held: Held) -> Operation:
    """As a finish that was cut off leaves them: ended, and nobody told."""
    desk.redis.rename(desk.keys.feeding, "{desk}kept")
    desk.finished(*held.values()).redis.rename("{desk}kept", desk.keys.feeding)
    return desk.sweep_operation()


def a_sweep_after_two_finishes(desk: Desk, held: Held) -> Operation:
    """As they are left by a finish that was cut off before it told anybody."""
    desk.redis.zadd(desk.keys.handing, {"+p1": START_MS, "+p2": START_MS})
    desk.redis.srem(desk.keys.feeding, *held)
    desk.finished(*held.values()).redis.sadd(desk.keys.feeding, *held)
    return desk.sweep_operation()


def a_sweep_after_a_burial(desk: Desk, held: Held) -> Operation:
    return desk.did(Bury(failures(held.values()))).sweep_operation()


def a_sweep_after_the_child(desk: Desk, held: Held) -> Operation:
    return desk.did(ending(held["p"])).finished(*held_by(desk).values()).sweep_operation()


def a_sweep_over_the_bounds(desk: Desk, held: Held) -> Operation:
    return deaths(desk, held).did(set_retention(desk, dead_max=1)).sweep_operation()


def a_look_for_orphans(desk: Desk, held: Held) -> Operation:
    """The leases of `a`, which stopped beating before they ran out."""
    desk.beat("a", ttl_ms=3_000)
    for _ in range(4):
        desk.tick(1_000).beat("b", ttl_ms=3_000)
    return desk.orphans_operation()


def a_reap_of_the_lost(desk: Desk, held: Held) -> Operation:
    """The leases of `a`, whose control connection is gone."""
    counter = desk.did(replace(desk.beat_operation("a"), connection="7 run")).sweep_operation().counter
    return ReapLost("s" * 16, counter, 100, desk.now_ms + 500, (workers.Connected("a" * 16, 7),), "run")


def a_tick(desk: Desk, held: Held) -> Operation:
    """Of two ticks of this call one has made its job before: a copy of the call was cut off."""
    due_ms = int(desk.redis.zscore(desk.keys.cron, "hourly") or 0)
    desk.enqueue(f"cron:hourly:{due_ms}")
    return Tick("a" * 16, 1, "hourly", "1", due_ms, (due_ms, due_ms + 1), due_ms + 3_600_000, 0, "allow")


def a_second_report(desk: Desk, held: Held) -> Operation:
    """One name has times already, the other one is new; so is the hash of the names that have no room."""
    desk.did(desk.took_operation(workers.RunTimes("*", "ok", 1, 1, ((3, 1),)))).run(desk.took_operation())
    return desk.took_operation(
        workers.RunTimes("main", "ok", 7, 7, ((45, 1),)), workers.RunTimes("new", "failed", 7, 7, ((45, 1),))
    )


def a_list_of_run_times(desk: Desk, held: Held) -> Operation:
    desk.run(a_second_report(desk, held))
    return workers.ListRunTimes(0, 100)


def a_drop_of_two(desk: Desk, held: Held) -> Operation:
    """A job that others wait for among them."""
    return Drop((held["parent1"], *held_by(desk, "c", 1).values()), ("skipped", "discarded"))


def news_of_a_class(desk: Desk, held: Held) -> Operation:
    desk.enqueue("new", route="gpu")
    return ReadWorkerUpdates(0, "a")


def obstacles(desk: Desk, held: Held) -> Operation:
    """With a limit that is full and a lane that waits for it."""
    desk.set_limit("k:*", concurrency=1).enqueue("tenant1", "tenant2", key="acme").held("w", 1).pause("other", 60_000)
    return ListObstacles()


def a_revival_of_generations(desk: Desk, held: Held) -> Operation:
    """A child and its child, which wait for each other, and a job that is not dead."""
    desk.did(Bury(failures(held.values()))).swept().swept().run(alter(desk, "requeue", "dead", "p1"))
    return revive(desk, "c1", "g1", "p2")


def a_revival_of_what_need_not_wait(desk: Desk, held: Held) -> Operation:
    """The parent has finished since, and left a result. Somebody sweeps once more, for `late`."""
    desk.enqueue("strict", needs=("p",), unique="u").enqueue("late", delay_ms=5_000)
    desk.did(Bury(failures(held.values()))).swept().run(alter(desk, "requeue", "dead", "p"))
    return revive(desk.did(ending(held_by(desk, "b", 1)["p"])), "strict")


def a_revival_of_one(desk: Desk, held: Held) -> Operation:
    return revive(desk.swept().did(alter(desk, "requeue", "dead", "parent3")), "child4")


def a_second_era(desk: Desk, held: Held) -> Operation:
    desk.run(admin.NoteEra("first", "", "", 0))
    return admin.NoteEra("second", "first", "", 2, (("a" * 16, 1, True),))


def an_end_of_a_restore(desk: Desk, held: Held) -> Operation:
    """All is loaded; three jobs were leased."""
    keys, client = desk.keys, desk.redis
    values, sequence = [client.dump(key) for key in (keys.sweep, keys.seq)], int(client.get(keys.seq))
    client.delete(keys.seq)
    client.rpush(keys.seq, "restore backup owner", 0)
    client.set(keys.sweep, "restore")
    client.rpush(keys.era, "first 0 1")
    return admin.EndRestore("backup", "owner", "second", 100, sequence, *values)


# -- what is done by hand


def with_deaths(make: Callable[[Desk], Operation]) -> Make:
    return lambda desk, held: make(deaths(desk, held).tick(5))


def again(job: str, **options: Any) -> Make:
    """This job comes in with these options."""
    return lambda desk, held: desk.enqueue_operation(job, **options)


def new(**options: Any) -> Make:
    return again("new", **options)


def many(*jobs: str, delays_ms: tuple[int, ...] = ()) -> Make:
    """These come in, in one piece."""
    return lambda desk, held: desk.enqueue_many_operation(*jobs, delays_ms=delays_ms)


def done(action: admin.AdminAction, state: str, *jobs: str) -> Make:
    """This is done to jobs that were seen in this state."""
    return lambda desk, held: alter(desk, action, state, *jobs)


def done_to_the_dead(action: admin.AdminAction, *jobs: str) -> Make:
    return with_deaths(lambda desk: alter(desk, action, "dead", *jobs))


def a_cancel_of_a_child(desk: Desk, held: Held) -> Operation:
    return alter(desk.enqueue("p", delay_ms=100).enqueue("j", unique="u", needs=("p",)), "cancel", "blocked", "j")


def a_cancel_of_a_delayed_retry(desk: Desk, held: Held) -> Operation:
    return alter(desk.enqueue("j", unique="u").retried(held_by(desk)["j"], 5_000), "cancel", "delayed", "j")


def a_cancel_of_a_job_that_crashed(desk: Desk, held: Held) -> Operation:
    desk.enqueue("j", unique="u").crash("j")
    return alter(desk, "cancel", "waiting", "j")


def a_discard_of_one_that_has_its_key_again(desk: Desk, held: Held) -> Operation:
    """By a requeue that was cut off."""
    bury(desk.enqueue("j", unique="u"), "j")
    desk.redis.set(desk.keys.unique("u"), "j")
    return alter(desk, "discard", "dead", "j")


# -- the table

SCENES: list[Scene] = []


def add(name: str, make: Make, *worlds: World, dead: str = "", gone: str = "", runs: str = "", writes: bool = True) -> None:
    """The same call in several worlds. Who is dead at the beginning is so in the end, unless the call says otherwise."""
    for world in worlds:
        always = "buried parent3 child4" if world is relatives else "buried" if world in (simple, busy) else ""
        stay = frozenset(f"{always} {dead}".split()) - {*gone.split(), *runs.split()}
        SCENES.append(Scene(name, world, make, stay, frozenset(gone.split()), frozenset(runs.split()), writes))


def add_twice(name: str, make: Make, *, gone: str = "", runs: str = "") -> None:
    """The call in the busy world, first and repeated: a copy may run on a half-moved slot, for the first one has left its key."""

    def repeated(desk: Desk, held: Held) -> Operation:
        operation = make(desk, held)
        desk.run(operation)
        return operation

    add(name, make, busy, gone=gone, runs=runs)
    add(f"{name}, repeated" if ":" in name else f"{name}: repeated", repeated, busy, gone=gone, runs=runs, writes=False)


add("enqueue", new(), nothing, busy)
add("enqueue: delayed", new(delay_ms=500), nothing, simple)
add("enqueue: with all keys", new(key="k", priority=10, unique="un", dedup="dn", dedup_ms=1000), limited)
add("enqueue: turned away", new(unique="up"), limited)
add("enqueue: of a new class", new(key="k", route="gpu"), limited)
add("enqueue: routed", new(route="gpu"), busy)
add("enqueue: takes a key over", an_enqueue_that_takes_a_key_over, busy)
add("enqueue: repeated", lambda desk, held: desk.enqueue_operation("leased1"), busy, writes=False)
add("enqueue: duplicate", again("leased1", nonce=b"another-"), busy, writes=False)
add("enqueue: a child", an_enqueue_of_a_child, nothing)
add("enqueue: a child of a dead parent", an_enqueue_of_a_child_of_a_dead_parent, nothing, dead="p1 c1")
add("enqueue: a child of four", an_enqueue_of_a_child_of_four, relatives)
add("enqueue: a duplicate child", again("leased1", nonce=b"another-", needs=("parent1",)), relatives, writes=False)
add("enqueue: after a parent", an_enqueue_after_a_parent, nothing)

add("enqueue_many", many("new1", "new2", "new3", delays_ms=(500,)), busy)
add("enqueue_many: two delayed", many("j1", "j2", "j3", delays_ms=(500, 700)), nothing)
add("enqueue_many: all delayed", many("j1", "j2", "j3", delays_ms=(500, 400, 600)), nothing)
add("enqueue_many: with keys", a_bulk, limited)
add("enqueue_many: of new classes", a_bulk_of_new_classes, limited)
add("enqueue_many: repeated", many("leased1", "leased2", "waits1"), busy, writes=False)
add("enqueue_many: routed", a_bulk_of_routes, busy)
add_twice("close_windows", a_close)

add("claim", lambda desk, held: desk.claim_operation("a"), simple, busy)
add("claim: one", lambda desk, held: desk.claim_operation("a", limit=1), busy)
add("claim: by a new worker", lambda desk, held: desk.claim_operation("n"), busy)
add("claim: under a limit", a_claim_under_a_limit, nothing)
add("claim: what came back", a_claim_of_what_came_back, limited)
add("claim: corrupt jobs", a_claim_of_corrupt_jobs, limited, dead="m1")
add("claim: what nobody can read", a_claim_of_what_nobody_can_read, nothing, dead="j1 j3")
add("claim: classes with one name", a_claim_of_classes_with_one_name, limited)
add("claim: and finish", finish_and_claim, simple, busy, parents)
add("claim: and finish under limits", a_finish_and_claim_under_limits, limited)
add("claim: and finish a parent", lambda desk, held: finish_and_claim(desk, held, "b", limit=2), relatives)

add("finish", lambda desk, held: Finish(tuple(held.values())), simple, limited, busy, relatives, parents)
add("finish: a token twice", lambda desk, held: Finish((*held.values(), next(iter(held.values())))), busy)
add("finish: with a value", a_finish_that_somebody_waits_for, busy)
add("finish: a parent with a result", lambda desk, held: ending(held["p"]), kept)
add("release", lambda desk, held: Release(tuple(held.values())), simple, limited, busy)
add("retry", lambda desk, held: Retry(failures(held.values(), 200)), simple, busy)
add("retry: under limits", lambda desk, held: Retry(failures(held.values(), 300)), limited, dead="b0")
add("retry: at once", lambda desk, held: Retry(failures(held.values())), simple)
add("retry: the last attempt", a_last_attempt, nothing, dead="j1")
add("bury", lambda desk, held: Bury(failures(held.values())), simple, dead="leased1 leased2 leased3")
add("bury: under limits", lambda desk, held: Bury(failures(named(held, "m0", "b0", "p0"))), limited, dead="m0 b0 p0")
add("bury: what is busy", lambda desk, held: Bury(failures(held.values())), busy, dead="leased1 leased2 limited1")
add("bury: a parent", lambda desk, held: Bury(failures(held.values())), relatives, dead="parent1 child1 child2 child3")
add("bury: a grandparent", lambda desk, held: Bury(failures(held.values())), generations, dead="p1 c1 g1")
add("bury: a parent with an error", lambda desk, held: Bury(failures(held.values())), kept, dead="p")
add("drop", lambda desk, held: Drop(tuple(held.values()), ("discarded",) * len(held)), simple, limited)
add("drop: two", a_drop_of_two, relatives, dead="child1 child2 child3")
add("extend", lambda desk, held: desk.extend_operation(*held.values()), simple, busy)
add("extend: under limits", lambda desk, held: desk.tick(2000).extend_operation(*held.values()), limited)
add("mark: what has crashed", a_mark_of_what_has_crashed, nothing, dead="j1")
add("mark", lambda desk, held: Mark(next(iter(held.values()))), simple, busy)
add("progress", lambda desk, held: NoteProgress(next(iter(held.values())), 1, b'"percent":5}'), busy)

add("sweep: what is in time", lambda desk, held: desk.sweep_operation(), parents)
add("sweep: what is due", lambda desk, held: desk.sweep_operation(), simple, busy)
add("sweep: what is due under limits", lambda desk, held: desk.tick(1000).sweep_operation(), limited)
add("sweep: what is due and corrupt", a_promotion_of_a_corrupt_job, nothing, dead="j2")
add("sweep: children", a_promotion_of_children, relatives)
add("sweep: children of two", a_sweep_after_two_finishes, parents)
add("sweep: children of a dead one", a_sweep_after_a_burial, generations, dead="p1 c1 g1")
add("sweep: what was kept for a child", a_sweep_after_the_child, kept)
# Nobody has swept before.
add("sweep: for the first time", lambda desk, held: desk.tick(LEASE_MS + 1).sweep_operation(), simple)
add("sweep: what has expired", a_reap, simple, limited, busy)
add("sweep: what has expired, by another", lambda desk, held: a_reap(desk, held, "n"), busy)
add("sweep: after a step back", a_reap_after_a_step_back, nothing)
add("sweep: after a step back in a pause", a_reap_after_a_step_back_in_a_pause, limited)
add("sweep: what has crashed", a_reap_after_crashes, simple)
add("sweep: what kills its workers", a_reap_of_what_kills_its_workers, nothing, dead="j1 j2")
add("sweep: over the bounds", a_sweep_over_the_bounds, limited, dead="p0", gone="m0 b0")
add("orphans", a_look_for_orphans, simple, busy)
add("reap_lost", a_reap_of_the_lost, busy)

add("discard: what runs", done("cancel", "active", "leased1", "waits1"), simple, gone="leased1")
add("discard: what waits", done("cancel", "waiting", "waits1", "leased1"), simple, gone="waits1")
add("discard: what is delayed", done("cancel", "delayed", "later", "waits1"), simple, gone="later")
add("discard: what is dead", done("discard", "dead", "buried", "waits1"), simple, busy, gone="buried")
add("discard: removed when dead", done("remove", "dead", "buried"), simple, gone="buried")
add_twice("discard", done("cancel", "active", "leased1", "limited1", "waits1"), gone="leased1 limited1")
add("discard: what runs under limits", done("cancel", "active", "m0", "b0", "p0", "s0"), limited, gone="m0 b0 p0")
add("discard: what waits under limits", done("cancel", "waiting", "m1", "s1", "b1", "m0"), limited, gone="m1 s1 b1")
add("discard: what is delayed under limits", done("cancel", "delayed", "late"), limited, gone="late")
add("discard: what has died under limits", done_to_the_dead("discard", "m0", "p0", "s0"), limited, dead="b0", gone="m0 p0")
add("discard: a child", a_cancel_of_a_child, nothing, gone="j")
add("discard: a delayed retry", a_cancel_of_a_delayed_retry, nothing, gone="j")
add("discard: what has crashed", a_cancel_of_a_job_that_crashed, nothing, gone="j")
add("discard: a dead one with its key", a_discard_of_one_that_has_its_key_again, nothing, gone="j")
add("requeue", done("requeue", "dead", "buried", "waits1"), simple, runs="buried")
add("revive", a_revival_of_generations, generations, runs="c1 g1")
add("revive: without a wait", a_revival_of_what_need_not_wait, kept, runs="strict")
add("revive: one", a_revival_of_one, relatives, runs="child4")
add_twice("requeue", done("requeue", "dead", "buried", "waits1"), runs="buried")
add("requeue: under limits", done_to_the_dead("requeue", "m0", "b0", "p0", "s0"), limited, runs="m0 b0 p0")
add("run_now", done("run_now", "delayed", "later", "waits1"), simple, runs="later")
add_twice("run_now", done("run_now", "delayed", "later", "waits1"), runs="later")
add("run_now: under limits", done("run_now", "delayed", "late", "m0"), limited, runs="late")
add_twice("clean", lambda desk, held: clean(desk, "waiting"), gone="waits1 waits2 waits3 limited2 promoted")
add("clean: what waits", lambda desk, held: clean(desk, "waiting"), limited, gone="m1 b1 s0 s1 r1")
add("clean: what is delayed", lambda desk, held: clean(desk, "delayed"), limited, gone="late")
add("clean: the dead", with_deaths(lambda desk: clean(desk, "dead")), limited, gone="m0 b0 p0")
add("clean: what runs", lambda desk, held: clean(desk, "active"), limited, gone="m0 b0 s2 s3 r0 p0 p1")
add("forget", lambda desk, held: forget(desk, force=True), limited, busy)
add_twice("forget: the end", lambda desk, held: forget(desk, force=True, end=True))

add_twice("pause", lambda desk, held: desk.pause_operation("main", 5_000))
add("pause: under limits", lambda desk, held: desk.pause_operation("main", 2000), limited)
add_twice("resume", lambda desk, held: desk.pause("main").resume_operation("main"))
add("resume: under limits", lambda desk, held: desk.pause("push").resume_operation("push"), limited)
# Lanes that wait for the limit come back.
add_twice("set_limit", lambda desk, held: desk.held("b", limit=100).set_limit_operation("k:acme"))
add("set_limit: raised", lambda desk, held: desk.set_limit_operation("k:*", concurrency=2), limited)
add("set_limit: a window removed", lambda desk, held: desk.set_limit_operation("k:r"), limited)
add_twice("set_worker", lambda desk, held: desk.set_worker_operation("p:a", 5_000))
add_twice("set_retention", lambda desk, held: set_retention(desk, dead_max=50))
add("set_retention: two bounds", lambda desk, held: set_retention(desk, dead_max=5, done_age_ms=100_000), limited)
add_twice("set_events", lambda desk, held: set_events(desk, 50))
add("set_events: on", lambda desk, held: set_events(desk, 100), limited)
add("set_events: off", lambda desk, held: set_events(desk.did(set_events(desk, 100)), 0), limited)
add_twice("set_history", lambda desk, held: set_history(desk, 50))
add("set_history: on", lambda desk, held: set_history(desk, 100), limited)
add("set_history: off", lambda desk, held: set_history(desk.did(set_history(desk, 100)), 0), limited)

add_twice("put_schedule", lambda desk, held: schedule(desk, "new"))
add("put_schedule: over another", lambda desk, held: schedule(desk, "hourly", start_ms=1), busy)
add("enable_schedule", lambda desk, held: EnableSchedule("hourly", 1, 0, **desk.identity()), busy)
add("remove_schedule", lambda desk, held: RemoveSchedule("hourly", **desk.identity()), busy)
add_twice("tick", a_tick)

add("beat", lambda desk, held: desk.beaten("a").beat_operation("a"), busy)
add("beat: the first", lambda desk, held: desk.beat_operation(), nothing)
add("beat: the last", lambda desk, held: replace(desk.beat_operation(), until_ms=0), nothing)
add("report_run_times", a_second_report, busy)
add("lock_acquire", lock, nothing, busy)
add("lock_extend", an_extension_of_a_lock, nothing, busy)
add("lock_release", a_release_of_a_lock, nothing, busy)
add("replication_probe", lambda desk, held: workers.ReplicationProbe(), nothing, busy)
add("note_era", a_second_era, busy)
add("restore_load", lambda desk, held: admin.LoadRestore("begin", "backup", "owner"), busy)
add("restore_end", an_end_of_a_restore, busy)
add("shard_record", lambda desk, held: admin.SetShards("", "a record", ""), busy)
add("shard_gate", lambda desk, held: admin.SetGate("", 500), busy)
# Jobs that are taken are in no state until they arrive elsewhere: tests/engine/test_resharding.py has those.
add("shard_take: looks", lambda desk, held: admin.TakeJobs(0, ""), busy, writes=False)
# The last batch of a shard brings its counters and no jobs.
add("shard_put: counters", lambda desk, held: admin.PutJobs("other", 1, (), finished=3), busy)
add("shard_drop: again", lambda desk, held: admin.DropTaken(1), busy, writes=False)
add("make_test_queue", lambda desk, held: admin.MakeTestQueue(), busy)

add("counts", lambda desk, held: Count(), busy, writes=False)
add("listing", lambda desk, held: Listing(0, 100), busy, writes=False)
add("inspect", lambda desk, held: Inspect(("leased1", "waits1", "later", "buried", "finished", "nobody")), busy, writes=False)
add("page", lambda desk, held: Page("waiting", 0, 100), busy, writes=False)
add("look", lambda desk, held: Look("leased1"), busy, writes=False)
add("look: and wait", lambda desk, held: Look("leased1", OWNER), busy)
add("schedules", lambda desk, held: ListSchedules(), busy, writes=False)
add("workers", lambda desk, held: (desk.beat("a"), workers.ListWorkers(0, 100))[1], busy, writes=False)
add("list_run_times", a_list_of_run_times, busy, writes=False)
add("list_history", lambda desk, held: ListHistory(0, 0, 2**52, 0, 100), busy, writes=False)
add("read_worker_updates", news_of_a_class, busy, writes=False)
add("obstacles", obstacles, busy, writes=False)
add("why", lambda desk, held: (obstacles(desk, held), Explain("tenant2"))[1], busy, writes=False)
add("relatives", lambda desk, held: Relatives(("parent1", "child3", "nobody"), ("", "", "")), relatives, writes=False)


def scene(name: str, world: World = nothing) -> Scene:
    (found,) = [scene for scene in SCENES if (scene.name, scene.world) == (name, world)]
    return found


#: Those that a slot may move under: they begin with every key that the script declares, or with none.
MOVING = [each for each in SCENES if each.world in (busy, relatives)] + [scene("enqueue")]

#: Those that foreign formats can hold, too.
PLAIN = [
    scene(name, world)
    for world, names in (
        (nothing, ("enqueue", "enqueue: delayed", "enqueue_many: two delayed", "claim: under a limit")),
        (nothing, ("retry: the last attempt", "sweep: after a step back")),
        (simple, ("claim", "claim: and finish", "finish", "release", "retry", "retry: at once", "bury", "drop", "extend")),
        (simple, ("sweep: what is due", "sweep: for the first time", "orphans", "requeue", "run_now")),
        (simple, ("discard: what runs", "discard: removed when dead")),
    )
    for name in names
]
