"""The machine's slots: which of them carries a call, and what has to be sent again. Pure code, a part of the step machine."""

from __future__ import annotations

from typing import Any

from engine.ops.claims import Claim
from engine.wire.call import Call
from engine.worker.machine.events import MS, Action, Answered, Send, Slot, Unanswered

#: A failed call is tried again after this pause; its own re-sends have already taken the driver's deadline.
RESEND_MS = 100
#: After so many failures in a row the pause doubles with each further one, up to the most: a worker is back within a second.
_PATIENT = 10
RESEND_MOST_MS = 1_000


class CallSlots:
    """One call at a time on each; a call that must be answered is sent again, the same, until it is (rule 4)."""

    def __init__(self) -> None:
        self._busy: set[Slot] = set()
        self._first_send_ns: dict[Slot, int] = {}
        self._again: dict[Slot, Call[Any]] = {}
        self._again_at_ns: dict[Slot, int] = {}
        self._failures: dict[Slot, int] = {}

    def tick(self, now_ns: int) -> None:
        """End the pauses whose time is over."""
        if self._again_at_ns:
            self._again_at_ns = {slot: at_ns for slot, at_ns in self._again_at_ns.items() if at_ns > now_ns}

    def busy(self, slot: Slot) -> bool:
        """Whether the slot carries a call."""
        return slot in self._busy

    def free(self, slot: Slot) -> bool:
        """Whether a call may be sent: the slot carries none and is not paused."""
        return slot not in self._busy and slot not in self._again_at_ns

    def pauses(self) -> list[int]:
        """When the pauses of idle slots end, monotonic ns."""
        if not self._again_at_ns:
            return []
        return [at_ns for slot, at_ns in self._again_at_ns.items() if slot not in self._busy]

    def returned(self, event: Answered | Unanswered) -> None:
        """The call of the slot was answered or has failed."""
        self._busy.discard(event.slot)
        if isinstance(event, Answered):
            self._failures.pop(event.slot, None)

    def first_send_ns(self, event: Answered) -> int:
        """When the call was sent for the first time, monotonic ns: a lease counts from there (rule 9)."""
        return self._first_send_ns.get(event.slot, event.first_send_ns)

    def settled(self, slot: Slot) -> None:
        """Note that no copy of the slot's last call is unanswered."""
        self._first_send_ns.pop(slot, None)

    def pause(self, slot: Slot, now_ns: int) -> None:
        """Nothing goes out for a while, longer with each failure in a row: a server that refuses for hours is not asked ten times
        a second by each of its workers."""
        failures = self._failures[slot] = self._failures.get(slot, 0) + 1
        self._again_at_ns[slot] = now_ns + min(RESEND_MS << min(max(0, failures - _PATIENT), 10), RESEND_MOST_MS) * MS

    def resend(self, slot: Slot, call: Call[Any], now_ns: int, *, unanswered_since_ns: int | None = None) -> None:
        """Send this call after the pause. `unanswered_since_ns`: a copy that was first sent then is unanswered."""
        if unanswered_since_ns is not None:
            self._first_send_ns.setdefault(slot, unanswered_since_ns)
        self._again[slot] = call
        self.pause(slot, now_ns)

    @property
    def resending(self) -> bool:
        """Whether a call of the slot waits to be sent again."""
        return bool(self._again)

    def drop_claim(self) -> None:
        """A claim of an old incarnation is not sent again: its other user is answered by it."""
        waiting = self._again.get("work")
        if waiting is not None and isinstance(waiting.operation, Claim):
            del self._again["work"]

    def send_again(self, slot: Slot, actions: list[Action]) -> bool:
        """Send what waits to be sent again; False when nothing does."""
        call = self._again.pop(slot, None) if self._again else None
        if call is not None:
            self.send(slot, call, actions, again=slot in self._first_send_ns)
        return call is not None

    def send(self, slot: Slot, call: Call[Any], actions: list[Action], *, again: bool = False) -> None:
        """Send a call on the slot."""
        self._busy.add(slot)
        actions.append(Send(slot, call, again))
