"""The calls of foreign models that look at jobs, change them by hand, and tick schedules, mapped to their scripts."""

from __future__ import annotations

from engine.models.foreign_keys import ForeignKeys
from engine.models.lanes_schedules import Slots
from engine.operations import Operation


def slots(operation: Operation, keys: ForeignKeys) -> Slots | None:
    """The slots of an operation; None for one that foreign models do not have."""
    return None
