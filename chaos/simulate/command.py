"""The verbs `simulate` and `simulate rules`: episodes of one seed, and each rule taken away."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.simulate.campaign import WHOLE_S, Tally, search, shrunk
from chaos.simulate.games import GAMES, Game
from chaos.simulate.profile import Mishaps
from chaos.simulate.rules import take_away
from chaos.simulate.wire import Wire
from engine.testing import EmbeddedServer

_ALL = "all"


def simulate(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Play episodes. Returns 0 when nothing was found, 1 otherwise, 2 for a run that proves too little. Raises HarnessError for a
    kind of episode that there is not."""
    games = _games(arguments.model)
    for name in arguments.profile:
        for game in games:
            known = [profile.name for profile in game.profiles]
            if name not in known:
                raise HarnessError(f"profile {name!r} is no kind of episode of {game.name}, which has {', '.join(known)}")
    if arguments.episode is not None and (len(games) != 1 or len(arguments.profile) != 1):
        raise HarnessError("episode: it takes one --model and one --profile")
    with interrupts.raised():
        if arguments.episode is not None:
            return _repeat(games[0], games[0].profile(arguments.profile[0]), arguments.episode)
        return _run(games, arguments.seed, arguments.minutes * 60, arguments.profile)


def rules(arguments: argparse.Namespace, interrupts: Interrupts) -> int:
    """Take rules away. Returns 0 when each was found, 1 otherwise."""
    with interrupts.raised():
        found = [take_away(game, arguments.seed, arguments.rule) for game in _games(arguments.model)]
    return 0 if all(found) else 1


def _games(model: str) -> list[Game]:
    return list(GAMES.values()) if model == _ALL else [GAMES[model]]


def _repeat(game: Game, profile: Mishaps, seed: int) -> int:
    with EmbeddedServer() as server:
        stage = game.stage(Wire(server.port), None)
        plan = stage.plan(seed, profile)
        result = stage.play(plan)
        for line in shrunk(stage, plan, result) if result.found is not None else ():
            print(line)
    what = f"one episode of '{profile.name}', seed {seed}, {result.steps} steps"
    print(f"simulate: {game.name}, {what}, {result.found or 'nothing found'}")
    return int(result.found is not None)


def _run(games: Sequence[Game], seed: int, seconds: float, names: Sequence[str]) -> int:
    whole = Tally()
    missed: list[str] = []
    for game in games:
        tally, found = _play(game, seed, seconds / len(games), names)
        whole.steps, whole.episodes, whole.seconds = (
            whole.steps + tally.steps,
            whole.episodes + tally.episodes,
            whole.seconds + tally.seconds,
        )
        did = f"{whole.steps} steps in {whole.seconds:.0f} s ({whole.a_minute} a minute), {whole.episodes} episodes"
        if found:
            print(f"simulate: seed {seed}, {did}, found in an episode of {found}")
            return 1
        if tally.missed and tally.seconds >= WHOLE_S:
            missed += [f"{kind} ({game.name})" for kind in tally.missed]
    if missed:
        print(f"simulate: seed {seed}, {did}, but this never occurred: {', '.join(missed)}")
        return 2
    print(f"simulate: seed {seed}, {did}, nothing found")
    return 0


def _play(game: Game, seed: int, seconds: float, names: Sequence[str]) -> tuple[Tally, str]:
    """What a run has done, and the episode in which it has found something."""
    profiles = [game.profile(name) for name in names] or game.profiles
    expected = () if names else game.expected

    def tell(line: str) -> None:
        print(f"simulate: {game.name}, {line}", flush=True)

    with EmbeddedServer() as server:
        wire = Wire(server.port)
        stage = game.stage(wire, None)
        tally, failure = search(stage, seed, seconds, tell, profiles, expected=expected)
        tell("met " + ", ".join(f"{kind} {count}" for kind, count in sorted(tally.counts.items())))
        if failure is None:
            wire.close()
            return tally, ""
        plan, _ = failure
        for line in shrunk(stage, *failure):
            print(line)
        name = plan.profile.name
        print(f"repeat: python -m chaos simulate --model {game.name} --profile '{name}' --episode {plan.seed}")
        return tally, f"'{name}', seed {plan.seed}"
