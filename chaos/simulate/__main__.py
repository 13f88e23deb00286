"""`python -m chaos.simulate run | rules`. Exits 0 nothing found, or each removed rule found; 1 otherwise; 2 a run that proves
too little."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from chaos.simulate.campaign import WHOLE_S, Tally, search, shrunk
from chaos.simulate.games import GAMES, Game
from chaos.simulate.profile import Mishaps
from chaos.simulate.rules import take_away
from chaos.simulate.wire import Wire
from engine.testing import EmbeddedServer

_ALL = "all"


def main(words: list[str]) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m chaos.simulate", description="The deterministic simulator.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play episodes of one seed")
    run.add_argument("--minutes", type=float, default=1.0, help="in all")
    run.add_argument("--profile", action="append", default=[], help="only such episodes; may be repeated")
    run.add_argument("--episode", type=int, help="only the one that this seed makes of the profile, as it was")
    rules = commands.add_parser("rules", help="take each rule away; it must be found")
    rules.add_argument("--rule", type=int, action="append", default=[], help="only this rule; may be repeated")
    for command in (run, rules):
        command.add_argument("--model", choices=(*GAMES, _ALL), default="lanes", help="what it is played with; all: in turn")
        command.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(words)
    games = list(GAMES.values()) if chosen.model == _ALL else [GAMES[chosen.model]]
    if chosen.command == "rules":
        found = [take_away(game, chosen.seed, chosen.rule) for game in games]
        return 0 if all(found) else 1
    for name in chosen.profile:
        for game in games:
            known = [profile.name for profile in game.profiles]
            if name not in known:
                parser.error(f"argument --profile: {name!r} is no kind of episode of {game.name}, which has {', '.join(known)}")
    if chosen.episode is not None:
        if len(games) != 1 or len(chosen.profile) != 1:
            parser.error("argument --episode: it takes one --model and one --profile")
        return _repeat(games[0], games[0].profile(chosen.profile[0]), chosen.episode)
    return _run(games, chosen.seed, chosen.minutes * 60, chosen.profile)


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
        print(f"repeat: python -m chaos.simulate run --model {game.name} --profile '{name}' --episode {plan.seed}")
        return tally, f"'{name}', seed {plan.seed}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
