"""Asks for an operation of the OpenAPI document in many ways, well and badly; schemathesis judges the answers."""

from __future__ import annotations

from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase


def ask(operation: Any, examples: int, excluded: list[Any], headers: dict[str, str] | None = None) -> None:
    """Ask for one operation, in so many ways, always with these headers. `excluded`: checks that it cannot pass."""

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @hypothesis.given(case=operation.as_strategy())
    def judge(case: schemathesis.Case) -> None:
        case.call_and_validate(timeout=120, excluded_checks=excluded, headers=headers)

    judge()
