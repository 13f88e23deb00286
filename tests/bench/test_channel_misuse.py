"""Receipts that must not work: each kind is wrong in the one way that its name says, and the rest of it is right."""

import random

import pytest

import engine
from bench.channels import misuse
from engine.channel import replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, clock_after, clock_ahead

CHANNEL, NAME = "wrap-01", "reader"


def handed(at: int, era: int = 0, covers: int = 1) -> misuse.Handed:
    return misuse.Handed(replies.outer({"redis": replies.inner(CHANNEL, NAME, at)}), era, covers)


def clock_of(receipt: str) -> int:
    return replies.read_inner(CHANNEL, NAME, replies.read_outer(receipt)["redis"])


@pytest.mark.parametrize("kind", ["tampered", "truncated", "foreign"])
@pytest.mark.parametrize("at", [5, CLOCK_MAX, CLOCK_MIN])
def test_what_a_checksum_finds(kind: misuse.Misuse, at: int) -> None:
    made = misuse.forged(kind, CHANNEL, NAME, handed(at), None)
    assert made is not None
    with pytest.raises(engine.Malformed):
        clock_of(made[0])


def test_a_tampered_receipt_names_the_next_clock_under_the_checksum_of_this_one() -> None:
    made = misuse.forged("tampered", CHANNEL, NAME, handed(CLOCK_MAX), None)
    assert made is not None and made[1] == CLOCK_MIN
    text = replies.read_outer(made[0])["redis"]
    assert f'"clk":{CLOCK_MIN},' in text and replies.checksum(CHANNEL, NAME, CLOCK_MAX) in text


def test_a_foreign_receipt_is_good_for_another_subscriber() -> None:
    made = misuse.forged("foreign", CHANNEL, NAME, handed(5), None)
    assert made is not None
    assert replies.read_inner(CHANNEL, f"{NAME}-other", replies.read_outer(made[0])["redis"]) == made[1] == 5


def test_one_beyond_has_a_good_checksum_and_is_ahead_also_over_the_wrap() -> None:
    made = misuse.forged("beyond", CHANNEL, NAME, handed(CLOCK_MAX - 3), None)
    assert made is not None and clock_after(clock_of(made[0]), CLOCK_MAX)


def test_an_old_one_is_of_the_same_era_or_not_used() -> None:
    made = misuse.forged("old", CHANNEL, NAME, handed(9, era=1), handed(5, era=1))
    assert made is not None and clock_of(made[0]) == made[1] == 5
    assert misuse.forged("old", CHANNEL, NAME, handed(9, era=1), handed(5, era=0)) is None
    assert misuse.forged("old", CHANNEL, NAME, handed(9), None) is None


@pytest.mark.parametrize(("covers", "used"), [(3, True), (4, True), (5, False), (9, False)])
def test_an_old_one_that_the_cursor_lies_before_again_is_not_used(covers: int, used: bool) -> None:
    """A restored server knows nothing of its acknowledgement."""
    assert (misuse.forged("old", CHANNEL, NAME, handed(9, covers=covers), handed(5)) is not None) == used
    over = handed(clock_ahead(CLOCK_MAX, 4), covers=covers)
    assert (misuse.forged("old", CHANNEL, NAME, over, handed(CLOCK_MAX)) is not None) == used


def test_so_many_and_all_kinds_are_drawn() -> None:
    rng = random.Random(1)
    drawn = [misuse.drawn(rng, 0.1) for _ in range(2000)]
    assert 120 < sum(kind is not None for kind in drawn) < 290 and set(drawn) == {None, *misuse.KINDS}
