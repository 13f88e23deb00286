"""What an episode is made of: how many processes, which jobs, which faults and how often. Rates are per place where the fault may
strike: a message, an event of a process, a delivery at the server. The episodes themselves: chaos/simulate/profiles.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.worker.machine.reports import BEATS_MISSED

#: Nothing on the network is sure: lost, late, doubled, and connections that break.
NETWORK = {"lose request": 0.01, "lose reply": 0.02, "late request": 0.015, "late reply": 0.01, "copy": 0.03, "break": 0.01}
PROCESS = {"kill": 0.002, "freeze": 0.003, "cut off": 0.001}
SERVER = {"stall": 0.001}
#: How far a clock jumps ahead of its lowest, at most. A tombstone lives for 20 s after its call was void, which is 10 s after the
#: call was sent: a copy that comes late by more than 30 s, the jump included, is outside the promise (rules 3 and 7) once the
#: clock has jumped back.
CLOCK_FORWARD_MS_MAX = 15_000
#: The size of a piece where scripts work in small ones: the least that parts no item (engine/redis/scripts.py).
PIECE_WORDS = 4
#: No mishap of a kind.
QUIET: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Mishaps:
    """What may go wrong in an episode, of whatever it is played with, over `chaos_ms`."""

    name: str
    chaos_ms: int = 25_000
    network: Mapping[str, float] = field(default_factory=lambda: NETWORK)
    #: How late a message or a copy may come. A tombstone outlives all but those that come half a minute late.
    late_ms_most: int = 30_000
    process: Mapping[str, float] = field(default_factory=lambda: PROCESS)
    server: Mapping[str, float] = field(default_factory=lambda: SERVER)
    #: A failover loses what at most so many deliveries have written. The clock of the server that takes over is ahead of the one
    #: before by between so much and so much; behind it where that is negative.
    lost_most: int = 15
    takeover_clock_ms: tuple[int, int] = (0, 0)
    #: How often a message to a process that only listens gets lost. Whether the queue's sequences run out.
    unheard: float = 0.0
    full_queue: bool = False

    @property
    def latest_ms(self) -> int:
        """How late a message comes at most."""
        return min(self.late_ms_most, 30_000 - CLOCK_FORWARD_MS_MAX) if "clock forward" in self.server else self.late_ms_most

    @property
    def exact(self) -> bool:
        """Whether each script runs as a whole: one that is cut off may leave an index entry too many, never a job without one."""
        return not {"cut script", "slot move half way"} & set(self.server)

    @property
    def clock_runs(self) -> bool:
        """Whether the server's clock only ever runs forward at its pace."""
        return not {"clock back", "clock forward"} & set(self.server) and self.takeover_clock_ms[0] >= 0


@dataclass(frozen=True, slots=True)
class Profile(Mishaps):
    """One kind of episode. `jobs` come over `chaos_ms`; shares are of the jobs."""

    workers: int = 2
    concurrency: int = 2
    prefetch: int = 4
    lease_ms: int = 9000
    sweep_ms: int = 1000
    jobs: int = 14
    #: Whether processes look out for a server that went back.
    watches: bool = False
    poison: float = 0.05
    failing: float = 0.15
    delayed: float = 0.25
    expiring: float = 0.0
    again: float = 0.15
    bulk: float = 0.25
    bulk_most: int = 5
    handler_ms: tuple[float, float] = (2, 3000)
    big: float = 0.0
    corrupt: float = 0.0
    stops: float = 0.1
    #: Names of jobs; those that run inline; keys, unique and dedup keys that some jobs have; calls that pause and limit.
    names: tuple[str, ...] = ("mail",)
    inline: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    keyed: float = 0.0
    unique: float = 0.0
    dedup: float = 0.0
    limits: int = 0
    rated: bool = False
    pauses: int = 0
    #: Calls that put, change and remove schedules; jobs that need others; calls that do something to a job by hand; handlers that
    #: return something.
    schedules: int = 0
    with_parents: float = 0.0
    hands: int = 0
    #: Calls that requeue a job with its children, or what is dead of its workflow; that set the history.
    revivals: int = 0
    histories: int = 0
    returns: float = 0.3
    result_ttls_ms: tuple[int, ...] = (500, 30_000)
    #: How often workers tell that they live (0: they do not). Shares of the jobs: that want something of their worker, whose
    #: handler raises what the job has a rule for, that cost more than one unit of a rate. Calls: that clean, drain and
    #: obliterate, and that bound what is kept.
    beat_ms: int = 0
    #: Whether workers name their control connections, but for those at so many places that are behind a proxy, which look and are
    #: not named, and at so many more that do neither; how often one of these connections is cut and made again, or all at once.
    presence: bool = False
    proxied: int = 0
    absent: int = 0
    cuts: float = 0.0
    cuts_of_most: float = 0.0
    routed: float = 0.0
    dropped: float = 0.0
    costly: float = 0.0
    clears: int = 0
    bounds: int = 0
    #: Calls that take a lock, hold it, renew it and give it back; that read how a job has ended. Whether the waits of failed runs
    #: grow, and whether the scripts work through their lists in pieces of a few words.
    locks: int = 0
    reads: int = 0
    backoffs: bool = False
    pieces: bool = False

    @property
    def beats_for_ms(self) -> int:
        """How long a beat counts."""
        return self.beat_ms * BEATS_MISSED
