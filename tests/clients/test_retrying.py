"""When the Python client sends a request again: the decisions by themselves, with a clock and a chance that the test holds."""

import pytest

from ironclaim_client import OutcomeUnknown, Retries, ServerUnavailable
from ironclaim_client.retrying import REPEATED_MS_MAX, Attempts, Call, Failure
from tests.engine.helpers.producing import refused

LOOK = Call(method="GET", path="/look")
CHANGE = Call(method="POST", path="/change", changes=True)
ONCE = Call(method="POST", path="/once", changes=True, once=True)
LOST = Failure("lost", undone=False)
UNDONE = Failure("refused", undone=True)


def attempts(call: Call, now: list[float], **retries: int) -> Attempts:
    return Attempts(call, Retries(**retries), now_ms=lambda: now[0], share=lambda: 1.0)


def test_the_waits_double_up_to_the_longest_and_shrink_by_chance() -> None:
    retries = Retries(first_ms=100, longest_ms=500)
    assert [retries.pause_ms(failures, 1.0) for failures in (1, 2, 3, 4, 1_000)] == [100, 200, 400, 500, 500]
    assert [retries.pause_ms(3, share) for share in (0.0, 0.25, 0.5)] == [0, 100, 200]


def test_what_only_looks_is_repeated_until_the_deadline_and_nothing_was_done() -> None:
    now = [0.0]
    tried = attempts(LOOK, now, deadline_ms=1_000, first_ms=100, longest_ms=100)
    assert tried.after(LOST) == 100
    now[0] = 899
    assert tried.after(LOST) == 100
    now[0] = 900
    refused(ServerUnavailable, r"^GET /look: lost \(attempt 3\)$", tried.after, LOST)


PAIRS = [((UNDONE, UNDONE), ServerUnavailable), ((LOST, UNDONE), OutcomeUnknown), ((UNDONE, LOST), OutcomeUnknown)]


@pytest.mark.parametrize(("failures", "error"), PAIRS)
def test_a_change_is_unknown_as_soon_as_one_attempt_was(failures: tuple[Failure, Failure], error: type[Exception]) -> None:
    now = [0.0]
    tried = attempts(CHANGE, now)
    tried.after(failures[0])
    now[0] = 10_000
    refused(error, None, tried.after, failures[1])


def test_what_would_do_harm_twice_is_sent_once() -> None:
    refused(OutcomeUnknown, "^POST /once: lost$", attempts(ONCE, [0.0]).after, LOST)
    refused(ServerUnavailable, None, attempts(ONCE, [0.0]).after, UNDONE)
    # Without a deadline there is one attempt for all.
    refused(OutcomeUnknown, None, attempts(CHANGE, [0.0], deadline_ms=0).after, LOST)


def test_the_server_may_ask_for_a_longer_wait_but_not_beyond_the_deadline() -> None:
    assert attempts(LOOK, [0.0]).after(Failure("busy", True, retry_after_ms=3_000)) == 3_000
    refused(ServerUnavailable, None, attempts(LOOK, [0.0]).after, Failure("busy", True, retry_after_ms=10_000))


def test_nothing_is_repeated_after_the_server_may_have_forgotten_the_id() -> None:
    """The engine knows an id for 20 s after the end of its job (docs/protocol.md), so a repetition has to be there before."""
    assert REPEATED_MS_MAX < 20_000 and Retries(deadline_ms=REPEATED_MS_MAX).deadline_ms == REPEATED_MS_MAX
