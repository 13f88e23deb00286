"""What `python -m bench scale` demands of a script."""

from __future__ import annotations

#: No script may take longer than this (ms), judged by the 95th percentile: now and then another program takes the core.
BOUND_MS = 5.0
#: Exponent of the growth over the last decade that counts as flat or logarithmic: 1 is linear.
FLAT_BELOW = 0.3
#: Below this (ms) growth is noise, or not worth a word.
SMALL_MS = 0.25
