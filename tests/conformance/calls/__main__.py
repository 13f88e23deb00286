"""Writes the corpus of recorded calls: `python -m tests.conformance.calls`.

Without an option the stored calls are played once more, and what they come to is stored: after a change of a reply or of a key.
With --choose, tests are run, and from their calls and the stored ones others are chosen: after a change of what scripts take, or
for a new script. So those stay whose test has gone since. Those called `rare: ...` stay in any case: what foreign clients leave
behind, times and orders that no test asks for.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from chaos.simulate.wire import Wire
from engine.testing.server import EmbeddedServer
from tests.conformance.calls.recording import Catcher, choose, lines_of, marked_scripts, telling
from tests.conformance.calls.replay import Player
from tests.conformance.calls.text import Episode, read, write

CORPUS = Path(__file__).parent / "corpus"
#: Whose calls there are to choose from: tests that draw nothing of their own.
SOURCES = (
    *("tests/engine/test_*.py", "tests/engine/models/test_*.py", "tests/engine/channels/test_*.py"),
    *("tests/conformance/test_*.py", "tests/conformance/channels/test_*.py"),
)
#: How long the calls of a model may be, and one episode.
MOST, MOST_OF_LANES, MOST_OF_ONE = 180_000, 350_000, 25_000


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.calls", description=__doc__)
    parser.add_argument("--choose", action="store_true", help="run tests, and choose from their calls")
    parser.add_argument("tests", nargs="*", help="files of tests to choose from")
    options = parser.parse_args()
    if options.choose:
        chosen = _chosen(options.tests or [str(path) for pattern in SOURCES for path in sorted(Path().glob(pattern))])
    else:
        chosen = {path.stem: _same(path.stem, [episode for episode, _ in read(path)]) for path in CORPUS.glob("*.txt")}
    CORPUS.mkdir(exist_ok=True)
    for model, episodes in chosen.items():
        write(CORPUS / f"{model}.txt", episodes.items())
        print(f"{model}: {len(episodes)} episodes, {sum(len(one.steps) for one in episodes)} steps")
    return 0


def _same(model: str, episodes: Iterable[Episode]) -> dict[Episode, list[str]]:
    """What they come to: those that come to the same on two servers."""
    twice: list[dict[Episode, list[str]]] = []
    for _ in range(2):
        with EmbeddedServer() as server, closing(Wire(server.port)) as wire:
            player = Player(wire, model)
            twice.append({episode: player.play(episode) for episode in episodes})
    return {episode: lines for episode, lines in twice[0].items() if lines == twice[1][episode]}


def _chosen(tests: list[str]) -> dict[str, dict[Episode, list[str]]]:
    catcher = Catcher()
    tests = [test for test in tests if "random" not in test and "cluster" not in test]
    pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", "-m", "not (slow or nightly or walk)", *tests], plugins=[catcher])
    chosen: dict[str, dict[Episode, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server, closing(Wire(server.port)) as wire:
        lua = marked_scripts(Path(folder) / "lua")
        for model, episodes in catcher.found.items():
            stored = [episode for episode, _ in read(CORPUS / f"{model}.txt")]
            there = {episode.steps: episode for episode in stored} | episodes
            player, same = Player(wire, model, lua, telling), _same(model, there.values())
            costs = {one: size for one, lines in same.items() if (size := sum(map(len, lines))) < MOST_OF_ONE}
            reached = {episode: lines_of(player, episode) for episode in costs}
            best = choose(reached, costs, MOST_OF_LANES if model == "lanes" else MOST)
            rare = (episode for episode in stored if episode in same and episode.name.startswith("rare: "))
            chosen[model] = {episode: same[episode] for episode in (*best, *rare)}
    return chosen


if __name__ == "__main__":
    sys.exit(main())
