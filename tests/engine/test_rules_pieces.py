"""Lists that are longer than one piece (rule 1): whatever their length, a script leaves the same keys and says the same as with a
list that fits, and no loop over pieces is without a test that makes it go round more than once."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from engine import models
from engine.models import Spec
from engine.redis import scripts
from tests.engine.channels.channel_desk import NEVER_MS, TTL_S, ChannelDesk, message
from tests.engine.desk import HOUR_MS, LEASE_MS, START_MS, Desk
from tests.engine.helpers import pieces
from tests.engine.ops import Enqueue, Enqueued, EnqueueMany, Finish, Forget, Page, Publish, Sweep

#: Four pieces and a half of one word each, nine of two words.
JOBS = tuple(f"j{number}" for number in range(18))
IDS = [job.encode() for job in JOBS]


def numbered(desk: Desk, key: str) -> list[tuple[bytes, float]]:
    """A zset in its order."""
    return desk.redis.zrange(key, 0, -1, withscores=True)


def many(desk: Desk, nonce: bytes = b"nonce---", **options: Any) -> EnqueueMany:
    """All jobs in one call, each with these options; a value that is a function is asked for the job's."""

    def one(job: str) -> Enqueue:
        own: dict[str, Any] = {name: value(job) if callable(value) else value for name, value in options.items()}
        return desk.enqueue_operation(job, nonce=nonce, **own)

    return EnqueueMany(tuple(map(one, JOBS)))


# -- what is done, each with what it must leave


def enqueued_waiting(desk: Desk) -> Any:
    """Into two lanes; sent again; sent by another producer, to whom half of them are new."""
    operation = many(desk, key=lambda job: "ab"[int(job[1:]) % 2])
    replies = [desk.run(operation), desk.run(operation)]
    assert [{item.result for item in reply.items} for reply in replies] == [{"created"}, {"repeated"}]
    desk.redis.delete(*[desk.keys.job(job) for job in JOBS[::2]])
    replies.append(desk.run(many(desk, b"other---", key="c")))
    assert [item.result for item in replies[2].items] == ["created", "duplicate"] * 9
    lanes = {key: desk.redis.zrange(desk.keys.lane(f"main/{key}"), 0, -1) for key in "abc"}
    assert lanes == {"a": IDS[::2], "b": IDS[1::2], "c": IDS[::2]}
    assert desk.redis.exists(*[desk.keys.job(job) for job in JOBS]) == len(JOBS)
    return replies


def enqueued_delayed(desk: Desk) -> Any:
    reply = desk.run(many(desk, delay_ms=lambda job: 1_000 + int(job[1:])))
    due = numbered(desk, desk.keys.due)
    assert [(member[10:], due_ms) for member, due_ms in due] == [(job, START_MS + 1_000 + at) for at, job in enumerate(IDS)]
    assert desk.redis.exists(*[desk.keys.job(job) for job in JOBS]) == len(JOBS)
    return reply


def enqueued_unique(desk: Desk) -> Any:
    reply = desk.run(many(desk, unique=lambda job: f"u{job}"))
    assert desk.redis.mget([desk.keys.unique(f"u{job}") for job in JOBS]) == IDS
    assert desk.redis.exists(*[desk.keys.job(job) for job in JOBS]) == len(JOBS)
    assert desk.redis.zrange(desk.keys.lane("main"), 0, -1) == IDS
    # Other jobs of the same keys, and of keys that the first half of the call takes: duplicates, whichever piece they are in.
    others = [desk.enqueue_operation(f"other-{job}", nonce=b"other---", unique=f"u{job}") for job in JOBS]
    pairs = [desk.enqueue_operation(f"v{at}", nonce=b"other---", unique=f"v{at % 9}") for at in range(18)]
    again = desk.run(EnqueueMany((*others, *pairs)))
    assert [item.result for item in again.items] == ["duplicate"] * 18 + ["created"] * 9 + ["duplicate"] * 9
    assert [item.holder for item in again.items[:18]] == [*JOBS]
    assert [item.holder for item in again.items[27:]] == [f"v{at}" for at in range(9)]
    assert desk.redis.zcard(desk.keys.lane("main")) == 27
    return reply, again


def enqueued_expiring(desk: Desk) -> Any:
    reply = desk.run(many(desk, expires_ms=lambda job: 1_000 + int(job[1:])))
    expiring = numbered(desk, desk.keys.expiring)
    assert [(member[10:], at_ms) for member, at_ms in expiring] == [(job, START_MS + 1_000 + at) for at, job in enumerate(IDS)]
    return reply


def claimed_expiring(desk: Desk) -> Any:
    """From their first claim on they do not expire any more."""
    found = desk.did(many(desk, expires_ms=1_000)).claim(limit=50)
    assert [job.lease.job for job in found] == [*JOBS] and not desk.redis.exists(desk.keys.expiring)
    return found


def claimed(desk: Desk) -> Any:
    """Sent twice; some entries of the lane lead nowhere, and some to what cannot be read."""
    desk.did(many(desk)).redis.zadd(desk.keys.lane("main"), {f"gone{number}": number for number in range(9)})
    for number in range(9):
        desk.redis.zadd(desk.keys.lane("main"), {f"bad{number}": number})
        desk.redis.set(desk.keys.job(f"bad{number}"), b"\x07rotten")
    operation = desk.claim_operation(limit=50)
    first, second = desk.run(operation), desk.run(operation)
    assert (first.result, second.result) == ("leased", "repeated") and first.jobs == second.jobs
    assert [job.lease.job for job in first.jobs] == [*JOBS] and sorted(first.corrupt) == [f"bad{at}" for at in range(9)]
    assert numbered(desk, desk.keys.active) == [(job, START_MS + LEASE_MS) for job in sorted(IDS)]
    assert not desk.redis.exists(desk.keys.lane("main")) and desk.redis.zcard(desk.keys.dead) == 9
    return first, second


def claimed_within_limits(desk: Desk) -> Any:
    """A job that costs 3 has three places in the window. After a step back of the clock all of them count from then on."""
    found = desk.set_limit("n:main", concurrency=50, rate=60, per_ms=1_000).did(many(desk, cost=3)).claim(limit=50)
    assert numbered(desk, desk.keys.held("n:main")) == [(job, START_MS + LEASE_MS) for job in sorted(IDS)]
    rate = numbered(desk, desk.keys.rate("n:main"))
    units = {f"{job.lease.job}:{job.lease.fence}{unit}".encode() for job in found for unit in ("", ":2", ":3")}
    assert ({member for member, _ in rate}, {at_ms for _, at_ms in rate}) == (units, {START_MS})
    assert desk.enqueue("late", cost=10).tick(-HOUR_MS).claim() == []
    assert numbered(desk, desk.keys.rate("n:main")) == [(member, START_MS - HOUR_MS) for member, _ in rate]
    return found


def finished(desk: Desk) -> Any:
    operation = Finish(tuple(job.lease for job in desk.did(many(desk)).claim(limit=50)))
    replies = desk.run(operation), desk.run(operation)
    assert [[state for state, _ in reply.items] for reply in replies] == [["ok"] * 18, ["repeated"] * 18]
    assert numbered(desk, desk.keys.done) == [(job, START_MS) for job in sorted(IDS)]
    assert not desk.redis.exists(desk.keys.active, *[desk.keys.run(job) for job in JOBS])
    assert {desk.places(job) == {"ended"} for job in JOBS} == {True}
    return replies


def finished_by_a_claim(desk: Desk) -> Any:
    reply = desk.run(Finish(tuple(job.lease for job in desk.did(many(desk)).claim(limit=50)), desk.claim_operation()))
    assert not desk.redis.exists(desk.keys.active, *[desk.keys.run(job) for job in JOBS])
    return reply


def forgotten(desk: Desk) -> None:
    """An obliteration of a queue with many settings and families; its end is asked for until there is no more."""
    for job in JOBS:
        desk.did(desk.set_worker_operation(f"c:{job}", 2)).redis.sadd(desk.keys.feeding, job)
        desk.redis.sadd(desk.keys.feeds(job), "child")
    calls, more = 0, True
    while more:
        calls += 1
        more = desk.run(Forget("end", True, op_id=f"f{calls:015x}", not_after_ms=desk.now_ms + 10_000)).more
    assert calls == 1 or scripts.PIECE_WORDS == pieces.SMALL
    assert desk.redis.hkeys(desk.keys.settings) == [b"version"]
    assert not desk.redis.exists(desk.keys.feeding, *[desk.keys.feeds(job) for job in JOBS])
    desk.redis.delete(*desk.redis.keys(desk.keys.op("f*")))


def promoted_by_a_foreign_model(desk: Desk) -> Any:
    """What is about to move is noted before the first job moves: seen where the script is cut off right behind that."""
    desk.did(many(desk, delay_ms=500)).tick(1_000)
    # The first one is the time of the sweep.
    writes = 1 + -(-len(JOBS) // scripts.PIECE_WORDS)
    sweep: Sweep = desk.sweep_operation()
    assert desk.cut_off(sweep, writes)
    moving = desk.redis.smembers(f"{desk.keys.prefix}moving")
    assert moving == {*IDS}
    assert sorted(job.lease.job for job in desk.did(sweep).claim(limit=50)) == sorted(JOBS)
    return moving


def stuck_in_a_foreign_model(desk: Desk) -> Any:
    """Those of which nobody keeps a lease; each page of the list is looked through until there are enough."""
    desk.did(many(desk)).held(limit=15).tick(LEASE_MS + 1).claim("b", limit=3)
    listed = [desk.run(Page("stuck", offset, 6)).jobs for offset in (0, 6, 12)]
    assert [job for page in listed for job in page] == [*JOBS[:15]]
    return listed


def enqueued_with_many_parameters(desk: Desk) -> Any:
    """A hash of more fields than one piece of words."""
    fields = {f"p{number}": str(number) for number in range(9)}
    reply: Enqueued = desk.run(desk.enqueue_operation("j", payload=fields))
    kept: Any = desk.redis.hgetall("mosquito:job_run:j")
    assert {name.decode(): value.decode() for name, value in kept.items()}.items() >= {**fields, "type": "main"}.items()
    return reply


@dataclass(frozen=True)
class Case:
    """Something that is done at a desk, and the places that it takes to a second piece."""

    does: Any
    crosses: frozenset[str]
    spec: Spec | None = None


ENQUEUE = {"enqueue_many count", "enqueue_many #jobs", "enqueue_many #lane.waiting"}
CLAIM = {"write_leases #entries", "leave_lane #ids"}
#: Of jobs whose first lease counts against no limit.
FIRST = {"write_runs #first_leases"}
FINISH = {"runs_of count", "finish_jobs #dated", "finish_jobs #ids"}
LIMITS = {"count_leases #held", "count_leases #used", "rate_back #(ahead or {})"}
CASES = [
    Case(enqueued_waiting, frozenset(ENQUEUE)),
    Case(enqueued_delayed, frozenset({"enqueue_many count", "enqueue_many #jobs", "enqueue_many #delayed"})),
    Case(enqueued_expiring, frozenset({*ENQUEUE, "enqueue_many #expiries"})),
    Case(claimed_expiring, frozenset({*ENQUEUE, *CLAIM, *FIRST, "enqueue_many #expiries", "write_leases #picked"})),
    Case(enqueued_unique, frozenset({"enqueue_many count", "enqueue_many #lane.waiting", "enqueue_many #unique_jobs"})),
    Case(claimed, frozenset(ENQUEUE | CLAIM | FIRST)), Case(claimed_within_limits, frozenset(ENQUEUE | CLAIM | LIMITS)),
    Case(finished, frozenset(ENQUEUE | CLAIM | FIRST | FINISH)),
    Case(finished_by_a_claim, frozenset(ENQUEUE | CLAIM | FIRST | FINISH)),
    Case(forgotten, frozenset({"forget_all #set", "forget_all feeding"})),
    Case(promoted_by_a_foreign_model, frozenset({"foreign_promote #ids"}), models.Bull()),
    Case(stuck_in_a_foreign_model, frozenset({"jobs_at take"}), models.Bull()),
    Case(enqueued_with_many_parameters, frozenset({"wire_add #words"}), models.Mosquito()),
]  # fmt: skip
#: Of messages of a channel: a list of their clocks.
PUBLISHED = "index_all #clocks"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts that note where they begin a second piece."""
    return pieces.marked_copy(tmp_path_factory.mktemp("marked") / "lua")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.does.__name__)
def test_rule_01_small_pieces_leave_the_keys_and_replies_of_large_ones(
    case: Case, marked: Path, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Any] = []
    for words, crosses in ((1000, frozenset[str]()), (pieces.SMALL, case.crosses)):
        monkeypatch.setattr(scripts, "PIECE_WORDS", words)
        with redis.Redis.from_url(ironclaim_url) as client:
            client.flushall()
        desk = Desk(ironclaim_url, case.spec, marked)
        replies = case.does(desk)
        assert pieces.crossed(desk.redis) == crosses
        # A foreign wire has keys with a length of real time.
        left.append((replies, {key: kept[: 3 if case.spec is None else 2] for key, kept in desk.dump().items()}))
        desk.close()
    assert left[0] == left[1]


def test_small_pieces_index_messages_as_large_ones(marked: Path, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "PIECE_WORDS", pieces.SMALL)
    desk = ChannelDesk(ironclaim_url, lua=marked)
    desk.run(Publish(tuple(message(job) for job in JOBS), TTL_S, None, not_after_ms=NEVER_MS))
    clocks = [str(clock).encode() for clock in range(1, 1 + len(JOBS))]
    assert desk.redis.zrange(desk.keys.live, 0, -1) == clocks and pieces.crossed(desk.redis) == {PUBLISHED}
    # Of a foreign publisher's messages the index learns with the next of ours.
    foreign = [desk.foreign(f"f{number}") for number in range(9)]
    desk.publish("last")
    assert desk.redis.zrange(desk.keys.live, 0, -1) == [*clocks, *(str(clock).encode() for clock in (*foreign, foreign[-1] + 1))]
    assert pieces.crossed(desk.redis) == {PUBLISHED}
    desk.close()


def test_each_place_that_works_in_pieces_is_taken_to_a_second_one() -> None:
    """A new loop needs a case; and a loop that has a size of its own is none that these tests can cross."""
    assert {place for case in CASES for place in case.crosses} | {PUBLISHED} == pieces.places()
    for path in scripts.scripts_folder().rglob("*.lua"):
        assert not re.search(r"^[^-\n]*\bfor \w+ = [^,\n]*,[^\n]*, \d\d+ do\b", path.read_text(), re.MULTILINE), path.name


# -- with pieces as they are


def test_rule_03_more_delayed_jobs_than_one_write_takes_are_all_due(desk: Desk) -> None:
    jobs = [f"j{number:04}" for number in range(1001)]
    desk.run(desk.enqueue_many_operation(*jobs, delays_ms=tuple(range(1, 1002))))
    due = [(member[10:].decode(), at_ms) for member, at_ms in numbered(desk, desk.keys.due)]
    assert due == [(job, START_MS + delay_ms) for delay_ms, job in enumerate(jobs, 1)]


def test_rule_23_more_unique_jobs_than_one_write_takes_all_have_their_key(desk: Desk) -> None:
    jobs = [f"j{number:03}" for number in range(501)]
    desk.run(EnqueueMany(tuple(desk.enqueue_operation(job, unique=f"u{job}") for job in jobs)))
    assert desk.redis.mget([desk.keys.unique(f"u{job}") for job in jobs]) == [job.encode() for job in jobs]
    assert desk.redis.exists(*[desk.keys.job(job) for job in jobs]) == len(jobs)


@pytest.mark.parametrize("count", [501, 1001])
def test_rule_04_more_leases_than_one_write_takes_are_all_active_and_told_again(desk: Desk, count: int) -> None:
    jobs = [f"j{number:04}" for number in range(count)]
    operation = desk.did(desk.enqueue_many_operation(*jobs)).claim_operation(limit=count)
    first, second = desk.run(operation), desk.run(operation)
    assert (first.result, second.result) == ("leased", "repeated")
    assert [job.lease.job for job in first.jobs] == jobs and first.jobs == second.jobs
    assert numbered(desk, desk.keys.active) == [(job.encode(), START_MS + LEASE_MS) for job in jobs]
    assert not desk.redis.exists(desk.keys.lane("main"))
