"""Cases of J20 (ends say what handlers did) and J21 (leases are as long as asked)."""

from typing import Any

from tests.reports.cases.base import W1, W3, case, ended, told
from tests.reports.story import LEASE_MS, Story, srv_ms

# --- J20: the call that ends a lease says what its handler did -------------------------------------------------------------


@case(("J20", "finished unhandled"))
def finished_and_no_handler_started(story: Story, job: str) -> None:
    story.finish(story.leased(W1, job, 3), 3.1, effect=3.05)


@case(("J20", "finished too soon"))
def finished_while_its_handler_runs(story: Story, job: str) -> None:
    story.finish(story.leased(W1, job, 3), 3.1, start=3.01, took=0.0915, effect=3.05)


@case(("J20", "finished while handled"))
def finished_and_its_handler_never_ended(story: Story, job: str) -> None:
    story.finish(story.handled(W1, job, 3, took=None), 3.1, effect=3.05)


@case(("J20", "finished though failed"))
def finished_though_its_handler_raised(story: Story, job: str) -> None:
    story.finish(story.handled(W1, job, 3, end="fail"), 3.1, effect=3.05)


def retried(story: Story, job: str, at: float = 3.1, **handled: Any) -> None:
    story.end("retry", story.handled(W1, job, 3, **handled), at=at, delay_ms=100)
    story.run(W1, job, at + 0.2)


GIVEN_UP = ("J20", "given up though done")
told("retried-though-its-handler-returned", retried, GIVEN_UP)
told("retried-though-its-handler-returned-in-time", lambda story, job: retried(story, job, timeout_ms=1_000), GIVEN_UP)
told("retried-while-its-handler-went-on-which-may-take-any-time", lambda story, job: retried(story, job, took=2), GIVEN_UP)
# By the handler it took 1 ms less, by the claim's answer 8 ms more.
ABOUT = {"took": 0.08, "timeout_ms": 81}
told("retried-when-its-time-may-have-been-up", lambda story, job: retried(story, job, **ABOUT), (*GIVEN_UP, "unknown"))
OUTLIVED = {"took": 2, "timeout_ms": 80}
told("retried-after-its-handler-raised", lambda story, job: retried(story, job, end="fail"))
told("retried-when-its-time-was-up-while-its-handler-went-on", lambda story, job: retried(story, job, **OUTLIVED))
told("retried-long-after-its-time-was-up-and-its-handler-returned", lambda story, job: retried(story, job, 6, **OUTLIVED))


told("released-before-any-handler-started", lambda story, job: ended(story, job, "release", again=3.3))


@case()
def a_zombies_handler_returns_late_and_its_finish_is_refused(story: Story, job: str) -> None:
    token = story.handled(W1, job, 3, took=10)
    story.reap(W3, token, 12.1)
    story.run(W3, job, 12.2)
    story.end("finish", token, at=13.1, result="stale")


@case(("J20", "handled twice"))
def two_handlers_under_one_token(story: Story, job: str) -> None:
    story.finish(story.handled(W1, job, 3, took=0.02), 3.1, start=3.04, took=0.02, effect=3.05)


# --- J21: no lease is longer than what was asked for -----------------------------------------------------------------------


@case(("J21", "lease too long"))
def a_claim_with_a_lease_longer_than_asked(story: Story, job: str) -> None:
    story.run(W1, job, 3, enqueued=2, deadline_ms=srv_ms(3) + LEASE_MS + 2)


@case()
def a_claim_whose_reply_rounds_the_servers_time(story: Story, job: str) -> None:
    story.run(W1, job, 3, enqueued=2, deadline_ms=srv_ms(3) + LEASE_MS + 1)


@case(("J21", "lease too long"))
def an_extend_that_gives_more_than_asked(story: Story, job: str) -> None:
    token = story.leased(W1, job, 3)
    item = token.item(result="ok", deadline_ms=srv_ms(3.02) + 10 * LEASE_MS)
    story.operation(W1, "extend", 3.02, [item], lease_ms=LEASE_MS)
    story.finish(token, 3.1, start=3.01, took=0.05, effect=3.05)
