"""What must hold of every scene: a prepared call that is cut off, sent again or late, and workers that do the rest."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.ops import admin, looks, schedules
from tests.engine.using import LEASE_MS, Desk, Drop, Enqueue, EnqueueMany, Finish, Operation
from tests.scenes import CLASSES, PARENTS, SCENES, Scene

#: How a reply says that the call did it now; a repeat says the same with another word.
DONE_NOW = re.compile(r"'(?:ok|created|leased|empty|done|ticked|ended)'")

#: Puts keys on an empty server: of each its name, its expiry, its value, and how RESTORE shall take them.
RESTORE = """
redis.call('FLUSHALL', 'SYNC')
for at = 1, #ARGV, 4 do redis.call('RESTORE', unpack(ARGV, at, at + 3)) end
"""


def words(reply: object) -> str:
    """A reply without its time and the word that tells a repeat from a first time."""
    return re.sub(r"srv_us=\d+", "", DONE_NOW.sub("'repeated'", repr(reply)))


def saved(desk: Desk, scene: Callable[[Desk], Operation]) -> Callable[[Desk], Operation]:
    """The scene, set up once: called again it brings back its keys and its time."""
    operation, now_ms = scene(desk), desk.now_ms
    keys: list[Any] = list(desk.redis.scan_iter(count=1000))
    with desk.redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.dump(key)
            pipe.pexpiretime(key)
            pipe.pttl(key)
        found = pipe.execute()
    words: list[Any] = []
    for key, value, expires_ms, left_ms in zip(keys, found[::3], found[1::3], found[2::3], strict=True):
        # Keys that live by the server's own clock live as long as they did.
        own = 0 < expires_ms < desk.expires_from_ms
        words += [key, left_ms if own else max(expires_ms, 0), value, "REPLACE" if own else "ABSTTL"]

    def start(desk: Desk) -> Operation:
        desk.redis.eval(RESTORE, 0, *words)
        desk.now_ms = now_ms
        desk.queue.use_test_clock(now_ms)
        return operation

    return start


#: For each step: the first tier cuts off after every second of the first writes and every fourth of the others. Scenes of one
#: script, and the same scene sent again and not, take turns: one is cut after the even writes, another after the odd ones.
STEPS = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)], ids=["some writes", "each write"])
CUT_FIRST = 5


def cuts(desk: Desk, scene: Scene, operation: Operation, step: int, resend: bool) -> Iterator[tuple[int, Any]]:
    """Cut the call of a scene that has begun off after ever more writes, until it runs to its end: the writes, and the reply to
    its copy, None where none is sent. Of the same keys and the same answer workers make the same: each of those comes once."""
    writes = -(step > 1 and (SCENES.index(scene) + resend) % 2)
    was_cut, start, seen = True, saved(desk, lambda _: operation), list[Any]()
    while was_cut:
        writes += min(step, 2) if writes < CUT_FIRST else step
        start(desk)
        was_cut = desk.cut_off(operation, writes)
        reply = desk.run(operation) if resend else None
        own = desk.expires_from_ms
        keys = {key: kept if kept[2] >= own else kept[:2] for key, kept in desk.dump().items()}
        if (state := (keys, words(reply))) not in seen:
            seen.append(state)
            yield writes, reply
    assert writes > 1 or type(desk) is Desk, "the scene made the script write less than twice: it proves nothing"


@contextmanager
def cut_off_after(writes: int) -> Iterator[None]:
    """Who fails says where the script was cut off."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"cut off after {writes} writes")
        raise


def accepted_by(operation: Operation, reply: object) -> Counter[str]:
    """Ends that the operation itself reports as accepted, by this send or by one that was not answered."""
    if not isinstance(operation, Finish | Drop) or reply is None:
        return Counter()
    items: Any = getattr(reply, "finished", reply)
    ended = dict(zip((lease.job for lease in operation.leases), items.items, strict=False))
    return Counter({job: 1 for job, (result, _) in ended.items() if result in ("ok", "repeated")})


def created_by(operation: Operation, reply: Any) -> set[str]:
    """Jobs that the operation has made."""
    if isinstance(operation, schedules.Tick):
        return {f"cron:{operation.schedule}:{tick_ms}" for tick_ms in operation.ticks_ms}
    made = reply.items if isinstance(operation, EnqueueMany) else [reply] if isinstance(operation, Enqueue) else []
    return {each.job for each in made if each.created}


def waits(desk: Desk) -> bool:
    """True while anything may still run. What was ended by half is known by its lease alone."""
    counts = desk.run(looks.Count())
    return bool(counts.waiting or counts.delayed or counts.active or counts.blocked or desk.redis.zcard(desk.keys.active))


def drain(desk: Desk, operation: Operation | None = None) -> list[str]:
    """What healthy workers do until nothing is left: sweep, claim, finish. The accepted finishes in their order."""
    if isinstance(operation, admin.Forget):
        # The end of an obliteration that begins never comes: nothing starts until somebody says so.
        desk.resume()
    finished: list[str] = []
    for _ in range(40):
        found = desk.swept().claim("z", 20, classes=CLASSES)
        while found:
            # A finish frees slots for what waited for them.
            reply = desk.run(Finish(tuple(job.lease for job in found), desk.claim_operation("z", 20, classes=CLASSES)))
            assert {result for result, _ in reply.finished.items} == {"ok"}, found
            finished += [job.lease.job for job in found]
            found = reply.claimed.jobs
        if not waits(desk):
            return finished
        desk.tick(LEASE_MS // 3)
    raise AssertionError(f"stuck: {desk.dump()}")


def check_outcome(
    scene: Scene, operation: Operation, reply: Any, *, there: set[str], dead_before: set[str], finished: list[str], dead: set[str]
) -> None:
    """Assert that each job has one end: a finish, a death, or one by hand. `reply` is None of a call that was not sent again."""
    accepted = Counter(finished) + accepted_by(operation, reply)
    assert set(accepted.values()) <= {1}, accepted
    assert not dead & accepted.keys()
    by_hand = (there | created_by(operation, reply) if reply else there) - accepted.keys() - dead
    if reply:
        assert (dead, by_hand) == (scene.dead, scene.gone) and scene.runs <= accepted.keys()
    else:
        unheard = {lease.job for lease in operation.leases} if isinstance(operation, Finish | Drop) else set[str]()
        assert dead <= scene.dead | dead_before and by_hand <= scene.gone | unheard, (dead, by_hand)
    for child, parents in PARENTS.items():
        assert not parents & set(finished[finished.index(child) :] if child in finished else ()), finished
