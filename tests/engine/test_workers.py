"""Workers in raw keys and through both faces: beats, the list, the leader, and leases of workers that have stopped beating
(BQ02 to BQ04, BQ31, BQ32, MQ30, MQ31; rules 10, 11 and 13)."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from engine import AsyncQueue, Malformed, Queue
from tests.engine.using import HOUR_MS, LEASE_MS, Beat, Desk, Lease, refused

TTL_MS = 30_000


def claim_long(desk: Desk, worker: str = "a", *jobs: str, lease_ms: int = HOUR_MS) -> tuple[Lease, ...]:
    """Long leases of a worker that has beaten."""
    desk.beaten(worker, lease_ms=lease_ms).enqueue(*jobs)
    return tuple(job.lease for job in desk.run(desk.claim_operation(worker, lease_ms=lease_ms)).jobs)


def others_beat(desk: Desk, ms: int, worker: str = "b") -> bool:
    """Time passes while another worker beats every 10 s; what its last beat says of orphans."""
    orphaned = False
    for _ in range(ms // 10_000):
        orphaned = desk.tick(10_000).beat(worker).orphaned
    return orphaned


def taken(desk: Desk) -> list[str]:
    return [lease.job for lease, _ in desk.run(desk.orphans_operation()).leases]


@pytest.mark.feature("BQ02", "BQ03", "BQ04", "MQ30")
def test_a_beat_lists_a_worker_until_it_runs_out_and_a_leave_ends_it(desk: Desk) -> None:
    assert desk.beat("a", about='{"name":"w"}').result == "ok"
    key, until_ms = desk.keys.worker("a" * 16), desk.now_ms + TTL_MS
    assert desk.redis.zrange(desk.keys.workers, 0, -1, withscores=True) == [(b"a" * 16, until_ms)]
    assert desk.redis.get(key) == f'1 {TTL_MS} {LEASE_MS} 0 {{"name":"w"}}'.encode()
    assert desk.redis.pexpiretime(key) == until_ms + LEASE_MS + 60_000
    assert desk.tick(10_000).beaten("a").redis.zscore(desk.keys.workers, "a" * 16) == desk.now_ms + TTL_MS
    old, leave = desk.call(desk.beat_operation()), replace(desk.beat_operation(), until_ms=0)
    assert desk.run(leave).result == "left"
    assert desk.redis.zcard(desk.keys.workers) == 0 and desk.redis.get(key) == str(leave.counter).encode()
    assert desk.send(old).result == "repeated", "a late copy does not bring it back"
    assert desk.redis.zcard(desk.keys.workers) == 0


@pytest.mark.feature("BQ31", "MQ23", "MQ24")
def test_rule_13_one_worker_leads_until_it_sweeps_no_more_or_leaves(desk: Desk) -> None:
    assert desk.beat("a").leads and not desk.beat("b").leads and desk.redis.get(desk.keys.leader) == b"a" * 16
    for _ in range(40):
        assert desk.tick(1000).sweep("a").leads and not desk.sweep("c").leads
        assert desk.beat("a").leads and not desk.beat("b").leads
    assert desk.tick(1249).beat("a").leads and not desk.beat("b").leads and not desk.sweep("c").leads
    assert desk.tick(1).beat("b").leads, "beats alone keep no lead, nor do the sweeps of others"
    assert not desk.beat("a").leads and not desk.sweep("a").leads and desk.sweep("b").leads
    assert not desk.tick(600).beat("a", sweep_ms=500).leads, "it has swept in time, by the interval of this one"
    assert desk.tick(25).beat("a", sweep_ms=500).leads, "who sweeps more often takes the lead of who does not"
    assert desk.tick(1000).sweep("a", yields=True).leads and not desk.beat("b").leads
    desk.tick(250)
    assert desk.sweep("a", yields=True).leads and desk.beat("b").leads, "a sweep that leaves something to others does not count"
    assert desk.did(replace(desk.beat_operation("b"), until_ms=0)).redis.exists(desk.keys.leader) == 0
    assert desk.did(replace(desk.beat_operation("c"), until_ms=0)).beat("a").leads, "who does not lead ends nobody's lead"


def test_rule_10_a_leader_that_died_before_the_clock_stepped_back_is_succeeded_at_once(desk: Desk) -> None:
    assert desk.beat("a").leads
    desk.sweep("a")
    assert desk.tick(-3_600_000).beat("b").leads and not desk.sweep("a").leads


@pytest.mark.parametrize("followers", [1, 3, 9, 20])
def test_rule_13_followers_check_the_leader_one_by_one_and_one_finds_it_silent_at_once(desk: Desk, followers: int) -> None:
    """Together they beat once in each interval, or else each of them every eight seconds."""
    letters = "bcdefghijklmnopqrstuvwxyz"[:followers]
    assert desk.beat("a").leads and desk.beat("a").watch_in_ms == 0
    turns, looks = {letter: desk.now_ms + 37 * at for at, letter in enumerate(letters)}, list[int]()
    sweep_at_ms = start_ms = desk.now_ms
    while desk.now_ms < start_ms + 60_000:
        letter = min(turns, key=lambda name: turns[name])
        desk.tick(min(turns[letter], sweep_at_ms) - desk.now_ms)
        if desk.now_ms == sweep_at_ms:
            assert desk.sweep("a").leads
            desk.beat("a")
            sweep_at_ms += 1000
            continue
        reply = desk.beat(letter)
        assert not reply.leads and 0 < reply.watch_in_ms <= 8_500
        turns[letter] = desk.now_ms + reply.watch_in_ms
        looks.append(desk.now_ms)
    late = [at_ms for at_ms in looks if at_ms > start_ms + 30_000]
    assert len(late) <= max(30, 30 / 8 * followers + followers) + 1
    assert max(after - before for before, after in itertools.pairwise(late)) <= 1000
    # It dies just after a sweep.
    leads = False
    while not leads:
        letter = min(turns, key=lambda name: turns[name])
        reply = desk.tick(turns[letter] - desk.now_ms).beat(letter)
        leads, turns[letter] = reply.leads, desk.now_ms + reply.watch_in_ms
    assert desk.now_ms - (sweep_at_ms - 1000) <= 1250


def test_rule_13_a_follower_that_beats_before_its_watch_slot_keeps_it(desk: Desk) -> None:
    """As a busy worker does: if each of its beats took another turn, no other one would look for ten seconds."""
    assert desk.beat("a").leads
    for _ in range(12):
        assert desk.tick(1000).sweep("a").leads
        turns = [desk.beat(worker).watch_in_ms for worker in "bcd"]
        assert sorted(turns) in ([250, 1250, 2250], [1250, 2250, 3250]), "they have the next three turns"
    call = desk.call(desk.beat_operation("b"))
    assert [desk.send(call).watch_in_ms for _ in range(2)] == [turns[0]] * 2, "an answer that was lost is repeated"
    desk.tick(-3_600_000).sweep("a")
    assert 0 < desk.beat("b").watch_in_ms <= 10_500, "no turn lies where the clock was before"


@pytest.mark.feature("BQ32", "MQ31")
def test_leases_of_a_worker_that_stopped_beating_are_taken_long_before_they_run_out(desk: Desk) -> None:
    claim_long(desk, "a", "j1", "j2")
    (kept,) = (job.lease for job in desk.enqueue("j3").claim("b"))
    assert others_beat(desk, TTL_MS) is False and taken(desk) == []
    assert others_beat(desk.did(desk.extend_operation(kept)), 10_000) is True and taken(desk) == ["j1", "j2"]
    assert desk.places("j1") == desk.places("j2") == {"lane"} and desk.places("j3") == {"active"}
    assert desk.run_hash("j1")["crashes"] == "1", "a lost worker is a crash of its jobs"
    assert others_beat(desk, 10_000) is False, "its worker is forgotten"
    assert [job.lease.job for job in desk.claim("c")] == ["j1", "j2"]


def test_a_zombie_that_beats_again_is_listed_and_its_late_word_is_refused(desk: Desk) -> None:
    (lease,) = claim_long(desk, "a", "j1")
    others_beat(desk, 40_000)
    assert taken(desk) == ["j1"] and desk.beat("a").result == "ok" and desk.finish(lease) == [("stale", "")]
    assert desk.redis.zscore(desk.keys.workers, "a" * 16) == desk.now_ms + TTL_MS


@pytest.mark.parametrize("away_ms", [16_000, 40_000, 600_000])
def test_rule_11_after_a_stall_of_the_server_nobody_is_taken_for_dead_before_it_could_beat(desk: Desk, away_ms: int) -> None:
    (lease,) = claim_long(desk, "a", "j1")
    assert desk.beaten("b").tick(away_ms).beat("b").orphaned is False and taken(desk) == []
    assert others_beat(desk.tick(10_000).beaten("a"), 20_000) is False and taken(desk) == []
    assert desk.finish(lease) == [("ok", "finished")]


@pytest.mark.parametrize("away_ms", [16_000, 40_000, 600_000])
def test_rule_11_a_look_for_orphans_that_arrives_first_after_a_stall_takes_nothing(desk: Desk, away_ms: int) -> None:
    (lost,) = claim_long(desk, "z", "j0")
    (lease,) = claim_long(desk, "a", "j1")
    for worker in "abababab":
        orphaned = desk.tick(5_000).beat(worker).orphaned
    assert orphaned, "somebody is about to look for them when the server stands still"
    assert taken(desk.tick(away_ms)) == [], "nobody could beat meanwhile"
    assert desk.beat("b").orphaned is False and taken(desk) == []
    for worker in "abab":
        desk.tick(5_000).beat(worker)
    assert taken(desk) == ["j0"] and desk.finish(lease, lost) == [("ok", "finished"), ("stale", "")]


def test_rule_11_a_worker_that_is_gone_is_found_half_a_ttl_after_the_stall(desk: Desk) -> None:
    claim_long(desk, "a", "j1")
    assert desk.tick(600_000).beat("b").orphaned is False and others_beat(desk, 20_000) is True
    assert taken(desk) == ["j1"]


def test_rule_10_a_clock_that_steps_back_does_not_keep_the_dead_alive(desk: Desk) -> None:
    assert desk.beaten("b").tick(-HOUR_MS).beat("b").result == "ok"
    assert desk.redis.zscore(desk.keys.workers, "b" * 16) == desk.now_ms + TTL_MS
    claim_long(desk, "a", "j1")
    assert others_beat(desk, 40_000) is True and taken(desk) == ["j1"]


def test_a_pass_over_many_leases_takes_pages_and_misses_none(desk: Desk) -> None:
    jobs = [f"j{number}" for number in range(25)]
    desk.beaten("a", lease_ms=HOUR_MS).enqueue(*jobs)
    for at in range(0, 25, 5):
        worker = "a" if at % 2 == 0 else "b"
        desk.did(replace(desk.claim_operation(worker, lease_ms=HOUR_MS), most=5)).tick(at % 3)
    others_beat(desk, 40_000)
    found, calls = list[str](), 0
    while calls < 40:
        calls += 1
        reply = desk.run(desk.orphans_operation(limit=7))
        found += [lease.job for lease, _ in reply.leases]
        if reply.sleep_ms:
            break
    assert calls > 3 and sorted(found) == sorted(job for at in (0, 10, 20) for job in jobs[at : at + 5])
    assert b"a" * 16 not in desk.redis.zrange(desk.keys.workers, 0, -1)
    assert desk.redis.hmget(desk.keys.sweep, "orphans_from", "orphans_until_ms", "orphans_after") == [None] * 3


def test_who_stops_while_a_pass_goes_on_is_left_to_the_next_one(desk: Desk) -> None:
    claim_long(desk, "b", "j0")
    claim_long(desk.tick(1), "a", *(f"j{number}" for number in range(1, 6)))
    others_beat(desk, 40_000, "c")
    desk.redis.zadd(desk.keys.workers, {b"b" * 16: desk.now_ms + 10_000})
    assert desk.run(desk.orphans_operation(limit=2)).sleep_ms == 0, "the pass has gone past the lease of b"
    others_beat(desk, 40_000, "c")
    while not desk.run(desk.orphans_operation(limit=2)).sleep_ms:
        pass
    assert taken(desk) == ["j0"]


async def test_the_lists_of_both_faces_say_what_the_beats_told(ironclaim_url: str, queue: Queue) -> None:
    about = {"name": "w1", "host": "h", "pid": 7, "in_hand": 2, "jobs": ["a", "b"], "handlers": ["x"]}
    now_ms = queue.driver.server_now_ms()
    for number, name in enumerate(("w1", "w2", "w1"), 1):
        text = json.dumps({**about, "attributes": {"gpu": True}, "name": name, "started_ms": now_ms})
        queue.driver.run(queue.model.call(Beat(str(number) * 16, 1, TTL_MS, now_ms + TTL_MS, 9000, 1000, text, ("0" * 16,))))
    listed = queue.workers.list()
    assert [(info.name, info.incarnation[0]) for info in listed] == [("w1", "1"), ("w2", "2"), ("w1", "3")]
    first: Any = listed[0]
    assert (first.host, first.pid, first.in_hand, first.jobs, first.handlers) == ("h", 7, 2, ("a", "b"), ("x",))
    assert (first.alive, first.leads, first.lease_ms, first.attributes) == (True, True, 9000, {"gpu": True})
    assert 0 <= first.beat_age_ms < TTL_MS
    assert [info.name for info in queue.workers.list(offset=2, limit=1)] == ["w2"], "the former incarnation has a rank too"
    found = queue.workers.get("w2")
    assert found is not None and found.incarnation == "2" * 16 and queue.workers.get("none") is None
    async with AsyncQueue("q", url=ironclaim_url) as other:
        assert [info.name for info in await other.workers.list()] == ["w1", "w2", "w1"]
        info = await other.workers.get("2" * 16)
        assert info is not None and info.name == "w2"


def test_bad_input_is_refused_before_anything_is_sent() -> None:
    workers = Queue("q", url="redis://127.0.0.1:1").workers
    for bad in ({"limit": 0}, {"limit": 1001}, {"offset": -1}):
        refused(Malformed, None, workers.list, **bad)
    refused(Malformed, None, workers.get, "a b")


def test_rule_07_a_beat_that_ran_out_on_its_way_lists_nobody_and_takes_no_lead(desk: Desk) -> None:
    gone = desk.call(desk.beat_operation("a"))
    reply = desk.tick(TTL_MS - 1).beaten("b").did(replace(desk.beat_operation("b"), until_ms=0)).tick(1).send(gone)
    assert (reply.result, reply.leads) == ("repeated", False)
    assert not desk.redis.exists(desk.keys.workers, desk.keys.worker("a" * 16), desk.keys.leader)


def test_who_died_before_the_clock_stepped_back_is_not_listed_until_it_is_there_again(desk: Desk) -> None:
    assert desk.beaten("a").tick(-HOUR_MS).beaten("b").redis.zscore(desk.keys.workers, "a" * 16) == desk.now_ms + TTL_MS
    assert others_beat(desk, 40_000), "it counts as one that has stopped"


# -- a worker whose beats are lost, and one that is dead


LONG_MS = 600_000


def test_a_worker_whose_beats_alone_are_lost_keeps_its_leases_and_is_found_when_it_dies(desk: Desk) -> None:
    leases = claim_long(desk, "a", "j1", "j2", lease_ms=LONG_MS)
    # For longer than its last beat is remembered.
    for renewal in range(1, 3 * LONG_MS // 20_000):
        for _ in range(2):
            others_beat(desk, 10_000)
            assert taken(desk) == [], renewal
        reply = desk.run(replace(desk.extend_operation(*leases, renewal=renewal), lease_ms=LONG_MS))
        assert {result for result, _ in reply.items} == {"ok"}
    assert desk.redis.zscore(desk.keys.workers, "a" * 16), "its renewals show that it lives"
    assert others_beat(desk, 40_000) and sorted(taken(desk)) == ["j1", "j2"], "now it is dead"
    assert not desk.redis.zscore(desk.keys.workers, "a" * 16)


def test_a_dead_worker_with_long_leases_is_swept_when_its_beats_have_run_out(desk: Desk) -> None:
    claim_long(desk, "a", "j1", "j2", lease_ms=LONG_MS)
    others_beat(desk, 30_000)
    assert desk.tick(1).beat("b").orphaned and sorted(taken(desk)) == ["j1", "j2"]


def test_one_lease_that_was_renewed_saves_its_worker_and_not_the_one_that_was_not(desk: Desk) -> None:
    first, _ = claim_long(desk, "a", "j1", "j2", lease_ms=LONG_MS)
    others_beat(desk, 30_000)
    assert taken(desk.did(replace(desk.extend_operation(first), lease_ms=LONG_MS)).tick(1_000)) == ["j2"]
    assert desk.redis.zscore(desk.keys.workers, "a" * 16) == desk.now_ms - 1_000 + TTL_MS
    assert not desk.beat("b").orphaned
    others_beat(desk, 40_000)
    assert taken(desk) == ["j1"]
