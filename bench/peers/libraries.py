"""The libraries that are compared: versions, programs, and the settings of a default and of a tuned run.

The default is what the library does when nothing is set; the tuned settings are those that were fastest for jobs of no length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.micro.place import ROOT

#: Beside the packages of every Python library, as their users install them.
_PYTHON = ("hiredis==3.5.0",)
_ASYNCIO = (*_PYTHON, "uvloop==0.23.0")


@dataclass(frozen=True)
class Library:
    """One library, or one of its ways to use Redis.

    `redelivers` says whether a job whose worker was killed runs again, by the library's own documents and its default settings.
    `ways` are the ways to enqueue that it has. `drain_jobs` is how many jobs its drain takes, two seconds' worth of the
    fastest setting.
    """

    name: str
    #: python, node or go; checkout: the interpreter and the engine of this process, for tests.
    runtime: str
    #: The file in `adapters/`, a folder for go.
    adapter: str
    packages: tuple[str, ...]
    redelivers: bool
    ways: frozenset[str]
    drain_jobs: int
    tuned: Mapping[str, Any] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    #: The fewest Python it runs on.
    python_min: tuple[int, int] = (3, 11)


_ONE = frozenset({"one"})
_FLIGHT = _ONE | {"in_flight"}
_ALL = _FLIGHT | {"bulk"}

OURS = "ironclaim"

LIBRARIES: tuple[Library, ...] = (
    # As its users install it, from a wheel that pip builds of this checkout.
    Library(
        *(OURS, "python", "ironclaim_adapter.py", (f"{ROOT}[hiredis]", "redis==8.1.0", "croniter==7.0.0", *_PYTHON)),
        *(True, _ALL, 100_000),
        {"inline": True},
    ),
    Library("rq", "python", "rq_adapter.py", ("rq==2.12.0", *_PYTHON), False, _ONE | {"bulk"}, 800, {"simple": True}),
    Library(
        *(
            "celery",
            "python",
            "celery_adapter.py",
            ("celery==5.7.0", "redis==8.1.0", "packaging==26.3", *_PYTHON),
            False,
            _ONE,
            4_000,
        ),
        {"arguments": ["--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"]},
        {"arguments": ["--concurrency=2"]},
    ),
    Library(
        *("dramatiq", "python", "dramatiq_adapter.py", ("dramatiq==2.2.1", "redis==8.1.0", *_PYTHON), True, _ONE, 20_000),
        {"prefetch": 256},
    ),
    Library("huey", "python", "huey_adapter.py", ("huey==3.5.4", "redis==8.1.0", *_PYTHON), False, _ONE, 10_000),
    Library(
        *("arq", "python", "arq_adapter.py", ("arq==0.28.0", *_ASYNCIO), True, _FLIGHT, 4_000),
        {"poll_delay": 0.005, "queue_read_limit": 1000, "max_jobs": 50, "keep_result": 0},
    ),
    Library(
        "saq",
        "python",
        "saq_adapter.py",
        ("saq[redis]==0.26.4", "typing_extensions==4.15.0", *_ASYNCIO),
        False,
        _FLIGHT,
        5_000,
        {"concurrency": 10},
    ),
    *(
        Library(
            *(f"taskiq-{kind}", "python", "taskiq_adapter.py", ("taskiq==0.13.0", "taskiq-redis==1.2.4", *_ASYNCIO), False),
            *(_FLIGHT, 8_000, {"kind": kind, "arguments": ["--max-async-tasks", "100"]}, {"kind": kind, "arguments": []}),
        )
        for kind in ("list", "stream")
    ),
    Library("streaq", "python", "streaq_adapter.py", ("streaq==7.2.0", *_ASYNCIO), True, _ALL, 3_000, {"concurrency": 50}),
    Library("bullmq-py", "python", "bullmq_adapter.py", ("bullmq==3.4.4", *_ASYNCIO), True, _ALL, 6_000, {"concurrency": 50}),
    Library(
        "ardiq", "python", "ardiq_adapter.py", ("ardiq==1.2.0",), True, _ALL, 30_000, {"concurrency": 100}, python_min=(3, 12)
    ),
    Library("bullmq", "node", "bullmq.js", ("bullmq@6.7.0", "ioredis@6.0.0"), True, _ALL, 60_000, {"concurrency": 100}),
    Library("bull", "node", "bull.js", ("bull@4.16.5",), True, _ALL, 60_000, {"concurrency": 50}),
    Library("bee-queue", "node", "bee_queue.js", ("bee-queue@2.0.0",), True, _ALL, 60_000, {"concurrency": 50}),
    Library("asynq", "go", "asynq", (), True, _FLIGHT, 40_000, {"concurrency": 50}),
)
