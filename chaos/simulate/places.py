"""What workers are and what jobs want of them, with a table by hand that says who may run what: it does not ask the engine (rule
18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine import routing
from engine.ops.jobs import class_of
from engine.routing import Attributes

#: The places of an episode's workers; whoever follows on one that has died takes its place.
PLACES = (
    Attributes("s0", "python", frozenset(), "eu"),
    Attributes("s1", "node", frozenset({"gpu"}), "us", frozenset({"default", "slow"})),
    Attributes("s2", "python", frozenset({"gpu", "disk"}), "eu"),
)


class Wish(NamedTuple):
    """What a job may want: the options that say so, and the places of those that may run it."""

    options: Mapping[str, Any]
    places: frozenset[int]


WISHES = (
    Wish({"route": "slow"}, frozenset({1})),
    Wish({"target": {"server": "s0"}}, frozenset({0})),
    Wish({"target": {"capabilities": ["gpu"]}}, frozenset({1, 2})),
    Wish({"target": {"capabilities": ["disk", "gpu"], "mode": "all"}}, frozenset({2})),
    Wish({"target": {"stack": ["python", "ruby"], "region": ["eu"]}}, frozenset({0, 2})),
    Wish({"route": "slow", "target": {"capabilities": ["disk", "gpu"]}}, frozenset({1})),
)
_EVERYBODY = frozenset(range(len(PLACES)))


def _wanted(options: Mapping[str, Any]) -> str:
    """The part of a class that says what its jobs want."""
    target = routing.target_text("target", options["target"]) if "target" in options else ""
    return class_of("", options.get("route", ""), target)


_BY_CLASS = {_wanted(wish.options): wish.places for wish in WISHES}


def places_of(class_name: str) -> frozenset[int]:
    """Where the jobs of a class may run."""
    _, at, wanted = class_name.partition("@")
    return _BY_CLASS[at + wanted] if at else _EVERYBODY
