"""Takes each rule away in turn and looks for what that breaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from chaos.simulate.campaign import search, shrunk
from chaos.simulate.games import GAMES, Game
from chaos.simulate.patching import Removal, removed
from chaos.simulate.wire import Wire
from engine.testing import EmbeddedServer

SEARCH_S = 60.0
_SHRINK_S = 8.0
_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one removal. `lines`: the trace, or what was found instead."""

    removal: Removal
    invariant: str
    seconds: float
    episodes: int
    lines: tuple[str, ...]


def look(game: Game, removal: Removal, port: int, seed: int, seconds: float = SEARCH_S, shrink_s: float = _SHRINK_S) -> Verdict:
    """Take one rule away on the server at a port, and look for what that breaks."""
    wire = Wire(port)
    try:
        with removed(removal) as lua:
            stage = game.stage(wire, lua)
            profiles = [game.profile(name) for name in removal.profiles]
            tally, failure = search(stage, seed, seconds, lambda _: None, profiles, removal.finds)
            if failure is None or failure[1].found is None:
                return Verdict(removal, "", tally.seconds, tally.episodes, ())
            lines = shrunk(stage, *failure, shrink_s)
            return Verdict(removal, failure[1].found.invariant, tally.seconds, tally.episodes, tuple(lines))
    finally:
        wire.close()


def find_alone(name: str, number: int, seed: int) -> Verdict:
    """The same with a server of its own, for a process of its own."""
    with EmbeddedServer() as server:
        return look(GAMES[name], GAMES[name].removals[number], server.port, seed)


def take_away(game: Game, seed: int, rules: Sequence[int] = ()) -> bool:
    """All removals, or those of some rules, two at a time; prints each trace and the sum. True when each was found."""
    start_s = time.monotonic()
    chosen = [number for number, removal in enumerate(game.removals) if not rules or removal.rule in rules]
    lost: list[Removal] = []
    with ProcessPoolExecutor(_PROCESSES) as pool:
        for verdict in pool.map(find_alone, [game.name] * len(chosen), chosen, [seed] * len(chosen)):
            removal = verdict.removal
            if verdict.invariant:
                how = f"found by '{verdict.invariant}' in {verdict.seconds:.1f} s, {verdict.episodes} episodes"
            else:
                how = f"NOT FOUND in {verdict.seconds:.0f} s, {verdict.episodes} episodes"
                lost.append(removal)
            rule = f"rule {removal.rule}, without it" if removal.rule else "the format, where"
            print(f"{game.name}, {rule} {removal.what}: {how}", flush=True)
            for line in verdict.lines:
                print(f"    {line}", flush=True)
    reasons = ", ".join(f"{rule}: {reason}" for rule, reason in game.not_removable.items()) or "none"
    numbers = sorted({game.removals[number].rule for number in chosen})
    found = [rule for rule in numbers if rule not in {removal.rule for removal in lost}]
    print(f"{len(chosen)} removals of {len(numbers)} rules, {len(chosen) - len(lost)} found, {time.monotonic() - start_s:.0f} s")
    print(f"rules: removed {len(numbers)}, found {len(found)}, not removable: {reasons}")
    return not lost
