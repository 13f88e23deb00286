"""Rules 16 and 17: scores, sizes and envelopes that cannot be read."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

STORAGE = (
    Removal(
        16,
        "LIFO jobs queue at the end",
        (Edit("lifo-jobs-go-in-front", "if flags > 1 then return middle - sequence end"),),
        ("score",),
        ("calm",),
    ),
    Removal(
        16,
        "bands are a million wide",
        (Edit("bands-are-2-49-wide", "local middle = (10 - priority) * 1000000 + BAND / 2"),),
        ("score",),
        ("calm",),
    ),
    Removal(
        16,
        "sequences go on beyond 2^48",
        (
            Edit(
                "sequences-end-at-2-48",
                "if sequence > 2^52 then",
            ),
        ),
        ("score",),
        ("full queue",),
    ),
    Removal(
        17,
        "a claim has no bound of bytes",
        (Edit("claim-is-bounded-in-bytes", "elseif #pick.jobs > 0 and pick.bytes < 0 then"),),
        ("claim size",),
        ("big",),
    ),
    Removal(
        17,
        "a corrupt envelope stops the claim",
        (Edit("unreadable-envelope-is-set-aside", "do return nil end"),),
        ("pickup", "liveness"),
        ("corrupt",),
    ),
)
