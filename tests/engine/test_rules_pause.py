"""Rule 7: pauses, resumes and changes of limits are done once, and a late copy does nothing; what pauses mean for claims."""

from collections.abc import Callable

import pytest

from tests.engine.using import HOUR_MS, LEASE_MS, Desk, Finish, Operation, check, hash_of, markers, members, take_markers

BOTH = ("mail", "sms")


def prepare(desk: Desk) -> None:
    for name in BOTH:
        desk.enqueue(f"{name}0", f"{name}1", name=name)
    take_markers(desk)


def claimed(desk: Desk, limit: int = 10, worker: str = "a") -> list[str]:
    found = [job.lease.job for job in desk.claim(worker, limit, classes=BOTH)]
    check(desk)
    return found


@pytest.mark.feature("BQ24")
def test_rule_07_nothing_of_a_paused_name_is_claimed_until_it_is_resumed(desk: Desk) -> None:
    prepare(desk)
    assert claimed(desk.pause("mail")) == ["sms0", "sms1"] and markers(desk) == []
    assert claimed(desk.tick(HOUR_MS)) == [] and take_markers(desk.resume("mail")) == ["mail"]
    assert claimed(desk) == ["mail0", "mail1"] and desk.redis.exists(desk.keys.paused) == 0


@pytest.mark.feature("BL20")
def test_rule_07_a_pause_of_the_queue_holds_whatever_is_resumed_by_name(desk: Desk) -> None:
    prepare(desk)
    assert (claimed(desk.pause("mail").pause().resume("sms")), markers(desk)) == ([], [])
    assert take_markers(desk.resume()) == ["sms"] and claimed(desk) == ["sms0", "sms1"]
    assert claimed(desk.resume("mail")) == ["mail0", "mail1"]


def test_rule_07_jobs_in_hand_go_on_while_their_name_is_paused(desk: Desk) -> None:
    prepare(desk)
    first, second, *others = desk.claim(classes=BOTH)
    assert desk.pause().pause("mail").run(desk.extend_operation(first.lease)).items[0][0] == "ok"
    assert desk.retry(second.lease, delay_ms=0) == ("ok", "retried")
    reply = desk.run(Finish((first.lease, *(job.lease for job in others)), desk.claim_operation(classes=BOTH)))
    assert {result for result, _ in reply.finished.items} == {"ok"} and reply.claimed.jobs == ()
    assert claimed(desk.enqueue("new", name="mail")) == [] and len(claimed(desk.resume().resume("mail"))) == 2


@pytest.mark.feature("MQ28")
@pytest.mark.parametrize("name", ["mail", "*"])
def test_rule_07_a_pause_with_a_length_ends_to_the_ms_and_is_told(desk: Desk, name: str) -> None:
    prepare(desk)
    desk.pause(name, 5000)
    paused = {"mail"} if name == "mail" else set(BOTH)
    assert desk.later(4999).sleep_ms == 1 and not paused & set(take_markers(desk))
    assert not paused & {job[:-1] for job in claimed(desk)} and paused <= set(markers(desk.swept(1)))
    assert len(claimed(desk)) == 2 * len(paused) and desk.swept().redis.exists(desk.keys.paused) == 0


def test_rule_07_the_last_pause_counts(desk: Desk) -> None:
    prepare(desk)
    assert claimed(desk.pause("mail", 1000).pause("mail", 5000).tick(1000)) == ["sms0", "sms1"]
    desk.pause("mail")
    # The next sweep comes late, as after a stall, so it takes no lease.
    assert claimed(desk.swept().tick(HOUR_MS)) == []
    assert markers(desk.pause("mail", 1000).swept(1000)) == ["mail"] and claimed(desk) == ["mail0", "mail1"]


#: What an operator does, and what another one does meanwhile.
WHATS: dict[str, tuple[Callable[[Desk], Operation], Callable[[Desk], object]]] = {
    "pause": (lambda desk: desk.pause_operation("mail"), lambda desk: desk.resume("mail")),
    "pause for a length": (lambda desk: desk.pause_operation("mail", 60_000), lambda desk: desk.resume("mail")),
    "resume": (lambda desk: desk.pause("mail").resume_operation("mail"), lambda desk: desk.pause("mail")),
    "set a limit": (
        lambda desk: desk.set_limit_operation("n:mail", concurrency=1, rate=5, per_ms=1000),
        lambda desk: desk.set_limit("n:mail"),
    ),
    "remove a limit": (
        lambda desk: desk.set_limit("n:mail", concurrency=1).set_limit_operation("n:mail"),
        lambda desk: desk.set_limit("n:mail", concurrency=1),
    ),
    "set a worker": (lambda desk: desk.set_worker_operation("c:w", 3), lambda desk: set_worker(desk, "c:w", 7)),
    "pause a worker": (lambda desk: desk.set_worker_operation("p:w", 60_000), lambda desk: set_worker(desk, "p:w", 7)),
    "resume a worker": (
        lambda desk: set_worker(desk, "p:w", 0).set_worker_operation("p:w", None),
        lambda desk: set_worker(desk, "p:w", 7),
    ),
}


def set_worker(desk: Desk, field: str, value: int) -> Desk:
    return desk.did(desk.set_worker_operation(field, value))


@pytest.mark.parametrize("what", WHATS)
def test_rule_07_an_administration_sent_again_is_not_done_again(desk: Desk, what: str) -> None:
    prepare(desk)
    call, before = desk.call(WHATS[what][0](desk)), desk.dump()
    assert desk.send(call).result == "done"
    after = desk.dump()
    assert after != before and desk.tick(500).send(call).result == "repeated" and desk.dump() == after
    WHATS[what][1](desk)
    undone = desk.dump()
    for passed_ms in (0, 9_000, 1_000, 19_000):
        assert desk.tick(passed_ms).send(call).result == "repeated"
        assert {key: desk.dump().get(key) for key in undone} == {key: undone[key] for key in undone} or passed_ms == 19_000
    for passed_ms in (1_000, 60_000, HOUR_MS):
        now = desk.tick(passed_ms).dump()
        assert desk.send(call).result == "refused" and desk.dump() == now


@pytest.mark.parametrize("what", WHATS)
def test_rules_01_and_07_an_administration_cut_off_anywhere_is_done_by_the_next_copy(desk: Desk, what: str) -> None:
    for writes in desk.each_cut():
        prepare(desk)
        operation = WHATS[what][0](desk)
        take_markers(desk)
        was_cut = desk.cut_off(operation, writes)
        assert desk.tick(100).run(operation).result == ("done" if was_cut else "repeated")
        check(desk)
        expected = {"resume": 4, "remove a limit": 4, "set a limit": 3}.get(what, 4 if what.endswith("worker") else 2)
        if expected > 2 and not what.endswith("worker"):
            assert "mail" in markers(desk)
        assert len(claimed(desk)) == expected


@pytest.mark.parametrize("name", ["mail", "*"])
def test_rules_07_and_10_a_pause_that_a_clock_left_an_hour_ahead_ends_after_its_own_length(desk: Desk, name: str) -> None:
    prepare(desk)
    desk.pause("other", 24 * HOUR_MS).pause(name, 5000).swept().later(-HOUR_MS)
    assert hash_of(desk, desk.keys.paused)[name] == f"{desk.now_ms + 5000} 5000"
    take_markers(desk)
    slept_ms = 0
    while "mail" not in take_markers(desk):
        assert "mail0" not in claimed(desk)
        desk.tick(500)
        slept_ms += 500
        desk.swept()
        assert slept_ms <= 6000
    assert slept_ms == 5000 and "mail0" in claimed(desk)


def test_rules_07_and_10_the_end_of_a_pause_is_still_known_to_the_ms_after_the_clock_stepped_back(desk: Desk) -> None:
    """The step brings all rests forward, and a sweeper sleeps until the next one."""
    prepare(desk)
    assert desk.pause("mail", 700).swept().tick(-HOUR_MS).sweeps(2).sweep().sleep_ms == 700


def test_rule_07_a_pause_keeps_limited_lanes_where_they_are(desk: Desk) -> None:
    job = desk.set_limit("k:k", concurrency=1).enqueue("mail0", "mail1", name="mail", key="k").one(classes=BOTH)
    check(desk.pause("mail").finished(job.lease), room=True)
    assert claimed(desk) == [] and members(desk, desk.keys.ready("mail")) == ["mail/k"]
    desk.redis.delete(desk.keys.wake("mail"))
    assert not desk.set_limit("n:mail", concurrency=5).redis.exists(desk.keys.wake("mail")), "nobody is woken in vain"
    assert claimed(desk.resume("mail")) == ["mail1"]
    check(desk.past(LEASE_MS + 1), room=True)


def test_rule_07_a_copy_of_a_resume_tells_what_the_first_one_found(desk: Desk) -> None:
    prepare(desk)
    first = desk.pause("mail", length_ms=HOUR_MS).resume_operation("mail")
    found = [desk.run(operation) for operation in (first, first, desk.resume_operation("mail"))]
    assert [(reply.result, reply.was_paused) for reply in found] == [("done", True), ("repeated", True), ("done", False)]
    # One whose time is over is none, whether a sweep has removed it or not.
    assert desk.pause("mail", length_ms=1_000).tick(1_000).run(desk.resume_operation("mail")).was_paused is False
