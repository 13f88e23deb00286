"""The windows of faults that follow each other, and of those that come while another one is in force."""

from __future__ import annotations

from reports.facts import Run, Stage
from reports.meaning import NEVER_NS
from reports.windows import windows


def stages(fault: str, **at_ns: int) -> list[Stage]:
    return [Stage(fault, fault.partition("-")[2], stage, "worker-1", True, "", t_ns) for stage, t_ns in at_ns.items()]


def test_the_time_of_a_fault_ends_with_the_next_inject_after_its_heal() -> None:
    found = windows(
        Run(
            spec={},
            files={},
            stages=(
                *stages("1-net-latency", inject=10, witness=20, heal=70, healed=80),
                *stages("2-worker-freeze", inject=30, witness=40, heal=50, healed=60),
                *stages("3-net-down", inject=90, witness=95, heal=100, healed=110),
            ),
        )
    )
    assert [(one.fault, one.next_ns) for one in found] == [
        # What came while it was in force does not end its time.
        ("1-net-latency", 90),
        ("2-worker-freeze", 90),
        ("3-net-down", NEVER_NS),
    ]


def test_a_fault_that_never_healed_has_no_end() -> None:
    found = windows(
        Run(spec={}, files={}, stages=(*stages("1-net-down", inject=10), *stages("2-worker-kill", inject=30, heal=50)))
    )
    assert [(one.heal_ns, one.next_ns) for one in found] == [(NEVER_NS, NEVER_NS), (50, NEVER_NS)]
