"""J21: no lease ends later than the server's time plus the lease that was asked for, in claims as in extends (rule 9).

Both times are of the server: the one of the reply and the end of the lease that it states. A foreign client learns no time from a
reply, and records one that is somewhat later, so for it the check errs on the quiet side. While the server's clock is behind
after a jump, a lease may be so much longer: no renewal ends one earlier than it would have ended.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from reports.checks.base import Base, Check, Flag, sentence, token
from reports.checks.j1_no_overlap import doubts
from reports.facts import ROUNDING_MS, Run


def flags(run: Run) -> dict[Base, list[Flag]]:
    """Leases that were given longer than asked."""
    del run
    excess_ms = F.col("excess_ms")
    words = sentence("lease ", token(), " ends ", excess_ms, " ms later than what was asked for")
    return {"tokens": [Flag("lease too long", excess_ms > ROUNDING_MS, words, absence=False)]}


CHECK = Check("J21", "leases are as long as asked", doubts, flags)
