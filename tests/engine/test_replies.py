"""Replies that no script gives: refused where they are read, so that what they leave out does not count as told."""

from typing import Any

import pytest

from engine import Lock, OutcomeUnknown, Queue, ScriptFault
from engine.models.lanes_keys import LanesKeys
from engine.models.model import Model
from engine.redis.exchange import Sent
from tests.engine.ops import EnableSchedule, ListSchedules, ListWorkers, LockReply
from tests.engine.using import Administered, Alter, Claim, Extend, Finish, Inspect, Lease, Operation, Pause, ReadProgress, refused

LEASE, LOOKED = Lease("a", 1, "n"), [b"waiting", b"0", b"0", b"", []]


@pytest.mark.parametrize(("operation", "raw", "said"), [
    (Pause("send", 0), [b"1", b"done"], "it does not begin with the server's time"),
    (Pause("send", 0), [1, b"dome"], "dome is none of"),
    (Alter("cancel", ("a",), "waiting"), [1, b"done", [b"done", b"waiting"]], "2 words for 1 jobs"),
    (Claim("i", 1, 9, 9, 9, "w", 9, ("send",)), [1, 0, b"ok", 0, [], [b"a", 1]], "2 values for jobs of 7 each"),
    (Extend((LEASE,), 1, 9, 9), [1, []], "0 items for 1 leases"), (Finish((LEASE,)), [1, 2], "2 items for 1 leases"),
    (Inspect(("a",)), [1], "0 items for 1 jobs"), (Inspect(("a",)), [1, LOOKED, LOOKED], "2 items for 1 jobs"),
    (ReadProgress("a"), 7, "neither a text nor nothing"),
    (EnableSchedule("nightly", True, 0), [1, b"done", b"what"], "done what"),
    (ListSchedules(), [1, 1, [b"x"]], "1 words for schedules of 14 each"),
])  # fmt: skip
def test_a_reply_outside_of_the_contract_is_refused(operation: Operation, raw: Any, said: str) -> None:
    model = Queue("mails").model
    fault = refused(ScriptFault, f"^{type(operation).__name__}: reply outside the contract ", model.parse, operation, raw)
    assert f"({said}" in str(fault)


def test_a_beat_says_who_lives_and_one_with_a_number_that_no_worker_has_is_unreadable() -> None:
    about = b'{"name":"w","pid":-1}'
    beats = [b"a", b"6000", b"1 2000 9000 5 " + about, b"b", b"5000", b"1 2000 9000 5 {}", b"c", b"5001", b"1 2000 9000 5 {}"]
    worker, *others = ListWorkers(0, 9).parse([5_000_000, b"c", beats], None).workers
    told = [(each.incarnation, each.alive, each.beat_age_ms, each.leads) for each in others]
    assert told == [("b", False, 2_000, False), ("c", True, 1_999, True)]
    assert worker.unreadable == "its beat cannot be read: pid is no number of a worker"
    assert (worker.alive, worker.beat_age_ms, worker.pid) == (True, 1_000, 0)


def test_of_what_was_refused_as_late_nobody_knows_what_its_first_copy_did(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, reply = Queue("mails"), LockReply(1, "refused")
    monkeypatch.setattr(queue, "send_in_time", lambda operation: Sent(reply, 0, 0, definite=False))
    refused(OutcomeUnknown, "lock door: refused as late", queue.locks.acquire, "door")
    refused(OutcomeUnknown, "lock door: refused as late", queue.locks.extend, Lock("door", 16 * "a", 1, 2))
    reply = Administered(1, "refused")
    refused(OutcomeUnknown, "the call was refused as late", queue.pause, "send")


def test_what_a_model_or_an_operation_leaves_out_is_not_taken_for_nothing() -> None:
    class Bare(Model):
        name = "bare"

    bare: Any = Bare(LanesKeys("mails", "ic"), {}, {})
    for call in (
        *(lambda: bare.sibling("other"), lambda: bare.decode(b"", LEASE, 0, (0, 0, 0)), lambda: bare.template(None)),
        *(lambda: bare.read_template(b""), lambda: bare.job_keys([]), lambda: bare.alter(None)),
        *(lambda: Operation().parse([], None), lambda: Operation().merge([])),
    ):
        refused(NotImplementedError, None, call)
