"""The settings of the channel API, checked in one place and before any I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """What the channel API serves."""
