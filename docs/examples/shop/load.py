"""What the drill sends, and how it counts what came of it."""

import random
from collections.abc import Iterator

from shop.jobs import charge, database, mail


def orders(seed: int) -> Iterator[tuple[object, dict[str, object], dict[str, object]]]:
    """Jobs without end, the same for the same seed: (task, arguments, options)."""
    randomness = random.Random(seed)
    while True:
        buyer = f"buyer-{randomness.randrange(100)}"
        if randomness.random() < 0.7:
            yield charge, {"buyer": buyer, "cents": randomness.randrange(100, 10_000)}, {"key": buyer}
        else:
            yield mail, {"buyer": buyer}, {}


def effects() -> dict[str, int]:
    """How often each job took effect, by its id."""
    with database() as connection:
        rows = connection.execute("SELECT job FROM charges UNION ALL SELECT job FROM mails").fetchall()
    counts: dict[str, int] = {}
    for (job,) in rows:
        counts[job] = counts.get(job, 0) + 1
    return counts
