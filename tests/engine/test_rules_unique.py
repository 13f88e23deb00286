"""Rule 23: a unique key is its job's until that ends, a dedup key until its window ends; and rules 3 and 5 for both."""

from typing import Any

import pytest

from engine.errors import ServerUnavailable
from tests.engine.helpers.lanes_state import check
from tests.engine.using import LEASE_MS, Bury, CloseWindows, Desk, Enqueue, Enqueued, EnqueueMany, Failure, Finish, Lease, Retry


def add(desk: Desk, job: str, **options: Any) -> tuple[str, str, str]:
    """Enqueue: the result, the job that was there first, and its state."""
    reply: Enqueued = desk.run(desk.enqueue_operation(job, nonce=job.encode().ljust(8, b"-"), **options))
    return reply.result, reply.holder, reply.state


def created(job: str) -> tuple[str, str, str]:
    return ("created", job, "")


def holder(desk: Desk, key: str) -> str | None:
    raw: Any = desk.redis.get(desk.keys.unique(key))
    return raw.decode() if raw else None


def lease_of(desk: Desk) -> Lease:
    return desk.claim(limit=1)[0].lease


@pytest.mark.feature("MQ29")
def test_rule_23_a_unique_key_turns_others_away_through_all_states_of_its_job(desk: Desk) -> None:
    assert add(desk, "j1", unique="u", delay_ms=100) == created("j1")
    assert add(desk, "j2", unique="u") == ("duplicate", "j1", "delayed")
    assert add(desk.swept(100), "j3", unique="u") == ("duplicate", "j1", "waiting")
    lease = lease_of(desk)
    reply = desk.run(desk.enqueue_operation("j4", unique="u", nonce=b"4-------"))
    assert (reply.result, reply.holder, reply.state, reply.fence) == ("duplicate", "j1", "active", lease.fence)
    assert add(desk.retried(lease, delay_ms=100), "j5", unique="u") == ("duplicate", "j1", "delayed")
    desk.tick(100).release(lease_of(desk))
    assert add(desk, "j6", unique="u", name="another", key="k") == ("duplicate", "j1", "waiting")
    lease_of(desk)
    assert add(desk.past(LEASE_MS + 1), "j7", unique="u") == ("duplicate", "j1", "waiting")
    assert add(desk, "j8", unique="v") == created("j8") and add(desk, "j9") == created("j9")
    assert [job.lease.job for job in desk.claim()] == ["j1", "j8", "j9"]


@pytest.mark.feature("MQ29")
@pytest.mark.parametrize("how", ["finish", "fused", "bury", "attempts", "crashes"])
def test_rule_23_the_end_of_its_job_frees_the_key(desk: Desk, how: str) -> None:
    add(desk, "j1", unique="u", attempts=1, crashes_max=2)
    if how == "crashes":
        assert holder(desk.crashed("j1"), "u") == "j1"
        desk.crash("j1")
    else:
        desk.end({"attempts": "retry"}.get(how, how), lease_of(desk))
    assert holder(desk, "u") is None and add(desk, "j2", unique="u") == created("j2") and holder(desk, "u") == "j2"


@pytest.mark.parametrize("what", ["gone", "ended", "dead", "names another key"])
def test_rule_23_a_key_whose_holder_is_no_more_is_taken_over(desk: Desk, what: str) -> None:
    """What a cut-off script or a lost tail of the server's data may leave."""
    lease = desk.lease("old", unique="other" if what == "names another key" else "u")
    if what in ("ended", "dead"):
        desk.end("finish" if what == "ended" else "bury", lease)
    elif what == "gone":
        desk.redis.delete(desk.keys.job("old"), desk.keys.run("old"))
    desk.redis.set(desk.keys.unique("u"), "old")
    assert add(desk, "new", unique="u") == created("new") and holder(desk, "u") == "new"


@pytest.mark.parametrize("how", ["finish", "bury"])
def test_rule_23_a_job_frees_only_its_own_key(desk: Desk, how: str) -> None:
    lease = desk.lease("j1", unique="u")
    desk.redis.set(desk.keys.unique("u"), "somebody")
    desk.end(how, lease)
    assert holder(desk, "u") == "somebody"


def test_rule_23_a_repeated_end_does_not_free_the_key_of_the_next_job(desk: Desk) -> None:
    lease = desk.lease("j1", unique="u")
    add(desk.finished(lease), "j2", unique="u")
    assert desk.finish(lease) == [("repeated", "finished")] and holder(desk, "u") == "j2"


def test_rule_23_a_dedup_window_lasts_its_length_whatever_becomes_of_its_job(desk: Desk) -> None:
    assert add(desk, "j1", dedup="d", dedup_ms=1000) == created("j1")
    assert add(desk, "j2", dedup="d", dedup_ms=1000) == ("duplicate", "j1", "waiting")
    assert add(desk.finished(lease_of(desk)).tick(999), "j3", dedup="d", dedup_ms=60_000) == ("duplicate", "j1", "finished")
    assert add(desk, "j4", dedup="e", dedup_ms=1000) == created("j4")
    assert add(desk.tick(1), "j5", dedup="d", dedup_ms=1000) == created("j5")
    desk.redis.delete(desk.keys.job("j5"))
    assert add(desk, "j6", dedup="d", dedup_ms=1000) == ("duplicate", "j5", "gone")


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_rule_23_a_window_keeps_out_the_id_of_its_own_job_when_nothing_else_is_left_of_it(desk: Desk, many: bool) -> None:
    def send(nonce: bytes) -> tuple[str, str, str]:
        operation: Any = desk.enqueue_operation("j1", nonce=nonce, dedup="d", dedup_ms=60_000)
        reply = desk.run(EnqueueMany((operation,)) if many else operation)
        item = reply.items[0] if many else reply
        return item.result, item.holder, item.state

    assert send(b"1-------") == created("j1")
    assert desk.finished(lease_of(desk)).tick(59_999).redis.get(desk.keys.job("j1")) is None, "its tombstone has ended"
    for _ in range(2):
        # The second time the record of the first refusal is under its id.
        assert send(b"2-------") == ("duplicate", "j1", "gone")
    assert send(b"3-------") == ("duplicate", "j1", "gone")
    assert add(desk, "j2", dedup="d", dedup_ms=60_000) == ("duplicate", "j1", "gone") and desk.claim() == []
    desk.tick(1)
    assert send(b"4-------") == created("j1")


def close(desk: Desk, *items: tuple[str, str]) -> int:
    return desk.run(CloseWindows(items)).count


def test_rule_23_a_closed_window_lasts_20_s_more_and_never_longer_than_before(desk: Desk) -> None:
    add(desk, "j1", dedup="d", dedup_ms=1_000_000)
    add(desk, "j2", dedup="e", dedup_ms=5_000)
    add(desk, "j3", dedup="f", dedup_ms=1_000_000)
    desk.finished(*[job.lease for job in desk.claim()]).tick(1_000)
    assert close(desk, ("d", "j1"), ("e", "j2"), ("f", "j1"), ("g", "j1")) == 2
    ends = {key: desk.redis.pexpiretime(desk.keys.dedup(key)) - desk.now_ms for key in "def"}
    assert ends == {"d": 20_000, "e": 4_000, "f": 999_000}, "e was shorter, and f belongs to another job"
    assert close(desk.tick(10_000), ("d", "j1")) == 1
    assert add(desk.tick(9_999), "j9", dedup="d", dedup_ms=1_000_000) == ("duplicate", "j1", "finished")
    assert close(desk.tick(1), ("d", "j1")) == 0 and desk.redis.exists(desk.keys.dedup("d")) == 0


def test_rules_03_and_23_whoever_fixed_its_deadline_before_a_window_was_closed_comes_in_no_more(desk: Desk) -> None:
    """Two enqueues of one id; the window of the first is closed, and the other one, which was held up, arrives at any time."""
    for late_ms in (0, 9_999, 10_000, 10_001, 20_000, 20_001, 1_000_000):
        held_up = desk.begin().call(desk.enqueue_operation("j1", nonce=b"late----", dedup="d", dedup_ms=1_000_000))
        add(desk, "j1", dedup="d", dedup_ms=1_000_000)
        desk.finished(lease_of(desk)).redis.delete(desk.keys.job("j1"))
        close(desk, ("d", "j1"))
        assert desk.tick(late_ms).send(held_up).result == ("duplicate" if late_ms <= 10_000 else "refused"), late_ms
        assert desk.claim() == []


def test_rule_23_both_options_of_one_job_keep_others_out_each_by_itself(desk: Desk) -> None:
    assert add(desk, "j1", unique="u", dedup="d", dedup_ms=1000) == created("j1")
    assert add(desk, "j2", unique="u", dedup="e", dedup_ms=1000) == ("duplicate", "j1", "waiting")
    assert add(desk, "j3", unique="v", dedup="d", dedup_ms=1000) == ("duplicate", "j1", "waiting")
    # Who was turned away has taken neither key.
    assert add(desk, "j4", unique="v", dedup="e", dedup_ms=1000) == created("j4")
    assert add(desk.finished(lease_of(desk)), "j5", unique="u", dedup="d", dedup_ms=1000) == ("duplicate", "j1", "finished")
    assert add(desk, "j6", unique="u") == created("j6")


@pytest.mark.parametrize("option", ["unique", "dedup"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_rules_03_and_23_a_copy_of_a_call_that_was_turned_away_stays_turned_away(desk: Desk, option: str, many: bool) -> None:
    options: dict[str, Any] = {"unique": "u"} if option == "unique" else {"dedup": "d", "dedup_ms": 1000}
    add(desk, "j1", **options)
    operation: Any = desk.enqueue_operation("late", nonce=b"late----", **options)
    call = desk.call(EnqueueMany((operation,)) if many else operation)

    def send() -> tuple[str, str, str]:
        reply = desk.send(call)
        item = reply.items[0] if many else reply
        return item.result, item.holder, item.state

    assert send() == ("duplicate", "j1", "waiting")
    with desk.unchanged():
        assert send() == ("duplicate", "j1", "waiting")
    desk.finished(lease_of(desk)).tick(2000)
    for passed_ms in (0, 7_000, 1_001, 10_000):
        desk.tick(passed_ms)
        assert send() == ("duplicate", "j1", "finished"), "also after its not_after_ms, while the record lives"
    desk.tick(60_000)
    assert (send()[0], desk.claim("b")) == ("refused", [])
    # The id is free for other calls all the while.
    add(desk.begin(), "j1", **options)
    add(desk, "late", **options)
    desk.finished(lease_of(desk)).tick(1000)
    assert desk.run(desk.enqueue_operation("late", nonce=b"another-", **options)).result == "created"


def test_rule_23_a_repeated_enqueue_opens_no_second_window(desk: Desk) -> None:
    call = desk.call(desk.enqueue_operation("j1", dedup="d", dedup_ms=1000))
    assert desk.send(call).result == "created"
    with desk.tick(1500).unchanged():
        assert desk.send(call).result == "repeated"
    assert add(desk, "j2", dedup="d", dedup_ms=1000) == created("j2")


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_rules_01_and_23_an_enqueue_cut_off_anywhere_and_sent_again_has_both_its_keys(desk: Desk, many: bool) -> None:
    for writes in desk.each_cut():
        one = desk.enqueue_operation("j1", unique="u", dedup="d", dedup_ms=5000)
        operation: Any = EnqueueMany((one,)) if many else one
        assert holder(desk.cut(operation, writes).tick(300).did(operation), "u") == "j1"
        assert desk.redis.get(desk.keys.dedup("d")) == b"j1", writes
        assert desk.redis.pexpiretime(desk.keys.dedup("d")) in (desk.now_ms + 4700, desk.now_ms + 5000)
        assert [job.lease.job for job in desk.claim()] == ["j1"]
        check(desk)


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_rules_01_and_23_an_enqueue_cut_off_and_never_sent_again_keeps_no_one_out_for_ever(desk: Desk, many: bool) -> None:
    for writes in desk.each_cut():
        one = desk.enqueue_operation("j1", unique="u", dedup="d", dedup_ms=5000)
        there = bool(desk.cut(EnqueueMany((one,)) if many else one, writes).redis.exists(desk.keys.job("j1")))
        assert add(desk, "j2", unique="u")[0] == ("duplicate" if there else "created"), writes
        assert add(desk.finished(*(job.lease for job in desk.claim())), "j3", unique="u") == created("j3")
        check(desk)


@pytest.mark.parametrize("how", ["finish", "fused", "bury", "retry", "reap"])
@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
def test_rules_01_and_23_an_end_cut_off_anywhere_leaves_no_key_that_keeps_others_out(desk: Desk, how: str, resend: bool) -> None:
    for writes in desk.each_cut():
        add(desk, "j1", unique="u", attempts=1, crashes_max=2)
        if how == "reap":
            lease = lease_of(desk.crashed("j1"))
            desk.marked(lease).past(LEASE_MS).tick(1)
        else:
            lease = lease_of(desk)
        failure = Failure(lease, "no")
        operation: Any = {
            **{"finish": Finish((lease,)), "fused": Finish((lease,), desk.claim_operation())},
            **{"bury": Bury((failure,)), "retry": Retry((failure,)), "reap": desk.sweep_operation()},
        }[how]
        desk.cut_off(operation, writes)
        if resend:
            desk.run(operation)
        for _ in range(3):
            desk.finish(*(job.lease for job in desk.past(LEASE_MS + 1).claim("b")))
        assert add(desk, "j2", unique="u") == created("j2"), writes
        assert holder(desk, "u") == "j2"


def test_rule_23_in_a_bulk_each_job_is_judged_by_itself_and_against_those_before_it(desk: Desk) -> None:
    add(desk, "old", unique="taken", dedup="seen", dedup_ms=9000)
    jobs = (
        *(make(desk, "a", unique="u"), make(desk, "b", unique="u"), make(desk, "c", unique="taken")),
        *(make(desk, "d", dedup="w", dedup_ms=1000, delay_ms=500), make(desk, "e", dedup="w", dedup_ms=1000)),
        make(desk, "f", dedup="seen", dedup_ms=1000, unique="v"),
        *(make(desk, "g", unique="v", name="other", key="k"), make(desk, "h")),
        # Kept out by both: its unique key comes first, wherever the holders are.
        make(desk, "i", unique="taken", dedup="w", dedup_ms=1000),
    )
    call = desk.call(EnqueueMany(jobs))
    first = desk.send(call)
    assert [(item.job, item.result, item.holder, item.state) for item in first.items] == [
        *(("a", "created", "a", ""), ("b", "duplicate", "a", "waiting")),
        *(("c", "duplicate", "old", "waiting"), ("d", "created", "d", "")),
        *(("e", "duplicate", "d", "delayed"), ("f", "duplicate", "old", "waiting")),
        *(("g", "created", "g", ""), ("h", "created", "h", ""), ("i", "duplicate", "old", "waiting")),
    ]
    with desk.unchanged():
        second = desk.send(call)
        assert [(item.result.replace("repeated", "created"), item.holder, item.state) for item in second.items] == [
            (item.result, item.holder, item.state) for item in first.items
        ]
    assert [holder(desk, key) for key in ("u", "taken", "v")] == ["a", "old", "g"]
    check(desk)
    claimed = desk.claim(classes=("main", "other"))
    assert {job.lease.job for job in claimed} == {"old", "a", "g", "h"}
    desk.finish(*[job.lease for job in claimed])
    # Everything but the windows is over, and a late copy still runs nothing.
    assert [item.result for item in desk.send(call).items].count("created") == 0
    assert [job.lease.job for job in desk.tick(500).claim()] == ["d"]


def test_rules_01_and_23_a_bulk_with_keys_cut_off_anywhere_and_sent_again_makes_the_same_jobs(desk: Desk) -> None:
    for writes in desk.each_cut():
        late = make(desk, "c", dedup="d", dedup_ms=5000, delay_ms=100)
        others = make(desk, "e", dedup="d", dedup_ms=5000, name="other"), make(desk, "f", unique="v", name="other")
        operation = EnqueueMany((make(desk, "a", unique="u", key="k"), make(desk, "b", unique="u"), late, *others))
        desk.cut_off(operation, writes)
        results = [item.result.replace("repeated", "created") for item in desk.run(operation).items]
        assert results == ["created", "duplicate", "created", "duplicate", "created"], writes
        assert (holder(desk, "u"), holder(desk, "v")) == ("a", "f")
        assert desk.redis.get(desk.keys.dedup("d")) == b"c", writes
        check(desk)
        desk.tick(100)
        assert sorted(job.lease.job for job in desk.claim(classes=("main", "other"))) == ["a", "c", "f"]


def test_rule_23_under_memory_pressure_an_enqueue_takes_no_key_and_an_end_frees_its_own(desk: Desk) -> None:
    lease = desk.lease("j1", unique="u")
    with desk.full():
        with desk.unchanged():
            for options in ({"unique": "u"}, {"unique": "v"}, {"dedup": "d", "dedup_ms": 1000}):
                operation: Enqueue = desk.enqueue_operation("j2", nonce=b"j2------", **options)
                for each in (operation, EnqueueMany((operation,))):
                    with pytest.raises(ServerUnavailable, match="OOM"):
                        desk.run(each)
        assert desk.finish(lease) == [("ok", "finished")] and holder(desk, "u") is None


def make(desk: Desk, job: str, **options: Any) -> Enqueue:
    """An enqueue whose nonce is that of a bulk."""
    return desk.enqueue_operation(job, nonce=b"bulk----", **options)


def test_rule_23_the_longest_keys_are_read_whole(desk: Desk) -> None:
    """Scripts that only need its head read 700 bytes of an envelope."""
    name, key, unique = "n" * 128, "k" * 100, "u" * 128
    assert desk.run(desk.enqueue_operation("j1", unique=unique, key=key, name=name)).result == "created"
    again = desk.enqueue_operation("j2", unique=unique, key=key, name=name, nonce=b"another-")
    assert (desk.run(again).result, desk.run(again).holder) == ("duplicate", "j1")
    job = desk.one(classes=(name,))
    assert (job.options.key, job.options.unique, job.lane) == (key, unique, f"{name}/{key}")
    assert holder(desk.finished(job.lease), unique) is None
