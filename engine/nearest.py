"""What a misspelt name may have been meant for. Standard library alone, because the judge has it, too."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: For a message that says more behind it.
BEFORE = "perhaps {}; "


def nearest(name: object, known: Iterable[str], *, least: float = 0.6, said: str = ", perhaps {}") -> str:
    """The known name that is most similar, from `least` of 1 on, as the end of a message or as `said`; empty
    without one."""
    found = get_close_matches(str(name), [*known], 1, least)
    return said.format(found[0]) if found else ""
