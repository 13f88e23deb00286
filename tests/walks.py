"""How far the random walks go: what Hypothesis draws is the same in every run, except in the nightly tests, and no example has a
time of its own, for what is slow on a busy machine is no failure. A plugin of the suite, so that it holds for every test.

`IRONCLAIM_WALKS` multiplies the number of examples of each walk. `make test` leaves it out, `make test-all` sets 3, and
`make test-nightly` 20, with examples that differ from night to night (`IRONCLAIM_WALKS_ANEW=1`); a failure prints the line that
repeats it.
"""

from __future__ import annotations

import os

from hypothesis import settings

#: How many times as many examples as in the first tier.
TIMES = int(os.environ.get("IRONCLAIM_WALKS", "1"))

settings.register_profile(
    "walks", deadline=None, database=None, derandomize=not os.environ.get("IRONCLAIM_WALKS_ANEW"), print_blob=True
)
settings.load_profile("walks")


def examples(first_tier: int) -> int:
    """The number of examples of a walk that has so many in the first tier."""
    return first_tier * TIMES
