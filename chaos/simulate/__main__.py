"""`python -m chaos.simulate run | rules`. Exits 0 nothing found, or each removed rule found; 1 otherwise; 2 a run that proves
too little."""

from __future__ import annotations

import argparse
import sys

from chaos.simulate.campaign import WHOLE_S, search, shrunk
from chaos.simulate.episode import QUEUE, Stage
from chaos.simulate.profiles import BY_NAME, PROFILES
from chaos.simulate.rules import take_away
from chaos.simulate.wire import Wire
from engine.models.lanes import Lanes
from engine.testing import EmbeddedServer


def main(words: list[str]) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m chaos.simulate", description="The deterministic simulator.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play episodes of one seed")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--minutes", type=float, default=1.0)
    run.add_argument("--profile", choices=sorted(BY_NAME), action="append", help="only such episodes; may be repeated")
    rules = commands.add_parser("rules", help="take each rule away; it must be found")
    rules.add_argument("--seed", type=int, default=1)
    rules.add_argument("--rule", type=int, action="append", default=[], help="only this rule; may be repeated")
    chosen = parser.parse_args(words)
    if chosen.command == "rules":
        return 0 if take_away(chosen.seed, chosen.rule) else 1
    return _run(chosen.seed, chosen.minutes, chosen.profile or [])


def _run(seed: int, minutes: float, names: list[str]) -> int:
    profiles = [BY_NAME[name] for name in names] or PROFILES
    with EmbeddedServer() as server:
        wire = Wire(server.port)
        stage = Stage(wire, Lanes(QUEUE))
        tally, failure = search(stage, seed, minutes * 60, lambda line: print(f"simulate: {line}", flush=True), profiles)
        did = f"{tally.steps} steps in {tally.seconds:.0f} s ({tally.a_minute} a minute), {tally.episodes} episodes"
        print("simulate: met " + ", ".join(f"{kind} {count}" for kind, count in sorted(tally.counts.items())))
        if failure is not None:
            plan, _ = failure
            for line in shrunk(stage, *failure):
                print(line)
            print(f"simulate: seed {seed}, {did}, found in an episode of '{plan.profile.name}', seed {plan.seed}")
            return 1
        wire.close()
    if tally.missed and not names and tally.seconds >= WHOLE_S:
        print(f"simulate: seed {seed}, {did}, but this never occurred: {', '.join(tally.missed)}")
        return 2
    print(f"simulate: seed {seed}, {did}, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
