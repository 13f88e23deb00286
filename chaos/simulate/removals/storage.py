"""Rules 16 and 17: scores, sizes and envelopes that cannot be read."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

STORAGE = (
    Removal(
        16,
        "LIFO jobs queue at the end",
        (
            Edit(
                "include/lane_score.lua",
                "if flags % 2 == 1 then return middle - sequence end",
                "if flags > 1 then return middle - sequence end",
            ),
        ),
        ("score",),
        ("calm",),
    ),
    Removal(
        16,
        "bands are a million wide",
        (Edit("include/lane_score.lua", "(10 - priority) * 562949953421312", "(10 - priority) * 1000000"),),
        ("score",),
        ("calm",),
    ),
    Removal(
        16,
        "sequences go on beyond 2^48",
        (
            Edit(
                "enqueue.lua",
                "if tonumber(last or 0) >= 281474976710655 then",
                "if tonumber(last or 0) >= 2^52 then",
            ),
        ),
        ("score",),
        ("full queue",),
    ),
    Removal(
        17,
        "a claim has no bound of bytes",
        (
            Edit(
                "include/pick_jobs.lua",
                "elseif #picked > 0 and bytes + #raw > 1048576 then",
                "elseif #picked > 0 and bytes < 0 then",
            ),
        ),
        ("claim size",),
        ("big",),
    ),
    Removal(
        17,
        "a corrupt envelope stops the claim",
        (Edit("include/pick_jobs.lua", "head.unread[#head.unread + 1] = id\n", "do return taken end\n"),),
        ("pickup", "liveness"),
        ("corrupt",),
    ),
)
