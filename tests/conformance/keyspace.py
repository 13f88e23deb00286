"""Golden keyspaces: what a model has written, key by key, next to what a file says it must have written.

A file is a JSON object: key -> `{"type": ..., "ttl_s": null or [least, most], "value": ...}`. Values are text for a string, an
array for a list, a sorted array for a set, an object for a hash, and an array of `[member, score]` for a sorted set, all of it
text. Text that begins with `~` is a pattern that the whole of the other text must match; `<name>` in a file stands for what the
test calls so.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def dump(client: Any, pattern: str = "*", *, without: str = "") -> dict[str, dict[str, Any]]:
    """Every key that matches, but those with `without` in them: type, seconds to live (None = for ever), value."""
    found: dict[str, dict[str, Any]] = {}
    for raw in sorted(client.scan_iter(match=pattern, count=1000)):
        key = raw.decode(errors="backslashreplace")
        if without and without in key:
            continue
        kind, left_ms = _text(client.type(raw)), client.pttl(raw)
        found[key] = {"type": kind, "ttl_s": None if left_ms < 0 else left_ms / 1000, "value": _value(client, raw, kind)}
    return found


def expected(file: Path, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """A file, with what its `<name>`s stand for."""
    text = file.read_text()
    for name, meant in names.items():
        text = text.replace(f"<{name}>", json.dumps(meant)[1:-1])
    return json.loads(text)


def differences(wanted: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each key that differs, with both sides; none where the keyspaces agree."""
    lines = [f"{key}: missing" for key in wanted if key not in found]
    lines += [f"{key}: unexpected {found[key]['type']} {found[key]['value']!r}" for key in found if key not in wanted]
    for key in wanted.keys() & found.keys():
        lines += [f"{key}: {line}" for line in _of_key(wanted[key], found[key])]
    return sorted(lines)


def _of_key(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    if wanted["type"] != found["type"]:
        yield f"is a {found['type']}, must be a {wanted['type']}"
        return
    band, left_s = wanted.get("ttl_s"), found["ttl_s"]
    if (band is None) != (left_s is None) or (band is not None and not band[0] <= left_s <= band[1]):
        yield f"lives for {left_s} s, must live for {band}"
    yield from _of_value("", wanted["value"], found["value"])


def _of_value(place: str, wanted: Any, found: Any) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in sorted(wanted.keys() | found.keys()):
            if name not in found:
                yield f"{place}{name} is missing"
            elif name not in wanted:
                yield f"{place}{name} is {found[name]!r}, must not be there"
            else:
                yield from _of_value(f"{place}{name}: ", wanted[name], found[name])
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for at, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _of_value(f"{place}[{at}] ", one, other)
    elif not _equal(wanted, found):
        yield f"{place}is {found!r}, must be {wanted!r}"


def _equal(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, str) and wanted.startswith("~") and isinstance(found, str):
        return re.fullmatch(wanted[1:], found, re.DOTALL) is not None
    return wanted == found


def _value(client: Any, key: bytes, kind: str) -> Any:
    match kind:
        case "string":
            return _text(client.get(key))
        case "list":
            return [_text(item) for item in client.lrange(key, 0, -1)]
        case "set":
            return sorted(_text(item) for item in client.smembers(key))
        case "hash":
            return {_text(name): _text(value) for name, value in client.hgetall(key).items()}
        case "zset":
            # As text: a score beyond 2^53 must not be rounded once more on its way here.
            flat: list[Any] = client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES") or []
            pairs = flat if flat and isinstance(flat[0], (list, tuple)) else list(zip(flat[::2], flat[1::2], strict=True))
            return [[_text(member), _score(score)] for member, score in pairs]
        case _:
            return kind


def _text(raw: bytes | str | None) -> str:
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else str(raw)


def _score(raw: bytes | float) -> str:
    return _text(raw) if isinstance(raw, bytes) else f"{raw:.17g}"
