"""Cases of jobs that end without a finish (J4, J6), and of jobs that want a time instead of a delay (J8)."""

from typing import Any

from tests.reports.cases.base import W1, W3, case, ended, told
from tests.reports.story import Story, Token, srv_ms


def failed(story: Story, job: str, *, end: str = "fail") -> Token:
    """worker-1 has the job in hand, and its handler has ended."""
    return story.handled(W1, job, 3, end=end)


def dropped(story: Story, job: str, *, handler: str = "fail", **more: Any) -> None:
    story.end("drop", failed(story, job, end=handler), at=3.1, **more)


told("discarded-after-its-handler-raised", lambda story, job: dropped(story, job))


told("rerouted-and-gone", lambda story, job: dropped(story, job, outcome="rerouted"))


told("skipped-which-counts-as-done", lambda story, job: dropped(story, job, outcome="skipped", left="done"))


told("dropped-by-a-call-that-was-answered-by-its-repetition", lambda story, job: dropped(story, job, result="repeated"))


@case()
def dropped_when_its_time_was_up_while_its_handler_went_on(story: Story, job: str) -> None:
    story.end("drop", story.handled(W1, job, 3, took=2, timeout_ms=80), at=6, outcome="skipped")


told("gone-after-a-drop-without-an-answer", lambda story, job: dropped(story, job, reply="info"), ("J4", "open end", "possible"))


told("done-after-a-drop-without-an-answer", lambda story, job: dropped(story, job, reply=None, left="done"))


told("gone-after-a-drop-that-was-refused", lambda story, job: dropped(story, job, result="stale"), ("J4", "lost"))


@case(("J4", "done unfinished"))
def done_after_a_drop_that_was_refused(story: Story, job: str) -> None:
    dropped(story, job, result="stale", left="done")


told("dropped-without-any-run", lambda story, job: ended(story, job, "drop"), ("J4", "dropped unstarted"))


told("dropped-though-its-handler-had-returned", lambda story, job: dropped(story, job, handler="ok"), ("J4", "dropped unfailed"))


STILL = ("J4", "not dropped"), ("J13", "left over")
told("dropped-and-still-waiting", lambda story, job: dropped(story, job, left="waiting"), *STILL)


@case(("J6", "run again"))
def claimed_again_after_it_was_dropped(story: Story, job: str) -> None:
    dropped(story, job)
    story.start(story.claim(W3, job, 3.2), 3.21, took=0.05)


@case(("J6", "run again"), ("J6", "finished and dropped"))
def dropped_and_finished_by_another(story: Story, job: str) -> None:
    dropped(story, job)
    story.run(W3, job, 3.2)


@case(("J6", "run again"), ("J6", "dropped twice"))
def dropped_by_two_leases(story: Story, job: str) -> None:
    dropped(story, job)
    second = story.claim(W3, job, 3.2)
    story.start(second, 3.21, took=0.05, end="fail")
    story.end("drop", second, at=3.3)


@case(("J6", "run again"), ("J6", "dropped twice"), ("J2", "equal fences"), ("J3", "stale end"))
def dropped_by_two_leases_of_one_fence(story: Story, job: str) -> None:
    """The nonce tells them apart: they are two leases, and not one that was answered twice."""
    first = failed(story, job)
    story.end("drop", first, at=3.1)
    second = story.claim(W3, job, 3.2, fence=first.fence)
    story.start(second, 3.21, took=0.05, end="fail")
    story.end("drop", second, at=3.3)


@case(("J3", "stale end"))
def dropped_by_a_lease_that_was_reaped(story: Story, job: str) -> None:
    token = failed(story, job)
    story.reap(W3, token, 12.1)
    story.end("drop", token, at=12.3)


@case()
def claimed_at_the_time_that_was_asked_for(story: Story, job: str) -> None:
    """The producer took the server's clock to be 5 ms behind."""
    story.enqueue(job, 2, delay_ms=1_005, run_at_ms=srv_ms(3))
    story.run(W1, job, 3, told={"due_ms": srv_ms(3)})


@case(("J8", "early"))
def claimed_before_the_time_that_was_asked_for(story: Story, job: str) -> None:
    """The claim says nothing of it."""
    story.enqueue(job, 2, delay_ms=1_000, run_at_ms=srv_ms(3))
    story.run(W1, job, 2.999, told={"due_ms": 0})


@case()
def not_yet_due_at_the_end(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=3_600_000, run_at_ms=srv_ms(3_602))
    story.left("delayed", job, srv_ms(3_602))
