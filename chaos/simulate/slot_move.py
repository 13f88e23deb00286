"""A slot that moves to another node and the answers that calls get meanwhile (rule 27). The keys are the same on both nodes: what
is played is what clients meet, which is refusals, redirections, and scripts that stop half way at a key that has gone."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import redis
from redis.exceptions import AskError, MovedError, TryAgainError

from chaos.simulate.chance import spread_ms
from chaos.simulate.line import Line, Message
from chaos.simulate.world import MS, World

#: How long a slot is on its way.
_LEAST_MS, _MOST_MS = 20, 3_000
#: What an answer of a node names: the slot and the other node.
_THERE = "3999 127.0.0.1:6380"
#: What a script is told by a server when it uses a key that has gone.
NOT_LOCAL = redis.ResponseError("Script attempted to access a non local key in a cluster node", status_code="ERR")


class Answer(Enum):
    """What a call meets at a slot that moves."""

    PASSES = "passes"
    TRYAGAIN = "tryagain"
    #: ASK, which its driver follows within the send, or not.
    FOLLOWED = "ask followed"
    ASK = "ask"
    MOVED = "moved"
    HALF_WAY = "half way"


_ERRORS = {
    Answer.TRYAGAIN: TryAgainError("Multiple keys request during rehashing of slot", status_code="TRYAGAIN"),
    Answer.ASK: AskError(_THERE, status_code="ASK"),
    Answer.MOVED: MovedError(_THERE, status_code="MOVED"),
}


class SlotMove:
    """Where the slot of the queue is, and which lines do not know it yet. `half_way`: scripts may stop after some writes."""

    def __init__(self, world: World, *, half_way: bool) -> None:
        self._world = world
        self._half_way = half_way
        self._until_ns = 0
        self._answers = 0
        # Lines that would still ask the node that had the slot.
        self._stale: set[Line] = set()

    def begins(self, size: float, lines: Iterable[Line]) -> str:
        """The slot leaves; these lines know where it was."""
        length_ms = spread_ms(size, _LEAST_MS, _MOST_MS)
        self._until_ns = self._world.now_ns + int(length_ms * MS)
        self._stale = set(lines)
        for line in self._stale:
            line.process.disturbed(self._until_ns)
        return f"takes {length_ms:.0f} ms"

    def ends(self) -> None:
        """The slot is there."""
        self._until_ns = min(self._until_ns, self._world.now_ns)

    def answers(self, message: Message) -> Answer:
        """What a message meets that arrives now."""
        if self._world.now_ns >= self._until_ns:
            if message.line not in self._stale:
                return Answer.PASSES
            self._stale.remove(message.line)
            message.line.process.disturbed(self._world.now_ns + MS)
            return Answer.MOVED
        number, self._answers = self._answers, self._answers + 1
        drawn = self._world.chance.draw("slot", number)
        for answer, share in ((Answer.TRYAGAIN, 0.3), (Answer.FOLLOWED, 0.15), (Answer.ASK, 0.1), (Answer.HALF_WAY, 0.25)):
            if drawn < share:
                return answer if self._half_way or answer is not Answer.HALF_WAY else Answer.PASSES
            drawn -= share
        return Answer.PASSES

    def writes(self) -> int:
        """After how many writes the script stops that has just met HALF_WAY."""
        return int(self._world.chance.draw("slot", self._answers, 1) * 8)


def error_of(answer: Answer) -> Exception | None:
    """The error that a client is answered with and that says that nothing was applied, if it is one."""
    return _ERRORS.get(answer)
