"""What both clients make of an answer that does not come, or is not the server's: whether it is certain that nothing was done,
and whether the call is sent again by itself."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest

from engine import Queue
from ironclaim_client import ClientError
from tests.clients.conftest import TOKEN, InNode, Scenarios, fail, working
from tests.clients.faces import Connect
from tests.clients.relay import HttpRelay, Rule, relay
from tests.engine.helpers.waiting import wait_until

pytestmark = pytest.mark.feature("BN35")

#: What happens to a request, and the error of a call that changes something and is sent once.
CHANGES: dict[Rule, str] = {
    # Nothing was done, and the answer says so.
    **dict.fromkeys(("limited", "away"), "ServerUnavailable"),
    "elsewhere": "UnexpectedReply",
    # Nothing was done, which the client cannot know.
    **dict.fromkeys(("lose_request", "busy"), "OutcomeUnknown"),
    # It was done, which the client cannot know.
    **dict.fromkeys(("lose_reply", "cut_reply", "silent", "garbled", "gateway", "late", "fault", "page"), "OutcomeUnknown"),
    # It was done; nobody reads what comes back.
    "strange": "",
}
NOT_DONE = {"limited", "away", "elsewhere", "lose_request", "busy"}
#: The error of a call that only looks, and is tried once.
LOOKS: dict[Rule, str] = {
    **dict.fromkeys(set(CHANGES) - {"elsewhere", "page", "strange"}, "ServerUnavailable"),
    **dict.fromkeys(("elsewhere", "page", "strange"), "UnexpectedReply"),
}
#: After these a call with an idempotency key is sent again, until the reply is there.
REPEATED = sorted(set(CHANGES) - {"elsewhere", "strange"})
#: In ms: as long as an attempt lasts that nobody answers, and as long as others may take on a busy machine.
SOON, PATIENT = 1_000, 15_000

#: The synchronous face is generated from the other one, and what both raise is asked of changes without a key.
one_face = pytest.mark.parametrize("connect", ["async", pytest.param("sync", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    """A queue with a dead job for each rule, which has its name as id."""
    with Queue("emails", url=ironclaim_url) as opened:
        opened.enqueue_many([{"name": "send", "payload": None, "id": rule, "attempts": 1} for rule in CHANGES])
        with working(ironclaim_url, send=fail):
            wait_until(lambda: opened.counts().dead == len(CHANGES), "all are dead")
        yield opened


def harm(harmed: HttpRelay) -> None:
    """Let each rule meet one request to the job of its name, and one to the queue of its name."""
    for rule in CHANGES:
        harmed.next(rule, of=f"/jobs/{rule}")
        harmed.next(rule, of=f"POST /api/queues/{rule}/jobs")


@contextmanager
def refusing() -> Iterator[str]:
    """An address that nobody listens at, and nobody else can take."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def raised(call: Any, *arguments: Any) -> str:
    """The name of the error that a call raises; '' without one."""
    try:
        call(*arguments)
    except ClientError as error:
        return type(error).__name__
    return ""


def patience_ms(rule: Rule) -> int:
    return SOON if rule == "silent" else PATIENT


def assert_requeued_once(harmed: HttpRelay, queue: Queue) -> None:
    """Those that the server has heard of, and none was sent twice."""
    requeued = {rule: f"POST /api/queues/emails/jobs/{rule}/requeue" for rule in CHANGES}
    # A client that waits no longer may be there before the relay has seen what it has sent.
    wait_until(lambda: all(harmed.requests(sent) for sent in requeued.values()), "the relay has seen each")
    assert {rule: len(harmed.requests(sent)) for rule, sent in requeued.items()} == dict.fromkeys(CHANGES, 1)
    for rule in CHANGES:
        state = "dead" if rule in NOT_DONE else "waiting"
        wait_until(lambda id=rule, state=state: queue.jobs.state(id) == state, f"{rule} is {state}")


def assert_enqueued_again(harmed: HttpRelay, url: str) -> None:
    """Each was sent again with the same key, and is there once."""
    for rule in REPEATED:
        sent = harmed.requests(f"POST /api/queues/{rule}/jobs")
        keys = {value for seen in sent for name, value in seen.headers.items() if name.lower() == "idempotency-key"}
        assert len(sent) >= 2 and sent[0].rule == rule and len(keys) == 1, (rule, sent)
        with Queue(rule, url=url) as queue:
            assert queue.counts().waiting == 1, rule


def test_every_rule_of_the_relay_is_tried() -> None:
    assert set(get_args(Rule)) - {"pass"} == set(CHANGES) == set(LOOKS)


def test_a_change_without_key_is_sent_once_and_says_if_it_may_be_done(connect: Connect, harmed: HttpRelay, queue: Queue) -> None:
    harm(harmed)
    found = {rule: raised(connect(harmed.url, attempt_ms=patience_ms(rule)).queue("emails").requeue, rule) for rule in CHANGES}
    assert found == CHANGES
    assert_requeued_once(harmed, queue)
    with refusing() as nowhere:
        assert raised(connect(nowhere).queue("emails").requeue, "away") == "ServerUnavailable"


@one_face
def test_a_look_has_certainly_done_nothing(connect: Connect, harmed: HttpRelay, queue: Queue) -> None:
    harm(harmed)
    jobs = {rule: connect(harmed.url, attempt_ms=patience_ms(rule), deadline_ms=0).queue("emails").job for rule in CHANGES}
    assert {rule: raised(job, rule) for rule, job in jobs.items()} == LOOKS
    with refusing() as nowhere:
        assert raised(connect(nowhere, deadline_ms=0).queue("emails").job, "away") == "ServerUnavailable"


@one_face
def test_a_change_with_a_key_is_sent_again_by_itself(connect: Connect, harmed: HttpRelay, ironclaim_url: str) -> None:
    harm(harmed)
    for rule in REPEATED:
        assert connect(harmed.url, attempt_ms=SOON).queue(rule).enqueue("send").id, rule
    assert_enqueued_again(harmed, ironclaim_url)
    assert raised(connect(harmed.url).queue("strange").enqueue, "send") == "OutcomeUnknown", "the reply has no id"
    assert raised(connect(harmed.url).queue("elsewhere").enqueue, "send") == "UnexpectedReply"
    with refusing() as nowhere:
        assert raised(connect(nowhere, deadline_ms=100).queue("emails").enqueue, "send") == "ServerUnavailable"


@pytest.mark.slow
def test_the_typescript_client_says_the_same(scenario: Scenarios, application_url: str, ironclaim_url: str, queue: Queue) -> None:
    patience = {rule: patience_ms(rule) for rule in CHANGES}
    with relay(application_url, scenario.pages) as harmed, refusing() as nowhere:
        harmed.keeps = False
        harm(harmed)
        found = scenario("changesWithoutKeys", harmed, token=TOKEN, patience=patience, nowhere=nowhere)
        # A browser does not tell whether a connection was made.
        refused = "ServerUnavailable" if isinstance(scenario, InNode) else "OutcomeUnknown"
        assert found == {**CHANGES, "nowhere": refused}
        assert_requeued_once(harmed, queue)
        harm(harmed)
        found = scenario("looks", harmed, token=TOKEN, patience=patience, nowhere=nowhere)
        assert found == {**LOOKS, "nowhere": "ServerUnavailable"}
        found = scenario("changesWithKeys", harmed, token=TOKEN, queues=list(CHANGES), attemptMs=SOON)
        assert found == {**dict.fromkeys(REPEATED, ""), "strange": "OutcomeUnknown", "elsewhere": "UnexpectedReply"}
        assert_enqueued_again(harmed, ironclaim_url)
