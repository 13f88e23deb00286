"""Rule 25: callbacks are made by the call that ends their job, once, and read what it has left."""

import json
from typing import Any

import pytest

from tests.engine.ops import Alter, Bury, Drop, Enqueue, Failure, Finish, LeasedJob, Options, Parent, Retry, Value
from tests.engine.using import LEASE_MS, Desk, check, members, names_of


def callback(name: str, parent: str, payload: bytes = b"1") -> Enqueue:
    return Enqueue("", name, payload, b"", Options(needs=(Parent.named(parent, "main"),)))


def add(desk: Desk, job: str, **options: Any) -> str:
    both: dict[str, Any] = {"on_success": callback("yes", job), "on_failure": callback("no", job, b"2")}
    return desk.run(desk.enqueue_operation(job, nonce=job.encode().ljust(8, b"-"), **(both | options))).result


def called(desk: Desk, worker: str = "c") -> list[LeasedJob]:
    return desk.claim(worker, classes=("yes", "no"))


def left(desk: Desk) -> list[str]:
    """What of callbacks is still there."""
    found = [*names_of(desk, desk.keys.prefix + "calls:*"), *names_of(desk, desk.keys.feeds("*"))]
    return [*found, *members_of_set(desk, desk.keys.feeding)]


def members_of_set(desk: Desk, key: str) -> list[str]:
    return sorted(member.decode() for member in desk.redis.smembers(key))


def test_rule_25_a_success_makes_its_callback_in_the_call_that_finishes(desk: Desk) -> None:
    add(desk, "j")
    lease = desk.claim()[0].lease
    assert called(desk) == []
    operation = Finish((lease,), values=(Value(0, b'{"n":1}', 60_000, 7),))
    (job,) = called(desk.did(operation))
    assert (job.name, job.payload, job.options.needs, job.lease.job) == ("yes", b"1", ("j",), "j>success:1")
    assert job.left[0] == "" and json.loads(job.left[1])["value"] == {"n": 1} and left(desk) == []
    # A copy of the finish makes no second one.
    assert called(desk.did(operation).swept()) == []
    check(desk)


@pytest.mark.parametrize("how", ["attempts", "bury", "crashes", "expired", "discard", "reroute", "parent"])
def test_rule_25_a_failure_makes_its_callback_however_the_job_ends(desk: Desk, how: str) -> None:
    desk.enqueue("p")
    more: dict[str, Any] = {"expires_ms": 100} if how == "expired" else {"needs": ("p",)} if how == "parent" else {}
    add(desk, "j", attempts=1, crashes_max=2, priority=9, **more)
    cause = how
    if how == "expired":
        desk.later(100)
    elif how == "parent":
        desk.buried(desk.claim()[0].lease).swept()
        cause = "its parent p is dead"
    elif how == "crashes":
        desk.did(Bury((Failure(desk.claim(limit=2)[1].lease, "no"),))).past(LEASE_MS + 1).crash("j")
        cause = "crashed 2 times, 1 are allowed"
    else:
        lease = desk.claim(limit=1)[0].lease
        if how == "attempts":
            assert desk.retry(lease, error="ValueError: 7") == ("ok", "buried")
            cause = "ValueError: 7"
        elif how == "bury":
            desk.run(Bury((Failure(lease, "said so"),)))
            cause = "said so"
        else:
            cause = "discarded" if how == "discard" else "rerouted"
            desk.run(Drop((lease,), (cause,)))  # type: ignore[arg-type]
        assert len(members(desk, desk.keys.lane("no"))) == desk.redis.llen(desk.keys.wake("no")) == 1, "the idle hear of it"
    (job,) = called(desk)
    assert (job.name, job.payload, job.options.needs, job.left[0]) == ("no", b"2", ("j",), cause)
    assert called(desk.swept()) == [] and "j" not in members_of_set(desk, desk.keys.feeding)


@pytest.mark.parametrize("state", ["waiting", "active", "delayed", "blocked"])
def test_rule_25_who_ends_a_job_by_hand_calls_nobody(desk: Desk, state: str) -> None:
    add(desk.enqueue("p", name="other"), "j", **{"delayed": {"delay_ms": 9}, "blocked": {"needs": ("p",)}}.get(state, {}))
    if state == "active":
        desk.claim()
    desk.did(Alter("cancel", ("j",), state, op_id="0" * 16, not_after_ms=desk.now_ms + 10_000)).sweep()
    assert called(desk) == []
    # The other job still has its child listed until it ends.
    assert set(left(desk)) <= {"p"}


def test_rule_25_a_skipped_job_has_failed_and_one_without_that_callback_makes_none(desk: Desk) -> None:
    add(desk, "j", on_success=None)
    add(desk, "k", on_failure=None)
    first, second = (job.lease for job in desk.claim())
    desk.run(Drop((first, second), ("skipped", "skipped")))
    assert [(job.options.needs, job.left[0]) for job in called(desk)] == [(("j",), "skipped")]
    assert left(desk) == []


def test_rule_25_a_dead_job_that_is_requeued_calls_back_no_second_time(desk: Desk) -> None:
    add(desk, "j", attempts=1)
    assert [job.name for job in called(desk.retried(desk.claim()[0].lease))] == ["no"]
    desk.run(Alter("requeue", ("j",), "dead", op_id="0" * 16, not_after_ms=desk.now_ms + 10_000))
    assert called(desk.finished(desk.claim()[0].lease)) == []


def test_rule_25_a_later_job_of_the_same_id_has_callbacks_of_its_own(desk: Desk) -> None:
    """A claim has ended the first, and no sweep has come since."""
    add(desk, "j", expires_ms=100)
    assert desk.tick(100).claim() == []
    desk.tick(40_000)
    again = desk.enqueue_operation("j", nonce=b"another-", on_success=callback("yes", "j"), on_failure=callback("no", "j"))
    assert desk.run(again).result == "created"
    assert [(job.lease.job, job.left[0]) for job in called(desk.swept())] == [("j>failure:1", "gone")]
    assert [job.lease.job for job in called(desk.finished(desk.claim()[0].lease), "d")] == ["j>success:2"]


@pytest.mark.parametrize("end", ["finish", "retry", "bury", "drop", "expire"])
def test_rule_25_cut_off_after_any_write_a_callback_comes_once(desk: Desk, end: str) -> None:
    for writes in desk.each_cut():
        add(desk, "j", attempts=1, expires_ms=100 if end == "expire" else 0)
        if end == "expire":
            operation: Any = desk.tick(100).sweep_operation()
        else:
            lease = desk.claim()[0].lease
            failure = Failure(lease, "no")
            operation = {
                **{"finish": Finish((lease,), values=(Value(0, b"1", 9_000, 1),)), "drop": Drop((lease,), ("discarded",))},
                **{"bury": Bury((failure,)), "retry": Retry((failure,))},
            }[end]
        jobs = called(desk.cut(operation, writes).did(operation).swept().swept())
        assert [job.name for job in jobs] == ["yes" if end == "finish" else "no"], writes
        assert called(desk.finished(*(job.lease for job in jobs)).swept(30_000)) == [] and left(desk) == [], writes
    assert writes > 5


def test_rule_25_an_enqueue_that_is_cut_off_and_sent_again_calls_back_once(desk: Desk) -> None:
    for writes in desk.each_cut():
        both: dict[str, Any] = {"on_success": callback("yes", "j"), "on_failure": callback("no", "j")}
        operation = desk.enqueue_operation("j", nonce=b"nonce---", unique="u", **both)
        assert called(desk.cut(operation, writes).swept()) == [] and desk.run(operation).result in ("created", "repeated")
        assert [job.name for job in called(desk.finished(desk.claim()[0].lease).swept())] == ["yes"], writes
    assert writes > 3


def test_rule_25_many_callbacks_of_one_call_come_a_hundred_at_once_and_the_rest_with_a_sweep(desk: Desk) -> None:
    for at in range(150):
        add(desk, f"j{at}")
    desk.run(Finish(tuple(job.lease for job in desk.claim(limit=150))))
    assert len(members(desk, desk.keys.lane("yes"))) == 100
    assert len(members(desk.swept(), desk.keys.lane("yes"))) == 150 and left(desk) == []


def test_rule_25_a_child_reads_what_its_parents_have_left_whenever_they_ended(desk: Desk) -> None:
    early, late, silent, bad = (job.lease for job in desk.leased("early", "late", "silent", "bad"))
    desk.did(Finish((early,), values=(Value(0, b'"e"', 60_000, 1),))).bury(bad)
    assert desk.enqueue("child", needs=("late", "early", "silent", "bad"), on_parent_failure="ignore").claim() == []
    operation = desk.did(Finish((late, silent), values=(Value(0, b"[2]", 60_000, 1),))).claim_operation()
    (job,) = desk.run(operation).jobs
    cause, *records = job.left
    assert cause == ""
    assert [json.loads(record).get("value") if record else None for record in records] == [[2], "e", None, None]
    # A copy of the claim says the same, and so does the next run.
    assert desk.run(operation).jobs[0].left == job.left
    assert desk.retried(job.lease, delay_ms=1).tick(1).claim()[0].left == job.left


def test_rule_25_a_result_stays_until_the_callback_has_run_however_late(desk: Desk) -> None:
    add(desk, "j")
    desk.did(Finish((desk.claim()[0].lease,), values=(Value(0, b"1", 60_000, 7),)))
    kept_ms = 1 << 48
    assert desk.swept(60_001).redis.pexpiretime(desk.keys.result("j")) > kept_ms
    (job,) = called(desk)
    assert json.loads(job.left[1])["value"] == 1 and desk.finish(job.lease) == [("ok", "finished")]
    assert 0 < desk.swept().redis.pexpiretime(desk.keys.result("j")) < kept_ms


def test_rule_25_results_count_among_the_bytes_of_a_claim(desk: Desk) -> None:
    desk.enqueue("p")
    big = json.dumps("x" * 500_000).encode()
    desk.run(Finish((desk.claim()[0].lease,), values=(Value(0, big, 60_000, 1),)))
    desk.enqueue(*(f"c{at}" for at in range(4)), needs=("p",))
    assert [len(desk.claim()) for _ in range(2)] == [2, 2]


def test_rule_25_jobs_without_parents_send_and_are_sent_nothing_more(desk: Desk) -> None:
    call = desk.enqueue("j").call(desk.claim_operation())
    raw: Any = desk.redis.eval(call.script.text, len(call.keys), *call.keys, *call.arguments)  # type: ignore[union-attr]
    assert len(raw) == 6 and not desk.redis.exists(desk.keys.feeding)
