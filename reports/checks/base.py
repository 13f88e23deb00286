"""The parts of a check: its name, the doubts that make it unknown, and the conditions that make a row of a frame a
violation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from reports.channels.frames import ChannelFrames
from reports.facts import MS, Run
from reports.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns of a violation row, in an array; the cast gives the array its type when there is no flag.
FOUND = (
    "array<struct<check:string,subject:string,kind:string,level:string,absence:boolean,timed:boolean,detail:string,loss:string>>"
)

#: A frame whose rows have a column `job`.
Base = Literal["tokens", "jobs", "in_hand"]


@dataclass(frozen=True)
class Flag:
    """A row of a frame is a violation when the condition holds; `detail` continues a sentence that begins with the subject.

    `level`: violated, unknown, full (unknown, since running handlers had all places) or possible. `absence`: the condition rests
    on missing rows, so when the history has holes the violation is only unproven. `subject`: the column that names what violates
    the check. `loss`: the kind of fault whose declared loss explains the row; null where none does. `timed`: something took too
    long, so on a machine that was too slow the violation is only in doubt.
    """

    kind: str
    condition: Column
    detail: Column
    absence: bool
    level: Column | str = "violated"
    subject: str = "job"
    loss: Column | None = None
    timed: bool = False


@dataclass(frozen=True)
class Check:
    """One check. `doubts`: returns the reasons why it cannot be judged. `flags`: returns its conditions by the frame they read.

    `more`: for conditions that need other frames than the shared ones; returns each frame with the flag for its rows.
    `channels`: like `more`, for channel runs. `applies`: False for runs whose scenario does not use the checked feature; the
    check is then left out. `not_judged`: the parts of the check that the history of this run cannot show; the verdict is on the
    rest.
    """

    id: str
    name: str
    doubts: Callable[[Run], list[str]]
    flags: Callable[[Run], dict[Base, list[Flag]]] = lambda run: {}
    more: Callable[[Frames], list[tuple[DataFrame, Flag]]] = lambda frames: []
    channels: Callable[[ChannelFrames], list[tuple[DataFrame, Flag]]] = lambda frames: []
    applies: Callable[[Run], bool] = lambda run: True
    not_judged: Callable[[Run], list[str]] = lambda run: []

    def judges(self, run: Run) -> bool:
        """True when this check applies to the run: J checks only to job runs, P checks only to channel runs."""
        return self.id[0] != ("J" if run.of_channels else "P") and self.applies(run)


def flagged(frame: DataFrame, flags: Sequence[tuple[str, Flag]]) -> DataFrame:
    """Violation rows (check, subject, kind, level, absence, timed, detail, loss) for (check id, flag) pairs, in one pass."""
    found = F.array_compact(F.array(*(F.when(flag.condition, row(check, flag)) for check, flag in flags)))
    return frame.select(F.explode(found.cast(FOUND)).alias("found")).select("found.*")


def row(check: str, flag: Flag) -> Column:
    """The violation row of a flag."""
    return F.struct(
        F.lit(check).alias("check"),
        F.coalesce(F.col(flag.subject).cast("string"), F.lit("?")).alias("subject"),
        F.lit(flag.kind).alias("kind"),
        (F.lit(flag.level) if isinstance(flag.level, str) else flag.level).alias("level"),
        F.lit(flag.absence).alias("absence"),
        F.lit(flag.timed).alias("timed"),
        F.coalesce(flag.detail, F.lit("")).alias("detail"),
        (F.lit(None).cast("string") if flag.loss is None else flag.loss).alias("loss"),
    )


def sentence(*parts: Column | str) -> Column:
    """Strings and columns joined to one text; a null column reads as `?`."""
    return F.concat(*(F.lit(part) if isinstance(part, str) else F.coalesce(part.cast("string"), F.lit("?")) for part in parts))


def milliseconds(span_ns: Column) -> Column:
    """A span in whole ms."""
    return (span_ns / MS).cast("bigint")


def token(prefix: str = "") -> Column:
    """A token as text: fence/nonce."""
    return F.concat_ws("/", F.col(f"{prefix}fence").cast("string"), F.col(f"{prefix}nonce"))
