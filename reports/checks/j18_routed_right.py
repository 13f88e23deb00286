"""J18: a job that wants something of its worker is claimed by no worker that has it not (rule 18).

In a run with `routing` in its spec the classes of such jobs carry a digest of what they want; the workers inside Locust lack it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import CONSUMER, Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames


def routed() -> Column:
    """A lease of a job that wants something of its worker."""
    return F.coalesce(F.col("class").contains("~"), F.lit(False))


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases of the wrong worker."""
    del run
    wrong = routed() & F.col("proc").startswith(CONSUMER)
    told = sentence("claim ", token(), " of class ", F.col("class"), " was handed to ", F.col("proc"), ", which it is not for")
    return {"tokens": [Flag("wrong worker", wrong, told, absence=False)]}


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """A run in which no such job was claimed proves nothing."""
    counted = frames.tokens.agg(F.count_if(routed()).alias("leases")).select("leases", F.lit("every worker").alias("job"))
    idle = Flag("nothing routed", F.col("leases") == 0, sentence("was asked for nothing"), absence=False, level="unknown")
    return [(counted, idle)]


CHECK = Check("J18", "jobs go to workers that they are for", doubts, flags, more, lambda run: bool(run.spec.get("routing")))
