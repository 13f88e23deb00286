"""Rule 39: what keeps a worker that lives from being taken for lost, and finds one that is."""

from __future__ import annotations

from chaos.simulate.patching import removal

PRESENCE = (
    removal(39, "nobody looks at the connections of workers", "unnoticed", "presence").by("look-belongs-to-one", "return false"),
    removal(39, "nobody looks where the leader does not", "unnoticed", "presence of some").by(
        "followers-look-where-the-leader-does-not", "if true then return false end"
    ),
    removal(39, "every sweep hands out a look", "looks", "presence").by("look-belongs-to-one", "return true"),
    removal(39, "a worker whose connection is missing once is lost", "seen once, live lease", "presence").by(
        "missing-twice-is-lost", "elif False:"
    ),
    removal(
        39,
        "a worker that has named another connection meanwhile is lost all the same",
        "registration, connected, live lease",
        "presence, presence in trouble",
    ).by("registration-is-unchanged", "gone[ARGV[at]] = true"),
    removal(39, "a new connection is named by the next beat that is due anyway", "live lease", "presence").by(
        "new-connections-are-named-at-once", "pass"
    ),
    removal(39, "workers are lost although most connections are gone", "most gone", "presence, presence in trouble").by(
        "most-connections-do-not-die-at-once", "most = False"
    ),
    removal(39, "a look counts that was answered after a stall", "slow look", "presence and stalls, presence and late").by(
        "slow-looks-say-nothing", "return answered"
    ),
    removal(39, "a late reap reaps leases all the same", "late reap", "presence and late").by(
        "late-reap-is-void", "local late = now_ms < 0 * not_after_ms"
    ),
)
