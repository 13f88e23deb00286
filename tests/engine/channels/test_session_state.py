"""What a channel object remembers of a storage, by a clock of the test: how long a lower clock is news, and what eras tell."""

from typing import Any

import pytest

from engine import OutcomeUnknown, PartlyPublished, Published, ServerUnavailable
from engine.channel import replies, session_state
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from engine.ops import channels as ops
from engine.redis.exchange import Sent
from tests.engine.helpers.producing import refused

S, TTL_S = 1_000_000_000, 60


class Told:
    """SessionState, and the time that it goes by."""

    def __init__(self) -> None:
        self.ns = 1_000 * S
        self.known = session_state.SessionState(TTL_S, lambda: self.ns)

    def tell(self, reply: Any, *, definite: bool = True) -> Sent:
        """An answer that was sent for now."""
        return Sent(reply, self.ns, self.ns + S, definite)

    def clock(self, at: int, era: int = 0) -> bool:
        return self.known.learn(self.tell(ops.PublishReply(1, at, era, False, ())))


@pytest.fixture
def told() -> Told:
    return Told()


def test_it_tells_the_latest_clock_of_the_circle(told: Told) -> None:
    assert told.known.seen is None
    # What is half a circle away or more is earlier.
    for clocks in ((CLOCK_MAX - 1,), (5,), (CLOCK_MAX, CLOCK_MIN + 3), (CLOCK_MAX, CLOCK_MIN + 3, CLOCK_MAX)):
        told = Told()
        for at in clocks:
            told.clock(at)
        assert told.known.seen == (clocks[1:] or clocks)[0]


def test_it_tells_none_once_the_channel_may_have_expired_by_itself(told: Told) -> None:
    """A copy of a call may come ten seconds after its first send, and a second is for clocks that differ."""
    told.clock(7)
    told.ns += (TTL_S - 11) * S - 1
    assert told.known.seen == 7
    told.ns += 1
    assert told.known.seen is None
    # A channel that was made anew begins at 1, and that is no news.
    assert not told.clock(1) and told.known.seen == 1


def test_what_renews_nothing_makes_it_trusted_no_longer(told: Told) -> None:
    told.clock(7)
    told.ns += (TTL_S - 12) * S
    told.known.learn(told.tell(ops.AcknowledgeReply(1, "stale", 8, 7, 0)))
    assert told.known.seen == 8
    told.ns += 2 * S
    assert told.known.seen is None
    told = Told()
    told.clock(7)
    told.known.learn(told.tell(ops.UnsubscribeReply(1, "deleted")))
    told.known.learn(told.tell(ops.OldReply(1, "ok", 9, 9, ())))
    assert told.known.seen == 7


def test_another_era_is_told_once(told: Told) -> None:
    assert [told.clock(7), told.clock(8, 1), told.clock(9, 1)] == [False, True, False]


@pytest.mark.parametrize("lost", [False, True])
def test_a_subscriber_is_told_of_another_era_also_when_the_first_answer_was_lost(lost: bool, told: Told) -> None:
    for era, changed, news in ((0, False, False), (1, not lost, True), (1, not lost, False)):
        batch = replies.page(told.known, "sa", told.tell(ops.FetchReply(1, "ok", 5, 5, era, era_changed=changed, upto=5)))
        assert batch is not None and batch.turned_back == news and batch.speaks == news
    assert told.known.acknowledge("sa", 5).era == 1 and told.known.acknowledge("sb", 5).era is None


def test_the_proofs_of_the_last_receipts_are_kept(told: Told) -> None:
    told.clock(9)
    for at in (1, 2, 3, 4, 5, 3, 6):
        told.known.gave("sa", at, ops.Proof(at, 100 + at))
    told.known.gave("sa", 9, None)
    told.known.gave("sa", 4, ops.Proof(5, 200))
    assert {at: told.known.acknowledge("sa", at).proof for at in range(1, 10)} == {
        **dict.fromkeys(range(1, 10)), 5: ops.Proof(5, 105), 3: ops.Proof(3, 103), 6: ops.Proof(6, 106), 4: ops.Proof(5, 200),
    }  # fmt: skip
    assert told.known.acknowledge("sb", 3).proof is None


AROUND = (CLOCK_MAX - 1, CLOCK_MAX, CLOCK_MIN, CLOCK_MIN + 1)


def proven(told: Told) -> list[int]:
    return [at for at in AROUND if told.known.acknowledge("sa", at).proof is not None]


def test_a_proof_is_used_until_its_receipt_is_answered() -> None:
    """Else a receipt of another object, for another message with that clock, would be refused for ever."""
    others = [at for at in AROUND if at != CLOCK_MAX]
    for reply, left in (
        (ops.AcknowledgeReply(1, "OK", CLOCK_MIN + 1, CLOCK_MAX, 0), [CLOCK_MIN, CLOCK_MIN + 1]),
        (ops.AcknowledgeReply(1, "stale", CLOCK_MIN + 1, CLOCK_MAX - 2, 0, beyond=True), others),
        (ops.AcknowledgeReply(1, "subscription-not-found"), others),
    ):
        told = Told()
        told.clock(CLOCK_MIN + 1)
        for at in AROUND:
            told.known.gave("sa", at, ops.Proof(at, 100))
        assert len(proven(told)) == 4
        replies.acknowledged(told.known, told.known.acknowledge("sa", CLOCK_MAX), told.tell(reply))
        assert proven(told) == left


def test_a_proof_is_of_no_use_once_the_channel_may_have_begun_anew(told: Told) -> None:
    told.clock(7)
    told.known.gave("sa", CLOCK_MIN, ops.Proof(CLOCK_MIN, 100))
    assert proven(told) == [CLOCK_MIN]
    told.ns += (TTL_S - 11) * S
    assert proven(told) == []
    told.clock(1)
    assert told.known.seen == 1 and proven(told) == []


def test_a_receipt_is_for_the_last_of_the_delivery_and_counts_what_is_missing_before_it(told: Told) -> None:
    good = b'{"id":"m","content":1}'
    items = ((CLOCK_MAX - 1, good), (CLOCK_MIN, b"x"), (CLOCK_MIN + 1, good))
    reply = ops.FetchReply(1, "ok", CLOCK_MIN + 9, CLOCK_MAX - 3, upto=CLOCK_MIN + 4, more=True, items=items)
    batch = replies.page(told.known, "sa", told.tell(reply))
    assert batch is not None and (batch.upto, batch.lost, batch.corrupt, len(batch.messages)) == (CLOCK_MIN + 1, 2, 1, 2)


def test_an_acknowledgement_that_is_beyond_or_of_another_era_says_that_the_clock_went_back(told: Told) -> None:
    for reply, era, changed in (
        (ops.AcknowledgeReply(1, "stale", 8, 7, 0), None, False), (ops.AcknowledgeReply(1, "stale", 8, 7, 1), 0, True),
        (ops.AcknowledgeReply(1, "stale", 8, 7, 0, beyond=True), None, True),
        (ops.AcknowledgeReply(1, "OK", 8, 7, 1, turned=True), 1, True),
    ):  # fmt: skip
        came = replies.acknowledged(told.known, ops.Acknowledge("sa", 7, TTL_S, era), told.tell(reply))
        assert came is not None and came.era_changed == changed


def test_a_refusal_as_late_is_unknown_only_where_a_copy_is_unanswered(told: Told) -> None:
    reply = ops.PublishReply(1, 3, 0, False, (ops.PublishedMessage("created", 3), ops.PublishedMessage("refused", None)))
    for definite, kind in ((True, ServerUnavailable), (False, OutcomeUnknown)):
        one, other = replies.published(told.known, told.tell(reply, definite=definite))
        assert one == Published("created", 3) and type(other) is kind
        begun, ended = ops.SubscribeReply(1, "refused", 3, None, 0, False), ops.UnsubscribeReply(1, "refused")
        refused(kind, "subscribe", replies.subscribed, told.known, told.tell(begun, definite=definite))
        refused(kind, "unsubscribe", replies.unsubscribed, told.tell(ended, definite=definite))
    was = [replies.unsubscribed(told.tell(ops.UnsubscribeReply(1, result))) for result in ("deleted", "missing")]
    assert was == [True, False]


def test_what_came_of_many_is_told_apart() -> None:
    good, lost, away = Published("created", 1), OutcomeUnknown("lost"), ServerUnavailable("away")
    assert replies.concluded([good, good], 2) == [good, good]
    partly = refused(PartlyPublished, "1 of 3 messages", replies.concluded, [good, lost], 3)
    assert partly.results[:2] == (good, lost) and isinstance(partly.results[2], ServerUnavailable)
    refused(ServerUnavailable, "away", replies.concluded, [away], 3)
    refused(OutcomeUnknown, "lost", replies.concluded, [lost, lost], 2)
