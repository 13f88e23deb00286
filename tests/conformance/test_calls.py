"""Stored calls come to what they came to when they were stored: the reply, each key and its end, and what is published.

The corpus needs no worker and no queue, so it also says what a client in another language has to send.
`python -m tests.conformance.calls` writes it.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from chaos.simulate.wire import Wire
from engine.redis.scripts import PIECE_WORDS, all_models, names_of, scripts_folder
from engine.testing import EmbeddedServer
from tests.conformance.calls.recording import lines_of, marked_scripts, telling
from tests.conformance.calls.replay import Player, scripts_of
from tests.conformance.calls.text import Episode, read
from tests.conformance.calls.variants import pinned, scripts_called
from tests.golden import FOLDER, same

CORPUS = sorted((Path(__file__).parent / "calls" / "corpus").glob("*.txt"))
#: Scripts without a stored call: those that foreign models have from Lanes, and what no test sends under a clock of its own.
WITHOUT = {
    *("lock_acquire", "lock_extend", "lock_release", "replication_probe", "read_worker_updates"),
    *("beat", "orphans", "read_progress", "set_metadata", "set_retention"),
}
#: What these restore is in the words of one version of one server.
NEVER = {"restore_load", "restore_end"}


@cache
def _episodes(path: Path) -> list[tuple[Episode, list[str]]]:
    return list(read(path))


def _short(value: Path | str) -> str:
    return value.stem if isinstance(value, Path) else value


@pytest.fixture
def wire(ironclaim_server: EmbeddedServer, ironclaim_url: str) -> Iterator[Wire]:
    with closing(Wire(ironclaim_server.port)) as made:
        yield made


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_each_call_comes_to_what_was_stored(path: Path, wire: Wire) -> None:
    player = Player(wire, path.stem)
    for episode, stored in _episodes(path):
        for was, now in zip(stored, player.play(episode), strict=True):
            if now != was:
                pytest.fail(f"{episode.name}\nstored:\n{was}\nnow:\n{now}\nintended? python -m tests.conformance.calls", False)


@pytest.mark.parametrize(("path", "script"), [(path, script) for path in CORPUS for script in scripts_called(path)], ids=_short)
def test_a_changed_call_comes_to_what_was_told(path: Path, script: str, wire: Wire) -> None:
    """A key of another type, none, one that expires, or as the call leaves it; a word that is greater, less or empty; a later
    clock."""
    lines = pinned(Player(wire, path.stem), script, _episodes(path))
    same(f"conformance/changed/{path.stem}/{script}.txt", "".join(f"{line}\n" for line in lines))


def test_each_text_of_changed_calls_is_of_a_script_with_calls() -> None:
    kept = {(file.parent.name, file.stem) for file in (FOLDER / "conformance/changed").glob("*/*")}
    assert kept == {(path.stem, script) for path in CORPUS for script in scripts_called(path)}


def test_each_script_of_each_model_has_a_stored_call() -> None:
    found = {path.stem: {step.script for episode, _ in _episodes(path) for step in episode.steps} for path in CORPUS}
    wanted = {model: {*scripts_of(model, PIECE_WORDS)} - NEVER for model in all_models(scripts_folder())}
    lacks = {model: names - found.get(model, set()) for model, names in wanted.items()}
    assert lacks["dsps"] == set() and lacks["lanes"] == {"lock_extend", "lock_release", "replication_probe"}
    assert [(model, names - WITHOUT) for model, names in lacks.items() if names - WITHOUT] == []


def test_a_marked_script_says_which_of_its_lines_ran_and_the_loader_is_as_it_was(wire: Wire, tmp_path: Path) -> None:
    (path,) = (path for path in CORPUS if path.stem == "bananas")
    player = Player(wire, path.stem, marked_scripts(tmp_path / "lua"), telling)
    reached = {episode: lines_of(player, episode) for episode, _ in islice(read(path), 2)}
    assert all(any(isinstance(mark, bytes) and mark.isdigit() for mark in marks) for marks in reached.values())
    assert len(set(reached.values())) == 2 and names_of("_marks") == ({"_marks"}, set())
