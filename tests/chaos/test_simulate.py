"""The simulator: a seed replays to the byte, the clean engine is clean, a rule that is taken away is found and told briefly."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from chaos import errors, planting
from chaos.simulate import campaign, games, removals
from chaos.simulate.book import Book
from chaos.simulate.chance import Chance
from chaos.simulate.episode import QUEUE, Stage, plan_of
from chaos.simulate.patching import removal, removed
from chaos.simulate.profiles import BY_NAME, PROFILES
from chaos.simulate.rules import look
from chaos.simulate.server import SimulatedServer
from chaos.simulate.trace import LINES_MAX, digest
from chaos.simulate.wire import Wire
from engine.models.lanes import Lanes
from engine.testing import EmbeddedServer

#: Rules that have to be taken away.
RULES = {*range(1, 14), *range(15, 28)}


@pytest.fixture
def stage(ironclaim_server: EmbeddedServer) -> Iterator[Stage]:
    wire = Wire(ironclaim_server.port)
    yield Stage(wire, Lanes(QUEUE))
    wire.do("CONFIG", "SET", "maxmemory", "0")
    wire.close()


#: What a few episodes have met.
MET = (
    *("claim leased", "finish ok", "enqueue duplicate", "handler started", "cancel done", "requeue done", "beat ok"),
    *("orphan taken", "drop skipped", "drop rerouted", "clean done", "obliterate end done", "acquire lock held"),
    *("extend lock lost", "look finished with a record", "child that may read a result", "more than a piece"),
    *("job taken back", "end taken back", "loss told claim", "slot tryagain", "slot moved", "slot half way"),
)


def assert_clean(stage: Stage, *names: str) -> campaign.Tally:
    tally = campaign.Tally()
    for name in names:
        result = stage.play(plan_of(3, BY_NAME[name]))
        assert result.found is None, (name, result.found)
        tally.add(result)
    return tally


def test_the_clean_engine_breaks_no_invariant(stage: Stage) -> None:
    tally = assert_clean(
        *(stage, "beats", "drops", "locks", "heirs", "pieces", "failover and clock ahead"),
        *("slot moves half way", "by hand", "cleared"),
    )
    assert tally.steps > 500 and not [kind for kind in MET if not tally.counts[kind]]


@pytest.mark.slow
def test_the_clean_engine_breaks_no_invariant_elsewhere(stage: Stage) -> None:
    tally = assert_clean(
        *(stage, "everything", "late copies", "failover", "schedules", "failover and clock behind", "slot moves"),
        *("all in trouble", "routes", "kept", "revived", "history and cut"),
    )
    assert tally.counts["tick ticked"] and tally.counts["routed job started"] and tally.counts["retention over"]
    assert tally.counts["revive done"] and tally.counts["end in the history"]


def test_a_failover_may_take_the_last_writes_and_no_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that comes back empty has lost more than the suffix that is allowed to be lost."""
    lose_tail = SimulatedServer._lose_tail

    def comes_back_empty(server: SimulatedServer) -> None:
        lose_tail(server)
        server.set_raw(*(("DEL", server.model.keys.prefix + name) for name in server.state.raw if name != "sweep"))

    monkeypatch.setattr(SimulatedServer, "_lose_tail", comes_back_empty)
    quiet = replace(BY_NAME["failover and clock ahead"], network={}, process={}, again=0.0, stops=0.0, poison=0.0)
    found = (stage.play(plan_of(seed, quiet)).found for seed in range(3))
    assert any(broken is not None and broken.invariant == "acknowledged" for broken in found)


def test_what_is_done_again_after_a_failover_was_in_the_lost_suffix(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that does not go back takes each second finish for a violation: the relaxed one sees them all."""

    def stays(book: Book, kept: object) -> None:
        book.eras += 1

    # Few seeds are enough to see both and a violation.
    tally, broken = campaign.Tally(), set[str]()
    for seed in range(8):
        plan = plan_of(seed, BY_NAME["failover and clock ahead"])
        result = stage.play(plan)
        assert result.found is None
        tally.add(result)
        with monkeypatch.context() as patch:
            patch.setattr(Book, "goes_back", stays)
            if (found := stage.play(plan).found) is not None:
                broken.add(found.invariant)
        if tally.counts["job ended again"] and tally.counts["job made again"] and broken & {"one finish", "undead"}:
            return
    raise AssertionError((tally.counts, broken))


def test_each_connection_hears_once_that_the_slot_has_moved(stage: Stage) -> None:
    result = stage.play(plan_of(5, BY_NAME["slot moves"]))
    assert result.found is None
    moved = [row for row in result.rows if row.result == "moved"]
    moves = [row for row in result.rows if row.who == "server" and row.what == "slot move"]
    assert moves and moved
    for begins, ends in zip(moves, [*moves[1:], None], strict=True):
        between = [row.who for row in moved if row.at_ns >= begins.at_ns and (ends is None or row.at_ns < ends.at_ns)]
        assert len(between) == len(set(between))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["limits", pytest.param("everything", marks=pytest.mark.slow)])
def test_a_seed_replays_to_the_byte_under_another_hash_order(name: str, stage: Stage, ironclaim_server: EmbeddedServer) -> None:
    """And on the other server, where there is one."""
    first = stage.play(plan_of(3, BY_NAME[name]))
    here = digest(first)
    assert len(first.rows) > 100 and first.found is None
    assert digest(stage.play(plan_of(3, BY_NAME[name]))) == here
    code = (
        "import sys; from chaos.simulate.episode import QUEUE, Stage, plan_of; from chaos.simulate.profiles import BY_NAME;"
        "from chaos.simulate.trace import digest; from chaos.simulate.wire import Wire; from engine.models.lanes import Lanes;"
        "print(digest(Stage(Wire(int(sys.argv[1])), Lanes(QUEUE)).play(plan_of(3, BY_NAME[sys.argv[2]]))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7" if os.environ.get("PYTHONHASHSEED") != "7" else "8"}
    other = EmbeddedServer(binary="redis-server") if "CI" in os.environ or shutil.which("redis-server") else None
    with other or nullcontext(ironclaim_server) as server:
        words = [sys.executable, "-c", code, str(server.port), name]
        there = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert there.stdout.strip() == here


@pytest.mark.slow
def test_another_seed_is_another_episode(stage: Stage) -> None:
    first, second = (digest(stage.play(plan_of(seed, BY_NAME["everything"]))) for seed in (11, 12))
    assert first != second


#: Removals that are found within a second or two, each of another part; `chaos simulate rules` takes all away.
QUICKLY_FOUND = (
    *("results live for a tenth of their time", "a lock that has run out is renewed"),
    *("a claim does not lease jobs beyond the first piece", "a job that goes on elsewhere ends here first"),
)
FOUND = (
    *("a renewal is refused under memory pressure", "a lease holds no slot", "a failed job waits for half of its back-off"),
    *("a fence counts by one and knows no time", "a script that stopped at a key that has gone is not sent again"),
    *("a process that has told a loss tells no other", "a tombstone lives for half a second"),
    *("a job is ended by a call that comes too late", "a tick does not look which tick the schedule waits for"),
    *("a job goes on when the first of its parents has ended", "a cancel leaves a running job its lease"),
    *("a worker claims the jobs of all classes", "a drain takes what runs"),
    *("a renewal shows no life to the look for orphans", "delayed jobs are promoted 200 ms early"),
    *("all jobs of a claim have the payload of the first", "a schedule makes a job while the one before lives"),
    *("a lock is taken 100 ms before it runs out", "a bulk loses delayed jobs beyond the first piece"),
    *("a requeue leaves the crashes of the life before", "a call that meets a slot that moves is refused for good"),
    *("where its slot has moved, an enqueue is taken to be done",),
    *("a server that a process does not know is not asked what it lacks",),
)


@pytest.mark.parametrize("what", [*QUICKLY_FOUND, *(pytest.param(what, marks=pytest.mark.slow) for what in FOUND)])
def test_a_rule_that_is_taken_away_is_found(ironclaim_server: EmbeddedServer, what: str) -> None:
    (removal,) = [removal for removal in removals.REMOVALS if removal.what == what]
    verdict = look(games.GAMES["lanes"], removal, ironclaim_server.port, seed=1, seconds=300, shrink_s=0.3)
    assert verdict.invariant in removal.finds and 2 <= len(verdict.lines) <= LINES_MAX
    assert verdict.lines[-1].startswith(f"broken: {verdict.invariant}: ")


def test_each_rule_is_taken_away_or_said_not_to_be() -> None:
    assert {one.rule for one in removals.REMOVALS} | set(removals.NOT_REMOVABLE) >= RULES
    for one in removals.REMOVALS:
        assert set(one.profiles) <= set(BY_NAME), one.what
        assert planting.planted(one.edits)


def test_a_removal_at_an_anchor_that_is_gone_is_an_error() -> None:
    unknown = removal(1, "nothing", "one place", "calm").by("no-such-anchor", "")
    with pytest.raises(errors.HarnessError, match="anchor 'no-such-anchor' occurs 0 times"), removed(unknown):
        pass


def test_only_the_faults_that_are_named_strike() -> None:
    rates, chance = {"copy": 0.2, "break": 0.2}, Chance(4)
    all_of_them = [fault for at in range(50) if (fault := chance.fault("w1.work", at, rates))]
    assert len(all_of_them) > 5 and chance.struck == all_of_them
    some = Chance(4, all_of_them[::2])
    struck = [some.fault("w1.work", at, rates) for at in range(50)]
    assert [fault for fault in struck if fault is not None] == all_of_them[::2]
    some.healed = True
    assert some.fault(all_of_them[0].site, all_of_them[0].at, rates) is None


def test_profiles_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(PROFILES)
