"""Episode after episode until the time is up or an invariant is broken."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.simulate.plan import Plan, Player, Result
from chaos.simulate.profile import Mishaps
from chaos.simulate.shrink import Shrinker
from chaos.simulate.trace import readable

#: How long a failing episode may be shrunk.
SHRINK_S = 20.0
_TELL_S = 5.0
#: A run this long must have met all of `EXPECTED`. On a slow machine it goes on until it has, and has played each profile twice,
#: or enough episodes without a rule, but not for more than so many times as long.
WHOLE_S = 60.0
_ROUNDS = 2
_LONGER = 6
#: Some removals are found in one of so many episodes.
_EPISODES = 60

#: What a run of Lanes has to meet: one that never saw a lease reaped or a late claim refused has proved little about them.
EXPECTED = (
    *("enqueue created", "enqueue repeated", "enqueue duplicate", "enqueue refused"),
    *("claim leased", "claim empty", "claim repeated", "claim void", "claim stale"),
    *("finish ok", "finish repeated", "finish stale", "retry ok", "retry ok buried", "retry repeated", "retry stale"),
    *("release ok", "extend ok", "extend repeated", "extend void", "extend stale", "mark ok", "mark repeated", "mark stale"),
    *("reaped", "promoted", "crash buried", "corrupt buried", "marker handed out", "cut off", "refused for memory"),
    *("producer told created", "producer told unknown", "producer told unavailable", "producer told duplicate"),
    *("administration done", "administration repeated", "enqueue orphan"),
    *("cancel done", "remove done", "requeue done", "run_now done", "discard done", "tick ticked", "tick moved", "tick repeated"),
    *(
        "beat ok",
        "beat repeated",
        "beat left",
        "reportruntimes ok",
        "reportruntimes repeated",
        "orphan taken",
        "lost taken",
        "routed job started",
        "job of many places started",
    ),
    *("revive done", "revive orphan", "end in the history"),
    *("drop skipped", "drop rerouted", "drop discarded", "drop repeated"),
    "job expired",
    *("clean done", "clean repeated", "obliterate begin done", "obliterate busy", "obliterate end done"),
    *("acquire lock held", "acquire lock taken", "acquire lock lost", "acquire lock refused"),
    *("extend lock held", "extend lock lost", "release lock released", "release lock lost"),
    *("look pending", "look finished with a record", "look dead with a record", "look gone"),
    *("growing wait", "child that may read a result", "more than a piece", "tick passed by"),
    *("clean over", "drain over", "obliterate over", "retention over"),
    *("job taken back", "end taken back", "job ended again", "loss told sequence", "loss told claim"),
    *("slot tryagain", "slot ask", "slot ask followed", "slot moved", "slot half way"),
)


@dataclass(slots=True)
class Tally:
    """What a run has done."""

    steps: int = 0
    episodes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    #: What it has to meet.
    expected: Sequence[str] = ()

    def add(self, result: Result) -> None:
        """One more episode."""
        self.steps += result.steps
        self.episodes += 1
        self.counts.update(result.counts)
        self.faults.update(fault.kind for fault in result.faults)

    @property
    def a_minute(self) -> int:
        """Steps a minute."""
        return int(self.steps / max(self.seconds, 1e-9) * 60)

    @property
    def missed(self) -> list[str]:
        """Kinds of replies that should have occurred and did not."""
        return [kind for kind in self.expected if not self.counts[kind]]


def search(
    stage: Player[Any, Any],
    seed: int,
    seconds: float,
    tell: Callable[[str], None],
    profiles: Sequence[Mishaps],
    finds: Sequence[str] = (),
    expected: Sequence[str] = (),
) -> tuple[Tally, tuple[Plan[Any, Any], Result] | None]:
    """Play episodes for so long; the first that breaks an invariant (one of `finds`, if any are named). `expected`: what a whole
    run has to meet."""
    chooser = random.Random(seed)
    tally = Tally(expected=expected)
    whole = 0 if seconds < WHOLE_S else _EPISODES if finds else _ROUNDS * len(profiles)
    start_s = told_s = time.monotonic()
    while True:
        for profile in profiles:
            plan = stage.plan(chooser.getrandbits(48), profile)
            result = stage.play(plan)
            now_s = time.monotonic()
            tally.add(result)
            tally.seconds = now_s - start_s
            if result.found is not None and (not finds or result.found.invariant in finds):
                return tally, (plan, result)
            if now_s - told_s >= _TELL_S:
                told_s = now_s
                tell(progress(tally))
            proved = tally.episodes >= whole and not (whole and tally.missed)
            if tally.seconds >= seconds and (proved or tally.seconds >= _LONGER * seconds):
                return tally, None


def progress(tally: Tally) -> str:
    """One line while it runs."""
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.faults.items()))
    return f"{tally.steps} steps, {tally.a_minute} a minute, {tally.episodes} episodes; faults: {faults or 'none'}"


def shrunk(stage: Player[Any, Any], plan: Plan[Any, Any], result: Result, budget_s: float = SHRINK_S) -> list[str]:
    """The trace of a failing episode, made small: at most 30 lines."""
    return readable(Shrinker(stage, plan, result, budget_s).shrink()[1])
