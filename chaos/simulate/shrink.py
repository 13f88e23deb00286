"""Makes a failing episode small: leaves out faults, actions and their jobs as long as the same invariant stays broken (ddmin)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from chaos.ddmin import minimal
from chaos.simulate.chance import Fault
from chaos.simulate.plan import Action, Plan, Player, Result
from chaos.simulate.world import MS

T = TypeVar("T")

#: A smaller episode may take this much longer than the whole one until it fails.
_LONGER_MS = 30_000


class Shrinker:
    """Plays smaller and smaller versions of one failing episode, for at most `budget_s`."""

    def __init__(self, stage: Player[Any, Any], plan: Plan[Any, Any], result: Result, budget_s: float) -> None:
        assert result.found is not None
        self._stage = stage
        self._invariant = result.found.invariant
        self._deadline_s = time.monotonic() + budget_s
        self._until_ns = result.rows[-1].at_ns + _LONGER_MS * MS if result.rows else 0
        self.plan = plan
        self.result = result

    def shrink(self) -> tuple[Plan[Any, Any], Result]:
        """The smallest version found, and how it went."""
        if not self._try(replace(self.plan, faults=tuple(self.result.faults))):
            return self.plan, self.result
        for _ in range(2):
            before = self.plan
            self._less(tuple(self.plan.actions), self._with_actions)
            self._less(tuple(self.plan.faults or ()), self._with_faults)
            self._smaller_actions()
            if self.plan == before or self._late():
                break
        return self.plan, self.result

    def _with_actions(self, actions: Sequence[Action]) -> Plan[Any, Any]:
        return replace(self.plan, actions=tuple(actions))

    def _with_faults(self, faults: Sequence[Fault]) -> Plan[Any, Any]:
        return replace(self.plan, faults=tuple(faults))

    def _less(self, items: tuple[T, ...], plan_with: Callable[[Sequence[T]], Plan[Any, Any]]) -> None:
        minimal(items, lambda rest: self._try(plan_with(rest)), self._late)

    def _smaller_actions(self) -> None:
        for at in range(len(self.plan.actions)):
            while not self._late():
                before, action, after = self.plan.actions[:at], self.plan.actions[at], self.plan.actions[at + 1 :]
                if not any(self._try(self._with_actions((*before, smaller, *after))) for smaller in action.smaller()):
                    break

    def _try(self, plan: Plan[Any, Any]) -> bool:
        result = self._stage.play(replace(plan, until_ns=self._until_ns))
        if result.found is None or result.found.invariant != self._invariant:
            return False
        self.plan, self.result = plan, result
        return True

    def _late(self) -> bool:
        return time.monotonic() > self._deadline_s
