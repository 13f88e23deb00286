"""Receipts that must not work: each kind is wrong in the one way that its name says, and the rest of it is right."""

import random

from bench.channels import misuse
from engine.channel import replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN, clock_ahead
from tests.golden import Told, answers, outcome, tells

CHANNEL, NAME = "wrap-01", "reader"


def handed(at: int, era: int = 0, covers: int = 1) -> misuse.Handed:
    return misuse.Handed(replies.outer({"redis": replies.inner(CHANNEL, NAME, at)}), era, covers)


def clock_of(receipt: str) -> int:
    return replies.read_inner(CHANNEL, NAME, replies.read_outer(receipt)["redis"])


def of_another(receipt: str) -> int:
    return replies.read_inner(CHANNEL, f"{NAME}-other", replies.read_outer(receipt)["redis"])


def forged(kind: misuse.Misuse, last: tuple[int, ...], before: tuple[int, ...] = ()) -> object:
    """The receipt that is made, with the clock that it is for, and as whose it can be read."""
    if made := misuse.forged(kind, CHANNEL, NAME, handed(*last), handed(*before) if before else None):
        return *made, *(str(outcome(read, made[0])).partition(":")[0] for read in (clock_of, of_another))
    return "not used"


#: The kind, and what was handed out last and before: clock, era, and how much it covers.
FORGED = [
    *((kind, (at,)) for kind in ("tampered", "truncated", "foreign") for at in (5, CLOCK_MAX, CLOCK_MIN)),
    # Ahead also over the wrap.
    ("beyond", (CLOCK_MAX - 3,)),
    # Of the same era.
    *(("old", (9, 1), (5, 1)), ("old", (9, 1), (5, 0)), ("old", (9,))),
    # A restored server knows nothing of its acknowledgement: one that the cursor lies before again is not used.
    *(("old", (9, 0, covers), (5,)) for covers in (3, 4, 5, 9)),
    *(("old", (clock_ahead(CLOCK_MAX, 4), 0, covers), (CLOCK_MAX,)) for covers in (3, 4, 5, 9)),
]


def each_is_wrong_in_one_way() -> Told:
    yield from answers([(forged, FORGED)])


def test_receipts_that_must_not_work() -> None:
    tells("bench/misuse.txt", each_is_wrong_in_one_way)


def test_so_many_and_all_kinds_are_drawn() -> None:
    rng = random.Random(1)
    drawn = [misuse.drawn(rng, 0.1) for _ in range(2000)]
    assert 120 < sum(kind is not None for kind in drawn) < 290 and set(drawn) == {None, *misuse.KINDS}
