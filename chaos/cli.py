"""Command line of the harness: finds the verb, reads its options, and runs it. Nothing heavy is imported until they are right."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from chaos.errors import HarnessError, TooSlow
from chaos.installed import how
from chaos.interrupts import Interrupts
from chaos.verbs import BY_NAME, VERBS, Verb
from engine import command_line
from engine.errors import nearest, redacted
from record.options import Option, Wrong

UNKNOWN = 2

PACKAGE_MISSING = "the Python package {name!r} is missing; {how}"

#: The command of the wheel; in a checkout it is `python -m chaos`.
INSTALLED = "ironclaim-chaos"

HELP = ("--help", "-h")

ENDING = "COMMAND --help tells its options. Exit codes: 0 valid, 1 violated, 2 unknown, 3 valid but an objective missed."


class Parser(command_line.Parser):
    """Argument errors are one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNKNOWN, f"{self.prog}: {redacted(self.hinted(message))}\n")


def program() -> str:
    """How the command is called here."""
    return INSTALLED if Path(sys.argv[0]).name == INSTALLED else "python -m chaos"


def usage(name: str = "") -> str:
    """The list of verbs: all, or those that begin with this word."""
    shown = [verb for verb in VERBS if name in ("", verb.name.split()[0])]
    width = max(len(verb.name) for verb in shown) + 2
    lines = [f"usage: {program()} COMMAND [options]"]
    lines += [] if name else ["", "Runs that break things on purpose, and say whether any promise was broken."]
    for before, verb in zip((None, *shown), shown, strict=False):
        lines += [] if before and before.group == verb.group else ["", verb.group]
        lines.append(f"  {verb.name:{width}}{verb.does}")
    return "\n".join([*lines, "", ENDING, ""])


def parser_of(verb: Verb) -> Parser:
    """The parser of one verb. What a text must be is said by its option, once all of them are there."""
    name = f"{program()} {verb.name}"
    words = [option.shown if option.required else f"[{option.shown}]" for option in verb.options if option.word]
    parser = Parser(prog=name, usage=" ".join([name, *words, "[options]"]), description=verb.about)
    if verb.more:
        verb.more(parser)
    for option in verb.options:
        add(parser, option)
    return parser


def add(parser: argparse.ArgumentParser, option: Option) -> None:
    """Let a parser take an option; its text is read later."""
    more: dict[str, Any] = {"help": option.told, "default": option.default}
    if option.word:
        parser.add_argument(option.attribute, metavar=option.shown, nargs=None if option.required else "?", **more)
        return
    if option.kind is bool:
        more["action"] = "store_true"
    else:
        more |= {"metavar": option.shown, "required": option.required}
    if option.many:
        more |= {"action": "append", "default": None}
    parser.add_argument(*(f"--{name}" for name in (option.name, *option.also)), dest=option.attribute, **more)


def found(arguments: Sequence[str]) -> tuple[Verb, Sequence[str]]:
    """The verb that the arguments begin with, and those after it. Ends with the list for --help, and for no verb."""
    words = list(arguments)
    firsts = list(dict.fromkeys(verb.name.split()[0] for verb in VERBS))
    inner = [verb.name.split()[1] for verb in VERBS if words and verb.name.startswith(f"{words[0]} ")]
    if words and words[0] in HELP:
        print(usage(), end="")
        raise SystemExit(0)
    if inner and words[1:2] and words[1] in HELP:
        # A group that is a verb itself goes on with its own options.
        print(usage(words[0]), flush=True)
        if words[0] not in BY_NAME:
            raise SystemExit(0)
    for count in (2, 1):
        if (verb := BY_NAME.get(" ".join(words[:count]))) and not (count == 1 and misspelt(words, inner)):
            return verb, words[count:]
    if not words:
        complaint = "the following arguments are required: COMMAND (--help lists them)"
    elif inner:
        complaint = f"{words[0]} is {words[1]!r}: it must be" if words[1:] else f"{words[0]} needs"
        complaint += f" one of {', '.join(inner)}{nearest(words[1], inner) if words[1:] else ''}"
    else:
        complaint = f"command is {words[0]!r}: it must be one of {', '.join(firsts)}{nearest(words[0], firsts)}"
    return Parser(prog=program()).error(complaint)


def misspelt(words: Sequence[str], inner: Sequence[str]) -> bool:
    """Whether the word behind the first is like one of these, and no file: `run bnch`."""
    return any(nearest(word, inner) and not Path(word).exists() for word in words[1:2])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, each of the type and within the bounds that are declared; `command` is the name of the verb."""
    words, told = renamed(arguments)
    if told:
        print(f"chaos: {told}", file=sys.stderr)
    verb, rest = found(words)
    parser = parser_of(verb)
    parsed = parser.parse_args(rest)
    for option in verb.options:
        value = getattr(parsed, option.attribute)
        try:
            if option.many:
                setattr(parsed, option.attribute, tuple(map(option.read, value or ())))
            elif isinstance(value, str) and value != option.default:
                setattr(parsed, option.attribute, option.read(value))
        except Wrong as error:
            parser.error(str(error))
    for name, value in {**verb.fixed, "command": verb.name}.items():
        setattr(parsed, name, value)
    return parsed


def refuse(parsed: argparse.Namespace) -> None:
    """Refuse what `main` would before it begins, where the standard library alone can tell. Exits as it would."""
    verb = BY_NAME[parsed.command]
    if verb.asks:
        module, name = verb.asks.split(":")
        try:
            getattr(import_module(module), name)(parsed)
        except HarnessError as error:
            raise SystemExit(fail(str(error))) from None


def main(arguments: Sequence[str], interrupts: Interrupts) -> int:
    """The exit code. Every failure is one line on stderr, and unknown."""
    parsed = parse(arguments)
    module, name = BY_NAME[parsed.command].runs.split(":")
    try:
        # Imported here, so that a package that is not installed is one clear line too.
        command = getattr(import_module(module), name)
        from engine.testing import ServerMissing
    except ModuleNotFoundError as error:
        return fail(PACKAGE_MISSING.format(name=error.name, how=how()))
    try:
        return command(parsed, interrupts)
    except TooSlow as error:
        print(f"{redacted(str(error))}\nverdict: unknown", flush=True)
        return UNKNOWN
    except (HarnessError, ServerMissing) as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return fail("interrupted by SIGINT")
    except Exception as error:
        return fail(f"the harness failed: {type(error).__name__}: {error}")


def fail(message: str) -> int:
    print(f"chaos: {redacted(message)}", file=sys.stderr)
    return UNKNOWN


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
