"""The keys of a DSPS channel: the one place that writes them, each with its Redis type and what it holds.

The braces are the hash tag: one channel is one slot. Keys with `.ironclaim` are ours; clients of the original pass them by: they
look for no keys, and their names hold no dot. They end with the clock, so that neither is taken for a loss of the other.
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
        """What the keys of bodies begin with."""
        return f"{self.prefix}m."

    def body(self, clock: int) -> str:
        """String: `{"id":"..","content":..}`."""
        return f"{self.bodies}{clock}"

    def mid(self, message: str) -> str:
        """String: the clock of a message, by its id."""
        return f"{self.prefix}mid.{message}"

    @property
    def bell(self) -> str:
        """Pub/sub channel: `new message` after each publish."""
        return f"dsps.c.{self.channel}"

    @property
    def meta(self) -> str:
        """Hash: `last`, the latest clock that our scripts know of; `era`, how often it went back; `upto` and `known`: the index
        holds all living messages in (known, upto], and with known = `all` those before as well; `scan`, a search for others that
        is under way: cursor, run id and goal; `longest_ms`, no message of the index lives longer; `ends`, by when all of it up to
        some clocks will have expired: clock and ms, clock and ms; `r.<subscriber>`, the era that a subscriber knows of, 0 without
        it."""
        return f"{self.prefix}ironclaim"

    @property
    def live(self) -> str:
        """Zset, the index: clocks of living messages and of some that have expired since, scored by themselves."""
        return f"{self.prefix}ironclaim.live"

    def op(self, nonce: str) -> str:
        """String: what a subscribe or unsubscribe has done; for 20 s longer than a copy of it may come."""
        return f"{self.prefix}ironclaim.op.{nonce}"
