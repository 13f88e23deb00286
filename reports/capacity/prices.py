"""The price file: a small TOML file that says what a worker, a server, memory and network cost."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from reports.capacity.measurement import least, read_as
from reports.errors import JudgeError

#: Example prices, used unless another file is named.
FILE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What things cost. A replica costs what its primary costs."""

    currency: str
    worker_per_hour: float = least(0)
    server_per_hour: float = least(0)
    memory_gib_per_hour: float = least(0)
    network_per_gib: float = least(0)
    replicas: int = least(0)


def read(file: Path) -> Prices:
    """The prices in a file. Raises JudgeError with one line."""
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise JudgeError(f"price file {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise JudgeError(f"price file {file.name} is not TOML: {error}") from error
    return read_as(Prices, found, file.name)
