"""The keys of DSPS, each with its Redis type and content: those of a channel, and of revoked tokens. No other module spells them.

The braces are the hash tag: one channel is one slot. Keys with `.ironclaim` are the engine's. Clients of the original never
touch them: they search for no keys, and their names hold no dot. These keys expire with the clock, so that the end of one is
not taken for a loss of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DspsKeys:
    """Key names of one channel. All of the original's are strings, clocks in decimal digits."""

    channel: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"c.{{{self.channel}}}.")

    @property
    def clock(self) -> str:
        """String: clock of the last message, 0 before the first one."""
        return f"{self.prefix}clock"

    def cursor(self, subscriber: str) -> str:
        """String: the clock that the subscriber has acknowledged last."""
        return f"{self.prefix}r.{subscriber}"

    @property
    def bodies(self) -> str:
        """The prefix of the keys of bodies."""
        return f"{self.prefix}m."

    def body(self, clock: int) -> str:
        """String: `{"id":"..","content":..}`."""
        return f"{self.bodies}{clock}"

    def mid(self, message: str) -> str:
        """String: the clock of a message, by its id."""
        return f"{self.prefix}mid.{message}"

    @property
    def wake_topic(self) -> str:
        """Pub/sub channel: `new message` after each publish. Its braces are literal, as in the keys."""
        return f"dsps.c.{{{self.channel}}}"

    @property
    def meta(self) -> str:
        """Hash: `last`, the latest clock that the engine's scripts have seen; `era`, how often it went back; `upto` and
        `known`: the index holds all living messages in (known, upto], and with known = `all` those before as well; `scan`, a
        running search for others: cursor, run id and goal; `longest_ms`, no message of the index lives longer; `ends`, pairs
        of a clock and the time (ms) by which all of the index up to it will have expired; `r.<subscriber>`, the era that a
        subscriber has received, 0 without it."""
        return f"{self.prefix}ironclaim"

    @property
    def live(self) -> str:
        """Zset, the index: clocks of living messages and of some that have expired since, scored by themselves."""
        return f"{self.prefix}ironclaim.live"

    def op(self, nonce: str) -> str:
        """String: the result of a subscribe or unsubscribe; for 20 s longer than a copy of it may come."""
        return f"{self.prefix}ironclaim.op.{nonce}"


def revocation(jti: str) -> str:
    """String: when the token with this id would expire by itself, in seconds since 1970. It is revoked while the key is there.
    The braces are literal: each token has a slot of its own."""
    return f"jwt.{{{jti}}}.revoke"
