"""Which workers may run a job: its routing key and its target against what a worker is. Pure code (rule 18).

Jobs with the same name, routing key and target are one class. A worker claims the classes that match it, so
jobs that it may not run cost its claims nothing. The rules for targets are BridgeMQ's, routing keys are those
of Bananas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from engine import validate
from engine.errors import Malformed
from engine.ops.base import frozen
from engine.ops.claims import DEFAULT_ROUTE, Attributes

#: Whether one of the wanted capabilities is enough.
Mode = Literal["any", "all"]
#: Values of one criterion.
VALUES_MAX = 32
#: Routing keys of one worker.
ROUTES_MAX = 64
_CRITERIA = ("stack", "capabilities", "region")


@frozen
class Target:
    """Which workers may run a job. A `server` is the name of one worker, and nothing else is then asked.
    Otherwise each criterion that is given must be met. The worker's stack is one of `stack`, its region one
    of `region`; it has one of `capabilities` (`mode` any) or all of them (`mode` all).

    At most 32 values each, of 1 to 128 letters, digits and `_.:-`.
    """

    server: str | None = None
    stack: Iterable[str] = ()
    capabilities: Iterable[str] = ()
    region: Iterable[str] = ()
    mode: Mode = "any"


def text_or_none(name: str, value: object) -> str:
    """A text; None is the empty one. Raises Malformed."""
    return "" if value is None else validate.text(name, value)


def values(name: str, given: object) -> frozenset[str]:
    """The values of a worker for a criterion of targets. Raises Malformed."""
    return frozenset(_values(name, given))


def routes(name: str, given: object) -> frozenset[str]:
    """The routing keys of a worker. Raises Malformed."""
    bound = f"a list of 1 to {ROUTES_MAX} routing keys"
    found = frozenset(validate.route(name, value) for value in validate.items(name, given, bound))
    if not 1 <= len(found) <= ROUTES_MAX:
        raise Malformed(name, f"{len(found)} keys", bound)
    return found


def names_among(handled: Iterable[str], names: Any) -> tuple[str, ...]:
    """The names whose jobs a worker claims: those that it has handlers for, or some of them. Raises
    Malformed."""
    known, shown = tuple(handled), cast("object", names)
    if names is None:
        return known
    bound = f"some of the names with handlers: {', '.join(known)}"
    wanted = validate.items("names", names, bound)
    if not wanted or not all(isinstance(name, str) and name in known for name in wanted):
        raise Malformed("names", shown, bound)
    return tuple(name for name in known if name in wanted)


def priority_range(name: str, given: Any) -> tuple[int, int] | None:
    """The least and the greatest priority of the jobs that a worker claims; None: all. Raises Malformed."""
    if given is None:
        return None
    shown = cast("object", given)
    bound = "the least and the greatest priority, each 1 to 10"
    pair = validate.items(name, given, bound) if issubclass(type(given), tuple | list) else []
    if len(pair) != 2:
        raise Malformed(name, shown, bound)
    least, most = validate.integers(name, pair, 1, 10)
    if least > most:
        raise Malformed(name, shown, "the least priority and then the greatest")
    return None if (least, most) == (1, 10) else (least, most)


def described(worker: Attributes) -> dict[str, object]:
    """A worker's attributes for the history and the registry: JSON values."""
    return {
        "server": worker.server,
        "stack": worker.stack,
        "capabilities": sorted(worker.capabilities),
        "region": worker.region,
        "routes": sorted(worker.routes),
    }


def target_text(name: str, value: object) -> str:
    """A job's target as JSON without what it does not ask for, so that equal ones are the same text; '' asks
    for nothing. Raises Malformed."""
    if isinstance(value, Mapping):
        value = _target_of(name, cast("Mapping[str, Any]", value))
    if not isinstance(value, Target):
        raise Malformed(name, value, "a Target, or a mapping with its fields")
    if value.mode not in ("any", "all"):
        raise Malformed(f"{name}.mode", value.mode, "any or all")
    wanted: dict[str, Any] = {}
    if value.server is not None:
        wanted["server"] = validate.text(f"{name}.server", value.server)
    for criterion in _CRITERIA:
        values = _values(f"{name}.{criterion}", getattr(value, criterion))
        if values:
            wanted[criterion] = values
    if value.mode == "all" and "capabilities" in wanted:
        wanted["mode"] = "all"
    return json.dumps(wanted, separators=(",", ":")) if wanted else ""


def route_text(name: str, value: object) -> str:
    """A job's routing key; '' is the default one. Raises Malformed."""
    text = validate.route(name, value)
    return "" if text == DEFAULT_ROUTE else text


def matches(wanted: Mapping[str, Any], worker: Attributes) -> bool:
    """Whether a worker may run the jobs of a class: its routing key is one of the worker's, and its target is
    met.

    A criterion that is an empty list asks for nothing; one that is no list of texts is met by nobody.
    """
    route: Any = wanted.get("route", DEFAULT_ROUTE)
    if not isinstance(route, str) or route not in worker.routes:
        return False
    if wanted.get("server"):
        return wanted["server"] == worker.server
    for criterion, own in (("stack", worker.stack), ("region", worker.region)):
        among = wanted.get(criterion) or ()
        if among and not (isinstance(among, list) and own in among):
            return False
    asked: Any = wanted.get("capabilities") or ()
    if not isinstance(asked, list | tuple):
        return False
    has = [
        isinstance(capability, str) and capability in worker.capabilities
        for capability in cast("Iterable[Any]", asked)
    ]
    return not has or (all(has) if wanted.get("mode") == "all" else any(has))


def matching(targets: Iterable[tuple[str, str]], names: Iterable[str], worker: Attributes) -> tuple[str, ...]:
    """Of these classes with their targets, those that a worker with handlers for `names` may run, in a fixed
    order."""
    known = frozenset(names)
    found: list[str] = []
    for class_name, text in targets:
        if class_name.partition("@")[0] not in known:
            continue
        wanted = read_target(text)
        if wanted is not None and matches(wanted, worker):
            found.append(class_name)
    return tuple(sorted(found))


def read_target(text: str) -> dict[str, Any] | None:
    """What a stored target asks for. None where it cannot be known: no worker takes such a job."""
    try:
        wanted: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", wanted) if isinstance(wanted, dict) else None


def _target_of(name: str, fields: Mapping[str, Any]) -> Target:
    try:
        return Target(**fields)
    except TypeError:
        raise Malformed(
            name, dict(fields), "a mapping with the fields server, stack, capabilities, region, mode"
        ) from None


def _values(name: str, given: object) -> list[str]:
    """The values of a criterion, in a fixed order and each once."""
    values = {
        validate.text(name, value)
        for value in validate.items(name, given, f"a list of at most {VALUES_MAX} texts")
    }
    if len(values) > VALUES_MAX:
        raise Malformed(name, f"{len(values)} values", f"a list of at most {VALUES_MAX} texts")
    return sorted(values)
