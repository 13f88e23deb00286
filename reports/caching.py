"""Frames that several queries read are computed once.

Spark plans each query from the source files on, through the whole lineage of a frame, and in a short run that is most of the
judge's time. Here the lineage ends where a frame is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.errors import JudgeError, one_line
from reports.facts import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

#: Up to this many history rows, writing a table takes longer than it saves.
SMALL_ROWS = 200_000


def kept(frame: DataFrame) -> DataFrame:
    """The frame, computed once and kept row by row in memory, or on disk where that is full. For what is small in a sound run."""
    return frame.localCheckpoint(eager=False)


def stored(frame: DataFrame, run: Run, path: Path) -> DataFrame:
    """The frame, computed once: in a large run as a table, of which each query reads only its columns."""
    if sum(file.rows for file in run.files.values()) <= SMALL_ROWS:
        return kept(frame)
    save(frame, path)
    return frame.sparkSession.read.schema(frame.schema).parquet(str(path))


def save(frame: DataFrame, path: Path) -> None:
    """Write a table. Raises JudgeError when it cannot be written."""
    try:
        frame.write.mode("overwrite").parquet(str(path))
    except Exception as error:
        raise JudgeError(f"table {path.name} cannot be written: {one_line(error)}") from error
