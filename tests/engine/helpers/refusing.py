"""What a call is refused with."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Malformed


def malformed(call: Callable[..., object], *given: Any, **more: Any) -> Malformed:
    """The refusal of a call; fails when it is not refused."""
    with pytest.raises(Malformed) as caught:
        call(*given, **more)
    return caught.value
