"""The command line of before, for one release: words that are typed otherwise now go on working, and one line says how."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

#: What a verb is called now.
NAMES: dict[str, tuple[str, ...]] = {
    **{name: ("run", name) for name in ("bench", "interop", "mischief", "upgrade", "scale", "soak")},
    **{name: ("campaign", name) for name in ("mutants", "nightly")},
    "compare": ("campaign", "models"),
    "attend": ("run", "attended"),
}


def renamed(arguments: Sequence[str]) -> tuple[list[str], str]:
    """The arguments as they are typed now, and the line that says so; empty where they are."""
    words = list(arguments)
    if not words or words[0] not in NAMES:
        return words, ""
    now = _bench(words[1:]) if words[0] == "bench" else [*NAMES[words[0]], *words[1:]]
    return now, f"{words[0]!r} has another name now, type: python -m chaos {shlex.join(now)}"


def _bench(words: list[str]) -> list[str]:
    """What were options of `bench` are verbs of their own."""
    target, words = _without(words, "--target")
    run, words = _without(words, "--replay")
    if run:
        return ["shrink" if "--shrink" in words else "replay", run, *(word for word in words if word != "--shrink")]
    if target:
        return ["campaign", "targets", *words] if target == "all" else ["run", "target", target, *words]
    for option, value, name in (("--model", "dsps", "channels"), ("--face", "http", "http"), ("--face", "direct", "bench")):
        chosen, others = _without(words, option)
        if chosen == value:
            return ["run", name, *others]
    return ["run", "bench", *words]


def _without(words: list[str], option: str) -> tuple[str, list[str]]:
    """The value of an option, and the words without it; empty where it is not there."""
    for at, word in enumerate(words):
        if word == option:
            return "".join(words[at + 1 : at + 2]), words[:at] + words[at + 2 :]
        if word.startswith(f"{option}="):
            return word.partition("=")[2], words[:at] + words[at + 1 :]
    return "", words
