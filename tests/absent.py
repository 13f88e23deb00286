"""What tests do without a program that they need."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def without(missing: Exception) -> NoReturn:
    """Skip: who may not install a program can still run the other tests. CI installs it, so there its absence is raised."""
    if os.environ.get("CI"):
        raise missing
    pytest.skip(str(missing))
