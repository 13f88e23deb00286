"""Wait until a cluster has given the judge an executor: without one Spark waits for ever, and says so only in its log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from reports.errors import JudgeError
from reports.interrupts import INTERRUPTS

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Executors are processes of Java on machines that may be busy.
START_TIMEOUT_S = 60.0
LOOK_S = 0.1


def require_executor(context: SparkContext, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return when an executor is there, or when the master is local and needs none. Raises JudgeError when none comes in time."""
    # PySpark declares parts of a context as optional; a started one has them.
    started: Any = context
    if started.master.startswith("local"):
        return
    scala = started._jsc.sc()
    deadline_s = time.monotonic() + timeout_s
    # The driver is counted as well.
    while scala.getExecutorMemoryStatus().size() <= 1:
        INTERRUPTS.check()
        if time.monotonic() >= deadline_s:
            size = context.getConf().get("spark.executor.memory", "1g")
            raise JudgeError(
                f"{context.master} gave no executor within {timeout_s:.0f} s: its workers are gone, busy, or have less memory "
                f"than spark.executor.memory, {size}"
            )
        time.sleep(LOOK_S)
