"""What a driver does next with one call: send it, wait, or give up. Pure decisions, no socket (rules 5 and 31).

Every call of the engine carries an identity that makes a second send harmless, so a call without an answer is sent again
until its deadline. What is unknown after that is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

#: How long a call is re-sent. A tombstone lives 20 s, so a repeat inside this time always meets what the first one did.
DEADLINE_MS = 10_000
_PAUSE_FIRST_MS = 10
_PAUSE_MOST_MS = 500
#: A slot that is on its way is there soon, and a call that meets it should cost no second.
_SLOT_PAUSE_MOST_MS = 100

#: Error replies that say "not now": the command was not applied and may be sent again (rule 27).
_TRANSIENT = (
    *("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "ASK", "MOVED", "NOSCRIPT", "UNBLOCKED"),
    # A primary that was demoted: the next connection may reach another one.
    "READONLY",
)
#: Those about a slot that is elsewhere, or on its way.
_OF_SLOTS = ("TRYAGAIN", "ASK", "MOVED")
#: Error replies that refuse for longer than a call should wait: also not applied.
_REFUSED = ("OOM", "MISCONF", "NOREPLICAS", "NOAUTH", "NOPERM", "WRONGPASS", "DENIED")
_REFUSED_TEXT = "ERR max number of clients"
#: A script met a key that its slot's move has taken away, perhaps after some of its writes: rule 1 makes it safe to send it again
#: (rule 27).
_HALF_WAY_TEXT = "access a non local key"


class Trouble(Enum):
    """What happened to one send."""

    NOT_SENT = "not sent"  # no connection: this send cannot have been applied
    UNANSWERED = "unanswered"  # sent and lost: it may have been applied, now or later
    TRANSIENT = "transient"  # refused for the moment
    REFUSED = "refused"  # refused
    FAULT = "fault"  # an error of the script itself


class Verdict(Enum):
    """How a call ends without a reply."""

    UNAVAILABLE = "unavailable"  # nothing was applied
    UNKNOWN = "unknown"  # it may have been applied
    FAULT = "fault"  # the server answered with an error outside the contract


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Send the same bytes again after a pause."""

    after_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop sending."""

    verdict: Verdict


def trouble_of_reply(message: str) -> Trouble:
    """Classify an error reply by its first word, and one that has none of its own by its text."""
    code = message.split(" ", 1)[0]
    if code in _TRANSIENT:
        return Trouble.TRANSIENT
    if code in _REFUSED or message.startswith(_REFUSED_TEXT):
        return Trouble.REFUSED
    if _HALF_WAY_TEXT in message:
        return Trouble.UNANSWERED
    return Trouble.FAULT


@dataclass(slots=True)
class Delivery:
    """The sends of one call. `started_ns` and every `now_ns` are monotonic; `jitter` gives numbers in [0, 1)."""

    started_ns: int
    jitter: Callable[[], float]
    deadline_ms: int = DEADLINE_MS
    errors: list[str] = field(default_factory=list[str])
    unanswered: int = 0

    @property
    def definite(self) -> bool:
        """True while no copy is unanswered: a refusal then says that nothing was applied (rules 5 and 31)."""
        return self.unanswered == 0

    def after(self, trouble: Trouble, message: str, now_ns: int) -> SendAgain | GiveUp:
        """The next step after a send that brought no usable reply."""
        self.errors.append(message)
        if trouble is Trouble.UNANSWERED:
            self.unanswered += 1
        if trouble is Trouble.FAULT:  # anchor: slots-that-move-are-no-fault
            return GiveUp(Verdict.FAULT if self.definite else Verdict.UNKNOWN)
        if trouble is Trouble.REFUSED:
            return GiveUp(Verdict.UNAVAILABLE if self.definite else Verdict.UNKNOWN)
        # Full jitter above half: clients of a server that comes back do not all arrive in the same millisecond.
        most_ms = _SLOT_PAUSE_MOST_MS if message.startswith(_OF_SLOTS) else _PAUSE_MOST_MS
        pause_ms = min(most_ms, _PAUSE_FIRST_MS * 2 ** min(len(self.errors) - 1, 10))
        pause_ms = int(pause_ms * (0.5 + self.jitter() / 2))
        if (now_ns - self.started_ns) // 1_000_000 + pause_ms >= self.deadline_ms:
            return GiveUp(Verdict.UNAVAILABLE if self.definite else Verdict.UNKNOWN)
        return SendAgain(pause_ms)
