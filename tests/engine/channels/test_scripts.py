"""The scripts of a channel: their headers, flags, and how many commands of the server each of them takes."""

import re
from pathlib import Path

import pytest

from engine.redis.scripts import load_model, scripts_folder
from tests.engine.channels.channel_desk import ChannelDesk
from tests.engine.helpers.slots import check_slots

DSPS = scripts_folder() / "dsps"
REAL = sorted(path.stem for path in DSPS.glob("*.lua"))
#: What reads, moves a cursor or deletes must work when memory is full; what adds a message or a subscriber must not.
ALLOW_OOM = {"acknowledge", "fetch", "unsubscribe"}
READ_ONLY = {"old"}


def test_every_script_loads() -> None:
    assert sorted(load_model(DSPS.parent, "dsps")) == REAL == sorted({*ALLOW_OOM, *READ_ONLY, "publish", "subscribe"})


@pytest.mark.parametrize("name", REAL)
def test_flags_of_rule_2(name: str) -> None:
    first = (DSPS / f"{name}.lua").read_text().splitlines()[0]
    flags = set(re.findall(r"[a-z-]+", first.partition("flags=")[2]))
    assert flags == ({"allow-oom"} if name in ALLOW_OOM else {"no-writes"} if name in READ_ONLY else set())


@pytest.mark.parametrize("name", REAL)
def test_each_slot_of_a_real_script_is_held(name: str, tmp_path: Path) -> None:
    check_slots(DSPS / f"{name}.lua", tmp_path)


@pytest.mark.parametrize("path", sorted(DSPS.rglob("*.lua")), ids=lambda path: path.stem)
def test_a_clock_is_formatted_and_never_compared_as_a_number_but_in_a_few_functions(path: Path) -> None:
    """`..` and tostring round a number past 2^53 - 1 to 14 digits."""
    code = re.sub(r"--.*", "", path.read_text())
    assert "tostring" not in code
    for function in re.split(r"^local function ", code, flags=re.MULTILINE):
        if not re.match(r"(clock_after|clock_ahead|clock_steps|clock_of|oldest|next_live)\(", function):
            assert not re.search(r"\b(clock|at|own|last|seen|upto|goal|position|receipt|known|start)\s*[<>]", function)


def test_a_publish_takes_about_a_dozen_commands_and_a_batch_four_a_message(desk: ChannelDesk) -> None:
    with desk.subscribed().published("m0").commands() as one:
        desk.publish("m1")
    assert sum(one.values()) <= 17, one
    with desk.commands() as many:
        desk.publish(*(f"n{number}" for number in range(100)))
    assert sum(many.values()) <= 4 * 100 and many["publish"] == 1, many


def test_a_fetch_takes_as_many_commands_for_64_messages_as_for_10(desk: ChannelDesk) -> None:
    desk.subscribed().publish(*(f"m{number}" for number in range(64)))
    costs: list[int] = []
    for most, left in ((20, 20), (64, 64), (64, 0)):
        if not left:
            desk.acknowledge(64)
        with desk.commands() as found:
            assert len(desk.fetch(most=most).items) == left
        costs.append(sum(found.values()))
    assert costs[0] == costs[1] <= 20 and costs[2] <= 13, costs
