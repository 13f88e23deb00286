"""Makes a failing episode small: leaves out faults, actions and jobs as long as the same invariant stays broken (ddmin)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from chaos.ddmin import minimal
from chaos.simulate.chance import Fault
from chaos.simulate.episode import Plan, Result, Stage
from chaos.simulate.planned_actions import PlannedAction
from chaos.simulate.world import MS

T = TypeVar("T")

#: A smaller episode may take this much longer than the whole one until it fails.
_LONGER_MS = 30_000


class Shrinker:
    """Plays smaller and smaller versions of one failing episode, for at most `budget_s`."""

    def __init__(self, stage: Stage, plan: Plan, result: Result, budget_s: float) -> None:
        assert result.found is not None
        self._stage = stage
        self._invariant = result.found.invariant
        self._deadline_s = time.monotonic() + budget_s
        self._until_ns = result.rows[-1].at_ns + _LONGER_MS * MS if result.rows else 0
        self.plan = plan
        self.result = result

    def shrink(self) -> tuple[Plan, Result]:
        """The smallest version found, and how it went."""
        if not self._try(replace(self.plan, faults=tuple(self.result.faults))):
            return self.plan, self.result
        for _ in range(2):
            before = self.plan
            self._less(tuple(self.plan.actions), self._with_actions)
            self._less(tuple(self.plan.faults or ()), self._with_faults)
            self._fewer_jobs()
            if self.plan == before or self._late():
                break
        return self.plan, self.result

    def _with_actions(self, actions: Sequence[PlannedAction]) -> Plan:
        return replace(self.plan, actions=tuple(actions))

    def _with_faults(self, faults: Sequence[Fault]) -> Plan:
        return replace(self.plan, faults=tuple(faults))

    def _less(self, items: tuple[T, ...], plan_with: Callable[[Sequence[T]], Plan]) -> None:
        minimal(items, lambda rest: self._try(plan_with(rest)), self._late)

    def _fewer_jobs(self) -> None:
        for at in range(len(self.plan.actions)):
            while len(self.plan.actions[at].jobs) > 1 and not self._late():
                action = self.plan.actions[at]
                for leave_out in range(len(action.jobs)):
                    fewer = replace(action, jobs=action.jobs[:leave_out] + action.jobs[leave_out + 1 :])
                    actions = (*self.plan.actions[:at], fewer, *self.plan.actions[at + 1 :])
                    if self._try(self._with_actions(actions)):
                        break
                else:
                    break

    def _try(self, plan: Plan) -> bool:
        result = self._stage.play(replace(plan, until_ns=self._until_ns))
        if result.found is None or result.found.invariant != self._invariant:
            return False
        self.plan, self.result = plan, result
        return True

    def _late(self) -> bool:
        return time.monotonic() > self._deadline_s
