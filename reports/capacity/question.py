"""What is asked of a plan, at which prices, and whether the measurement can answer it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

from reports.capacity.basis import Basis
from reports.capacity.measurement import least, read_as
from reports.errors import JudgeError, content_of

# The price file: a small TOML file that says what a worker, a server, memory and network cost.


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
    return read_as(Prices, content_of(file, f"price file {file.name}", "TOML"), file.name)


#: A plan goes at most this factor beyond what was measured, in rate, payload and handler time.
EXTRAPOLATION_MAX = 4.0

#: Field -> the values that it may have: above the first, up to the second.
BOUNDS: dict[str, tuple[float, float]] = {
    "rate": (0, 1e8),
    "p99_ms": (0, 1e8),
    "handler_ms": (0, 1e8),
    "payload_bytes": (-1, 512 * 2**20),
    "backlog_s": (-1, 1e8),
    "retained_s": (-1, 1e8),
    "worker_utilisation": (0, 1),
    "server_utilisation": (0, 1),
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The load and its target. `backlog_s`: for how long nothing is finished; `retained_s`: how long finished jobs are kept;
    `workers`: how many there are, when that is given and not asked."""

    rate: float
    p99_ms: float
    payload_bytes: float
    handler_ms: float
    model: str
    topology: str
    backlog_s: float = 3_600.0
    retained_s: float = 3_600.0
    worker_utilisation: float = 0.8
    server_utilisation: float = 0.7
    workers: int | None = None


def check(asked: Question, basis: Basis) -> None:
    """Raise JudgeError, one line with what would be possible, when no plan can answer."""
    for one in fields(asked):
        value = getattr(asked, one.name)
        above, most = BOUNDS.get(one.name, (-math.inf, math.inf))
        if isinstance(value, int | float) and not above < value <= most:
            bound = f"above {above:g}" if above >= 0 else "at least 0"
            raise JudgeError(f"{one.name} is {value:g}, it must be {bound} and at most {most:g}")
    for name, measured in (("model", basis.model), ("topology", basis.topology)):
        if (wanted := getattr(asked, name)) != measured:
            again = f"python -m chaos capacity --{name} {wanted}"
            raise JudgeError(f"{name} is {wanted!r}, the measurement is of {measured!r}: measure it with `{again}`")
    if asked.p99_ms <= asked.handler_ms:
        raise JudgeError(
            f"p99_ms is {asked.p99_ms:g}, below the handler's own {asked.handler_ms:g} ms: with this handler "
            f"{asked.handler_ms + basis.beside_p99_ms:.0f} ms is possible"
        )
    if not basis.meeting(asked.p99_ms, asked.handler_ms):
        raise JudgeError(
            f"p99_ms is {asked.p99_ms:g}, and no step was so fast: the lowest p99 measured leaves "
            f"{asked.handler_ms + basis.beside_p99_ms:.0f} ms with a handler of {asked.handler_ms:g} ms"
        )
    if asked.workers is not None:
        enough(asked, basis, asked.workers)


def enough(asked: Question, basis: Basis, workers: int) -> None:
    """Raise JudgeError when so many workers cannot do it however they are used."""
    if workers < 1:
        raise JudgeError(f"workers is {workers}, it must be at least 1")
    most = workers * 1_000 * basis.handlers_at_once / basis.service_ms(asked.handler_ms)
    if asked.rate > most:
        handler_ms = max(0.0, workers * 1_000 * basis.handlers_at_once / asked.rate - basis.overhead_ms)
        needed = math.ceil(asked.rate / most * workers)
        raise JudgeError(
            f"{workers} workers with {basis.handlers_at_once} handlers at once do at most {most:,.0f} jobs/s of "
            f"{asked.handler_ms:g} ms: {asked.rate:,.0f} jobs/s need {needed} workers, or a handler of {handler_ms:.1f} ms"
        )


def beyond(asked: Question, basis: Basis) -> list[str]:
    """What of the question lies further beyond the measurement than a plan goes."""
    pairs = (
        ("rate", "jobs/s", asked.rate, basis.rate_met),
        ("payload_bytes", "bytes", asked.payload_bytes, basis.payload_bytes),
        ("handler_ms", "ms", asked.handler_ms, basis.handler_ms),
    )
    return [
        f"{name} is {value:,.0f}, {value / measured:.1f} times the {measured:,.0f} {unit} that were measured"
        for name, unit, value, measured in pairs
        if value > EXTRAPOLATION_MAX * measured > 0
    ]
