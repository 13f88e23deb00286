"""The functions of `pyarrow.compute`, which makes them when it is imported, so that no type checker knows them."""

from __future__ import annotations

from typing import Any

import pyarrow.compute

compute: Any = pyarrow.compute
