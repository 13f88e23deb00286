"""Rules 16 and 17: scores, sizes and envelopes that cannot be read."""

from __future__ import annotations

from chaos.simulate.patching import removal

STORAGE = (
    removal(16, "LIFO jobs queue at the end", "score", "calm").by(
        "lifo-jobs-go-in-front", "if flags > 1 then return middle - sequence end"
    ),
    removal(16, "bands are a million wide", "score", "calm").by(
        "bands-are-2-49-wide", "local middle = (10 - priority) * 1000000 + BAND / 2"
    ),
    removal(16, "sequences go on beyond 2^48", "score", "full queue").by("sequences-end-at-2-48", "if sequence > 2^52 then"),
    removal(17, "a claim has no bound of bytes", "claim size", "big").by(
        "claim-is-bounded-in-bytes", "elseif #pick.jobs > 0 and pick.bytes < 0 then"
    ),
    removal(17, "a corrupt envelope stops the claim", "pickup, liveness", "corrupt").by(
        "unreadable-envelope-is-set-aside", "do return nil end"
    ),
)
