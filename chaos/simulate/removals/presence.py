"""Rule 39: what keeps a worker that lives from being taken for lost, and finds one that is."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

PRESENCE = (
    Removal(
        39,
        "nobody looks at the connections of workers",
        (Edit("look-belongs-to-one", "return false"),),
        ("unnoticed",),
        ("presence",),
    ),
    Removal(
        39,
        "nobody looks where the leader does not",
        (Edit("followers-look-where-the-leader-does-not", "if true then return false end"),),
        ("unnoticed",),
        ("presence of some",),
    ),
    Removal(
        39,
        "every sweep hands out a look",
        (Edit("look-belongs-to-one", "return true"),),
        ("looks",),
        ("presence",),
    ),
    Removal(
        39,
        "a worker whose connection is missing once is lost",
        (Edit("missing-twice-is-lost", "elif False:"),),
        ("seen once", "live lease"),
        ("presence",),
    ),
    Removal(
        39,
        "a worker that has named another connection meanwhile is lost all the same",
        (Edit("registration-is-unchanged", "gone[ARGV[at]] = true"),),
        ("registration", "connected", "live lease"),
        ("presence", "presence in trouble"),
    ),
    Removal(
        39,
        "a new connection is named by the next beat that is due anyway",
        (Edit("new-connections-are-named-at-once", "pass"),),
        ("live lease",),
        ("presence",),
    ),
    Removal(
        39,
        "workers are lost although most connections are gone",
        (Edit("most-connections-do-not-die-at-once", "most = False"),),
        ("most gone",),
        ("presence", "presence in trouble"),
    ),
    Removal(
        39,
        "a look counts that was answered after a stall",
        (Edit("slow-looks-say-nothing", "return answered"),),
        ("slow look",),
        ("presence and stalls", "presence and late"),
    ),
    Removal(
        39,
        "a reap that comes late takes leases all the same",
        (Edit("late-reap-is-void", "local late = now_ms < 0 * not_after_ms"),),
        ("late reap",),
        ("presence and late",),
    ),
)
