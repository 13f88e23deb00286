"""P9: nobody writes to a server that was replaced. A client of channels that must have heard of a new primary runs no script at
the old one: the harness counts them at that server, in the stage `stray` of its fault (J24 has it of jobs). What an old server
answers after that would look like messages that were lost, or delivered again (P1, P5), and this is its cause.

Applies to runs whose spec says what may be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.checks.base import Check, Flag
from reports.checks.j24_loss_declared import STRAY, failed_stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Faults after which clients wrote to the server that had been replaced."""
    return failed_stages(frames.run, frames.calls.sparkSession, *STRAY)


CHECK = Check(
    "P9", "nobody writes to a replaced server", lambda run: [], channels=channels, applies=lambda run: "loss" in run.spec
)
