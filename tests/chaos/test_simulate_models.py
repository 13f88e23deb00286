"""The simulator of foreign models and channels: the clean engine is clean, a seed replays to the byte, a rule that is taken away
is found."""

from collections.abc import Iterator
from typing import Any

import pytest

from chaos.cli import main
from chaos.interrupts import Interrupts
from chaos.planting import planted
from chaos.simulate import campaign, plan, rules
from chaos.simulate.foreign.bull import BullFormat
from chaos.simulate.foreign.removals import FOREIGN_REMOVALS
from chaos.simulate.games import GAMES, Game, foreign
from chaos.simulate.trace import LINES_MAX, digest
from chaos.simulate.wire import Wire
from engine.testing import EmbeddedServer

OTHERS = [game for game in GAMES.values() if game.name != "lanes"]
FOREIGN = [game for game in OTHERS if game.name != "dsps"]
#: What a few episodes have met.
JOBS_MET = ("enqueue created", "enqueue repeated", "claim leased", "finish ok", "retry ok", "extend ok", "reaped", "promoted")
MESSAGES_MET = (
    *("publish created", "publish duplicate", "fetch messages", "acknowledge OK", "acknowledge stale", "wrapped", "cut off"),
)
#: What else is played: seeds of all layouts, where the model has several.
EPISODES = {
    "mosquito": [("frozen", 3)],
    "bananas": [("late copies", 4), ("clock", 6)],
    "dsps": [("late copies", 4), ("cut scripts", 7)],
}


@pytest.fixture
def wire(ironclaim_server: EmbeddedServer) -> Iterator[Wire]:
    wire = Wire(ironclaim_server.port)
    yield wire
    wire.do("CONFIG", "SET", "maxmemory", "0")
    wire.close()


def stage_of(game: Game, wire: Wire) -> plan.Player[Any, Any]:
    return game.stage(wire, None)


def assert_clean(stage: plan.Player[Any, Any], game: Game, *episodes: tuple[str, int]) -> campaign.Tally:
    """What such episodes have met, of those kinds that the model has."""
    tally = campaign.Tally()
    for name, seed in episodes:
        if name in [profile.name for profile in game.profiles]:
            result = stage.play(stage.plan(seed, game.profile(name)))
            assert result.found is None, (name, seed, result.found)
            tally.add(result)
    return tally


@pytest.mark.parametrize("game", OTHERS, ids=lambda game: game.name)
def test_the_clean_engine_breaks_no_invariant(game: Game, wire: Wire) -> None:
    tally = assert_clean(stage_of(game, wire), game, ("everything", 11), *EPISODES.get(game.name, ()))
    for kind in MESSAGES_MET if game.name == "dsps" else JOBS_MET:
        assert tally.counts[kind], kind


@pytest.mark.slow
@pytest.mark.parametrize("game", OTHERS, ids=lambda game: game.name)
def test_the_clean_engine_breaks_no_invariant_elsewhere(game: Game, wire: Wire) -> None:
    episodes = (("everything", 3), ("late copies", 4), ("crashes", 5), ("clock", 6), ("cut scripts", 7), ("wrap", 8))
    assert_clean(stage_of(game, wire), game, *episodes)


PLAYED = [pytest.param(game, marks=[] if game.name in ("bull", "dsps") else pytest.mark.slow, id=game.name) for game in OTHERS]


@pytest.mark.parametrize("game", PLAYED)
def test_a_seed_replays_to_the_byte(game: Game, wire: Wire) -> None:
    stage, profile = stage_of(game, wire), game.profile("clock")
    first = stage.play(stage.plan(11, profile))
    assert len(first.rows) > 100 and digest(stage.play(stage.plan(11, profile))) == digest(first)
    assert digest(stage.play(stage.plan(13, profile))) != digest(first)


#: Found within a second or two on an idle machine. The others: python -m chaos simulate rules --model ...
QUICKLY_FOUND = [
    (GAMES["bridge"], "a repeated enqueue is not known"),
    (GAMES["bull"], "the last ended token is forgotten"),
    (GAMES["dsps"], "a message is published again under an id that is known"),
]
OF_FOREIGN = (
    *("a repeated enqueue is not known", "the last ended token is forgotten", "a claim is not recorded"),
    *("a repeated end ends the job again", "the token of a call is not looked at", "leases that have ended are not taken"),
)
OF_CHANNELS = (
    *("receipts are compared as numbers", "an old receipt moves the cursor back"),
    *("what comes after the wrap is not delivered",),
)
EVERY = [*((game, what) for game in FOREIGN for what in OF_FOREIGN), *((GAMES["dsps"], what) for what in OF_CHANNELS)]
FOUND = [one for one in EVERY if one not in QUICKLY_FOUND]


TAKEN_AWAY = [
    *(pytest.param(game, what, id=f"{game.name}: {what}") for game, what in QUICKLY_FOUND),
    *(pytest.param(game, what, id=f"{game.name}: {what}", marks=pytest.mark.slow) for game, what in FOUND),
]


@pytest.mark.parametrize(("game", "what"), TAKEN_AWAY)
def test_a_rule_that_is_taken_away_is_found(ironclaim_server: EmbeddedServer, game: Game, what: str) -> None:
    (removal,) = [removal for removal in game.removals if removal.what == what]
    verdict = rules.look(game, removal, ironclaim_server.port, seed=1, seconds=300, shrink_s=0.3)
    assert verdict.invariant in removal.finds and 2 <= len(verdict.lines) <= LINES_MAX
    assert verdict.lines[-1].startswith(f"broken: {verdict.invariant}: ")


@pytest.mark.parametrize("game", OTHERS, ids=lambda game: game.name)
def test_each_removal_has_its_anchor_and_its_profiles(game: Game) -> None:
    names = [profile.name for profile in game.profiles]
    assert len(set(names)) == len(names)
    for removal in game.removals:
        assert set(removal.profiles) <= set(names), removal.what
        assert planted(removal.edits)


@pytest.mark.parametrize("unit_ms", [1, 1_000])
def test_what_needs_exact_times_is_taken_from_formats_that_have_them(unit_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BullFormat, "due_unit_ms", unit_ms)
    missing = {*FOREIGN_REMOVALS} - {*foreign("bull", GAMES["bull"].stage, BullFormat).removals}
    exact = {one for one in FOREIGN_REMOVALS if one.exact}
    assert exact and missing == (exact if unit_ms > 1 else set())


def test_models_take_turns_and_the_last_line_sums_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.simulate.command.GAMES", games := {name: GAMES[name] for name in ("bridge", "dsps")})
    assert main(["simulate", "--model", "all", "--profile", "clock", "--seed", "2", "--minutes", "0"], Interrupts()) == 0
    lines = capsys.readouterr().out.splitlines()
    # A slow machine also tells how far a model is, every few seconds.
    assert list(dict.fromkeys(line.split(",")[0] for line in lines[:-1])) == [f"simulate: {name}" for name in games]
    assert lines[-1].startswith("simulate: seed 2, ") and lines[-1].endswith(f"{len(games)} episodes, nothing found")
