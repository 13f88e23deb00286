"""How a frame that several queries read is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Up to so many rows of history, planning a query costs more than running it.
SMALL_ROWS = 100_000


def kept(frame: DataFrame, run: Run) -> DataFrame:
    """The frame, computed once for all that follows.

    Spark plans each query from the files on, through all that a cached frame was made of. In a small run that is most of the
    judge's time: there a kept frame forgets its origin, which took two checks of a short run from 6.9 to 4.9 s of processor.
    Rows kept that way take more memory than cached columns, so a large run caches.
    """
    rows = sum(file.rows for file in run.files.values())
    return frame.localCheckpoint(eager=False) if rows <= SMALL_ROWS else frame.persist()
