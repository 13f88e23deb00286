"""What the driver decides about one call, without a socket (rules 5, 27 and 31)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.redis.endpoint import DEADLINE_MS
from engine.redis.exchange import Delivery, GiveUp, SendAgain, Trouble, Verdict, trouble_of_reply

MS = 1_000_000


def delivery(jitter: float = 0.0, deadline_ms: int = DEADLINE_MS) -> Delivery:
    return Delivery(0, lambda: jitter, deadline_ms)


#: What a server says, by what it means for the call.
REPLIES: dict[Trouble, list[str]] = {
    Trouble.TRANSIENT: [
        "NOSCRIPT No matching script.", "LOADING server is loading the dataset in memory",
        "BUSY Redis is busy running a script.", "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down", "MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381",
        "MASTERDOWN Link with MASTER is down", "UNBLOCKED force unblock from blocking operation",
        "READONLY You can't write against a read only replica.",
    ],
    Trouble.REFUSED: [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots", "NOREPLICAS Not enough good replicas to write.",
        "NOAUTH Authentication required.", "NOPERM this user has no permissions",
        "WRONGPASS invalid username-password pair", "DENIED Redis is running in protected mode",
        "ERR max number of clients reached",
    ],
    Trouble.FAULT: [
        "ERR user_script:3: attempt to index a nil value",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "IRONCLAIM sequence exhausted at 2^48", "BUSYGROUP Consumer Group name already exists", "ASKING", "",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("message", "trouble"), [(one, trouble) for trouble in REPLIES for one in REPLIES[trouble]])
def test_error_replies(message: str, trouble: Trouble) -> None:
    assert trouble_of_reply(message) is trouble


@pytest.mark.parametrize("message", ["down", "MOVED 1 h:1", "ASK 1 h:1", "TRYAGAIN"])
def test_pauses_double_and_are_bounded(message: str) -> None:
    steps = [10, 20, 40, 80, *([160, 320, 500, 500, 500] if message == "down" else [100, 100])]
    for jitter, share in ((0.0, 0.5), (1.0, 1.0)):
        sends = delivery(jitter)
        assert [sends.after(Trouble.NOT_SENT, message, 0) for _ in steps] == [SendAgain(int(step * share)) for step in steps]


def test_a_long_outage_overflows_nothing() -> None:
    sends = delivery(0.5)
    for _ in range(2000):
        assert isinstance(sends.after(Trouble.NOT_SENT, "down", 0), SendAgain)


@pytest.mark.parametrize("trouble", [Trouble.NOT_SENT, Trouble.TRANSIENT])
def test_what_was_never_applied_is_unavailable_at_the_deadline(trouble: Trouble) -> None:
    sends = delivery()
    assert isinstance(sends.after(trouble, "no", 9_990 * MS), SendAgain) and sends.definite
    assert sends.after(trouble, "no", 9_990 * MS) == GiveUp(Verdict.UNAVAILABLE)
    assert sends.errors == ["no", "no"] and sends.unanswered == 0


def test_the_deadline_counts_the_pause_that_would_follow() -> None:
    assert delivery(1.0).after(Trouble.NOT_SENT, "", 9_989 * MS) == SendAgain(10)
    assert delivery(1.0).after(Trouble.NOT_SENT, "", 9_990 * MS) == GiveUp(Verdict.UNAVAILABLE)
    assert delivery(deadline_ms=0).after(Trouble.NOT_SENT, "", 0) == GiveUp(Verdict.UNAVAILABLE)


@pytest.mark.parametrize(("last", "at_ms"), [
    *((last, 10_000) for last in (Trouble.NOT_SENT, Trouble.TRANSIENT, Trouble.UNANSWERED, Trouble.REFUSED)),
    (Trouble.REFUSED, 0), (Trouble.FAULT, 0),
])  # fmt: skip
def test_one_unanswered_send_makes_the_end_unknown(last: Trouble, at_ms: int) -> None:
    sends = delivery()
    assert isinstance(sends.after(Trouble.UNANSWERED, "reset", 0), SendAgain) and not sends.definite
    assert sends.after(last, "no", at_ms * MS) == GiveUp(Verdict.UNKNOWN)


def test_a_refusal_and_a_fault_end_at_once_and_are_certain_alone() -> None:
    assert delivery().after(Trouble.REFUSED, "OOM", 0) == GiveUp(Verdict.UNAVAILABLE)
    assert delivery().after(Trouble.FAULT, "ERR", 0) == GiveUp(Verdict.FAULT)


@given(st.lists(st.tuples(st.sampled_from(list(Trouble)), st.integers(0, 12_000)), max_size=30), st.floats(0, 0.999))
def test_certainty_is_never_claimed_after_an_unanswered_send(events: list[tuple[Trouble, int]], jitter: float) -> None:
    sends, unanswered = delivery(jitter), 0
    for trouble, at_ms in sorted(events, key=lambda event: event[1]):
        step = sends.after(trouble, trouble.value, at_ms * MS)
        unanswered += trouble is Trouble.UNANSWERED
        assert sends.definite == (unanswered == 0)
        if isinstance(step, GiveUp):
            assert (step.verdict is Verdict.UNKNOWN) == (unanswered > 0)
            return
        assert trouble not in (Trouble.REFUSED, Trouble.FAULT)
        assert at_ms + step.after_ms < DEADLINE_MS and 0 < step.after_ms <= 500
