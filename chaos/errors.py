"""What can stop a drill. The message of each is the one line that the user sees."""

from __future__ import annotations


class HarnessError(Exception):
    """The harness itself could not do its work; the run proves nothing (exit 2)."""


class Interrupted(HarnessError):
    """The user, or the system, asked the drill to stop."""


class TooSlow(HarnessError):
    """This machine carries no load that would prove anything."""
