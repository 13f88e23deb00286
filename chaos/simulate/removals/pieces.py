"""Rule 1: lists go in pieces, and after the first piece comes the second. Each of these does the first one only."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

_MANY = "enqueue_many.lua"
_FINISH = "include/finish_jobs.lua"
_COUNT = "include/count_leases.lua"
_LIMITED = ("pieces and limits",)


def _first_only(what: str, where: str, words: str, finds: tuple[str, ...], profiles: tuple[str, ...] = ("pieces",)) -> Removal:
    """`words`: the list that the loop goes through."""
    edit = Edit(where, f"for at = 1, #{words}, PIECE do", f"for at = 1, math.min(1, #{words}), PIECE do")
    return Removal(1, f"{what} beyond the first piece", (edit,), finds, profiles)


PIECES = (
    _first_only("a bulk loses delayed jobs", _MANY, "delayed", ("one place",)),
    _first_only("a bulk loses the entries of jobs", _MANY, "lane.waiting", ("one place",)),
    _first_only("a bulk loses jobs", _MANY, "jobs", ("one place",)),
    _first_only("a bulk loses unique jobs", _MANY, "unique_jobs", ("one place",)),
    Removal(
        1,
        "a bulk looks for known ids in its first piece only",
        (Edit(_MANY, "local some_known = redis.call(", "local some_known = page == 1 and redis.call("),),
        ("enqueue reply", "undead", "one place", "lost"),
        ("pieces",),
    ),
    _first_only("a claim does not lease jobs", "include/claim_jobs.lua", "entries", ("one token", "one place", "claim reply")),
    _first_only("a claim leaves jobs in their lanes", "include/leave_lane.lua", "ids", ("one place",)),
    _first_only("leases hold no slots", _COUNT, "held", ("limit",), ("pieces and slots",)),
    _first_only("leases do not count in a window", _COUNT, "used", ("rate",), _LIMITED),
    _first_only("finished jobs are not among the finished", _FINISH, "dated", ("finished",)),
    _first_only("finished jobs stay leased", _FINISH, "ids", ("one place", "one token")),
)
