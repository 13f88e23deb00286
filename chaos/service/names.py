"""Objects of a service in an interpreter of their own: what `chaos.toml` names is imported, and its effects are read.

    python -P -m chaos.service.names describe FOLDER queue=shop.jobs:queue load=load:shop effects=load:effects
    python -P -m chaos.service.names effects FOLDER load:effects

Prints one line of JSON. Whatever the modules print goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.references import found, is_user
from engine.queue.settings import QueueSettings

#: Of the text of an error, before secrets are taken out of it.
TEXT_MAX = 10_000


def described(name: str, reference: str) -> dict[str, Any]:
    """What the object of a field is: of a queue what a drill needs to know, of others that they fit; else `wrong`."""
    try:
        value = found(reference)
    except BaseException as error:
        # Whatever the module says: who asked takes secrets out of it, and makes it one line.
        return {"wrong": f"one that can be imported ({type(error).__name__}: {str(error)[:TEXT_MAX]})"}
    if name == "load" and isinstance(value, type) and not is_user(value):
        return {"wrong": f"a function or a Locust User (it is the class {value.__name__}, which is none)"}
    if name != "queue":
        return {"users": is_user(value)} if callable(value) else {"wrong": f"a function (it is a {type(value).__name__})"}
    if not isinstance(value, QueueSettings):
        return {"wrong": f"a Queue or an AsyncQueue (it is a {type(value).__name__})"}
    if value.observer is not None:
        return {"wrong": "a queue without an observer in its code, which would win over the harness's"}
    durability = "" if value.durability is None else "replica"
    told = {"name": value.name, "model": value.model.name, "shards": value.shards, "durability": durability}
    return {**told, "passwords": _passwords(value)}


def _passwords(queue: QueueSettings) -> list[str]:
    """Those that its url, or its client, has: what is printed is without them."""
    credentials: dict[str, Any] = dict(getattr(queue.endpoint.route, "credentials", ()))
    found = (queue.endpoint.settings().get("password"), credentials.get("password"))
    return [password for password in found if isinstance(password, str)]


def effects(reference: str) -> dict[str, int]:
    """How often each job took effect, as the service's own function says. Pairs of one job are added up, because tables are
    often counted apart. Raises TypeError for another answer, and what the function raises."""
    told = found(reference)()
    pairs = list(told.items() if isinstance(told, Mapping) else told) if hasattr(told, "__iter__") else [()]
    counts: Counter[str] = Counter()
    for pair in pairs:
        match pair:
            case (str(job), int(times)) if times >= 0 and not isinstance(times, bool):
                counts[job] += times
            case _:
                raise TypeError(f"{reference} must return ids of jobs with how often each took effect, such as {{'job-1': 1}}")
    return counts


def main(words: Sequence[str]) -> int:
    """Print what was asked for."""
    verb, folder, *rest = words
    sys.path.append(folder)
    with contextlib.redirect_stdout(sys.stderr):
        answer = (
            {name: described(name, reference) for name, _, reference in (word.partition("=") for word in rest)}
            if verb == "describe"
            else effects(rest[0])
        )
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
