"""When the load had caught up with a fault: from the facts of a run."""

from collections.abc import Iterable

from reports import catch_up, file_facts
from reports.facts import MS, SLOT_NS, Drop, Process, Run, Stage

S = 1_000 * MS

#: In ms: one fault, and what follows it.
INJECT, HEAL, HEALED = 10_000, 13_000, 14_000


def run_of(
    late_ms: Iterable[int], *, lag_ms: int = 400, drops_ms: Iterable[int] = (), next_ms: int | None = None, role: str = "producer"
) -> Run:
    """A run whose load was late where it was meant to be sent at these times."""
    lags = frozenset((at_ms * MS // SLOT_NS, lag_ms * MS // file_facts.LAG_STEP_NS) for at_ms in late_ms)
    times = [("1-net-down", INJECT, HEAL, HEALED)] + ([("2-net-down", next_ms, next_ms, next_ms)] if next_ms else [])
    told = [(fault, *one) for fault, *at_ms in times for one in zip(("inject", "heal", "healed"), at_ms, strict=True)]
    stages = tuple(Stage(fault, "net-down", stage, "p", True, "", at * MS) for fault, stage, at in told)
    files, drops = {"p.jsonl": file_facts.FileFacts("p.jsonl", lags=lags)}, tuple(Drop(at_ms * MS, 1) for at_ms in drops_ms)
    return Run(spec={}, files=files, processes=(Process("p", role, "p.jsonl"),), stages=stages, drops=drops)


def ends_ms(run: Run) -> list[int]:
    assert catch_up.spans(run)[0][0] == INJECT * MS
    return [end_ns // MS for _, end_ns in catch_up.spans(run)]


def test_what_is_late_in_the_next_fault_is_due_to_that_one() -> None:
    assert ends_ms(run_of([14_500, *range(15_250, 18_000, 250)], next_ms=15_500)) == [15_500, 18_000]


def test_the_begin_of_what_was_late_is_told_once_for_each_part_of_time() -> None:
    assert catch_up.late(run_of([500, 600, 0], drops_ms=[510])) == [0, 500 * MS]
