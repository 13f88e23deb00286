"""The names of classes: a job's name, its routing key and its target in one text (rule 18). Needs the standard library alone."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1024)
def class_of(name: str, route: str, target: str) -> str:
    """The class of jobs: the name alone, or the name, @, the routing key, and ~ with a digest of the target."""
    if not (route or target):
        return name
    digest = f"~{hashlib.blake2b(target.encode(), digest_size=8).hexdigest()}" if target else ""
    return f"{name}@{route}{digest}"


def class_target(route: str, target: str) -> str:
    """The value of a class in the hash `classes`: its target as JSON, '' for a class that any worker may run."""
    if not (route or target):
        return ""
    wanted: dict[str, Any] = {"route": route} if route else {}
    return json.dumps(wanted | (json.loads(target) if target else {}), separators=(",", ":"))
