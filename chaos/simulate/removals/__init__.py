"""The registry: the rules of the protocol that can be taken away, and what must find that.

`finds` names invariants; a removal that only others would find does not count as found.
"""

from __future__ import annotations

from chaos.simulate.removals.by_hand import BY_HAND
from chaos.simulate.removals.contents import CONTENTS
from chaos.simulate.removals.identity import IDENTITY
from chaos.simulate.removals.lanes import LANES
from chaos.simulate.removals.leases import LEASES
from chaos.simulate.removals.locks import LOCKS
from chaos.simulate.removals.members import MEMBERS
from chaos.simulate.removals.pieces import PIECES
from chaos.simulate.removals.presence import PRESENCE
from chaos.simulate.removals.routes import ROUTES
from chaos.simulate.removals.storage import STORAGE
from chaos.simulate.removals.times import TIMES

#: Rules that no patch of a script or of a decision can take away, or whose loss the simulator cannot see, and why.
NOT_REMOVABLE: dict[int, str] = {}

_ALL = (*IDENTITY, *PIECES, *CONTENTS, *LEASES, *LOCKS, *TIMES, *STORAGE, *LANES, *BY_HAND, *MEMBERS, *PRESENCE, *ROUTES)
REMOVALS = tuple(sorted(_ALL, key=lambda removal: removal.rule))
