"""`chaos.toml`: which service is drilled and how, read and validated before anything starts. No package but the engine.

docs/guides/chaos.md explains each field. A file that says what it must not is one line: field, value and bound.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chaos import catalogue
from chaos.errors import HarnessError
from chaos.service import placeholders
from chaos.service.secrets import Secrets, secrets_of
from chaos.topologies import DURABILITIES, EMBEDDED, TOPOLOGIES
from engine.errors import BEFORE, nearest, redacted

NAME = "chaos.toml"

#: Processes of workers where the file says nothing, and the most.
WORKERS, WORKERS_MAX = 3, 16
APPS_MAX = 4
RATE_MAX_PER_S = 5_000
MINUTES_MAX = 60
COMMAND_MAX = 1_000

#: Faults whose injection or witness is in the handlers of the harness's own workload.
OF_OWN_HANDLERS = ("worker-oom", "worker-clock-jump")

#: Others that act inside of servers, or on keys and connections of all of their clients.
OF_OWN_SERVERS = ("worker-cut", "lease-expired", "dns-change")
BESIDE_SERVERS = (catalogue.PROCESS, catalogue.NETWORK)

#: What takes the place of a name in braces: in all texts, and in those of apps.
OF_ALL = (placeholders.RUN, placeholders.PROCESS)
OF_APPS = (*OF_ALL, placeholders.PORT)

#: A wrong value is cut to this many characters in messages.
VALUE_MAX = 60

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
FUNCTION, QUEUE = "module:function", "module:queue"


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A valid file. `path`: its own; commands are lists of words, which a process of the service is started with."""

    path: Path
    queue: str
    load: str
    rate: int
    workers: tuple[tuple[str, ...], ...]
    apps: tuple[tuple[str, ...], ...] = ()
    topology: str = EMBEDDED
    #: The url of a server that others run, in place of those of a topology; empty = the harness starts its own.
    servers: str = field(default="", repr=False)
    durability: str = ""
    #: Kinds of fault; None = the usual ones of the topology.
    faults: tuple[str, ...] | None = None
    minutes: int | None = None
    effects: str = ""
    once: bool = False
    without_effects: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The content of an slo.toml; empty = no objectives.
    slo: Mapping[str, Any] = field(default_factory=dict)
    #: Those of the queue's own url, which the file does not have.
    passwords: tuple[str, ...] = field(default=(), repr=False)

    @property
    def folder(self) -> Path:
        """Where the processes of the service start, and their modules are found."""
        return self.path.parent

    @property
    def secrets(self) -> Secrets:
        """What no text of the harness shows of it."""
        words = [word for command in (*self.workers, *self.apps) for word in command]
        return secrets_of(self.environment, [*words, self.servers], self.passwords)

    def references(self) -> dict[str, str]:
        """The objects of the service that it names, by field."""
        named = {"queue": self.queue, "load": self.load, "effects": self.effects}
        return {name: reference for name, reference in named.items() if reference}


def read(path: Path) -> ServiceFile:
    """The file. Raises HarnessError for one that cannot be read, is not TOML, or says what it must not."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise HarnessError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise HarnessError(f"{path.name} is not TOML: {error}") from error
    try:
        return _checked(path.absolute(), content)
    except Wrong as wrong:
        raise HarnessError(f"{path.name}: {wrong}") from None


class Wrong(ValueError):
    """A field, its value and its bound in one line."""

    def __init__(self, name: str, value: object, bound: str) -> None:
        # A quoted key of TOML may be any text, also one of several lines.
        shown = name if name.isprintable() else json.dumps(name)
        super().__init__(f"{redacted(shown)[:VALUE_MAX]} is {_said(value)[:VALUE_MAX]}, it must be {bound}")


def _said(value: object) -> str:
    """A value as JSON, without passwords; of a table, which may hold the variables of a process, that it is one."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "a list of tables"
    return redacted(json.dumps(value, default=str))


def _checked(path: Path, content: Mapping[str, Any]) -> ServiceFile:
    known = ServiceFile.__dataclass_fields__.keys() - {"path", "passwords"}
    for name, value in content.items():
        if name not in known:
            # A text that belongs elsewhere may be a secret.
            shown = type(value).__name__ if isinstance(value, str) else value
            raise Wrong(name, shown, f"left out: {nearest(name, known, said=BEFORE)}the fields are {', '.join(sorted(known))}")
    servers = _servers(content.get("servers"))
    for name in ("topology", "durability"):
        if servers and name in content:
            raise Wrong(name, content[name], "left out with [servers], which are there already")
    topology = _one_of("topology", content.get("topology", EMBEDDED), TOPOLOGIES)
    durability = content.get("durability", "")
    if durability != "":
        _one_of("durability", durability, DURABILITIES[topology], f" with the topology {topology}")
    effects, once = content.get("effects", ""), content.get("once", False)
    if not isinstance(once, bool):
        raise Wrong("once", once, "true or false")
    if once and not effects:
        raise Wrong("once", once, "false without effects: nobody tells how often a job took effect")
    without = _names("without_effects", content.get("without_effects", []))
    if without and not effects:
        raise Wrong("without_effects", list(without), "left out without effects")
    minutes, apps = content.get("minutes"), _commands("apps", content.get("apps", []), APPS_MAX, OF_APPS)
    return ServiceFile(
        path=path,
        queue=_reference("queue", content.get("queue"), QUEUE),
        load=_reference("load", content.get("load"), f"{FUNCTION} or module:LocustUser"),
        rate=_whole("rate", content.get("rate"), 1, RATE_MAX_PER_S),
        workers=_workers(content.get("workers"), content.get("queue")),
        apps=apps,
        topology=topology,
        servers=servers,
        durability=durability,
        faults=_faults(content.get("faults"), topology, given=bool(servers)),
        minutes=None if minutes is None else _whole("minutes", minutes, 1, MINUTES_MAX),
        effects=_reference("effects", effects, FUNCTION) if effects != "" else "",
        once=once,
        without_effects=without,
        environment=_environment(content.get("environment", {}), OF_APPS if apps else OF_ALL),
        slo=_table("slo", content.get("slo", {})),
    )


def _reference(name: str, value: object, bound: str) -> str:
    if not isinstance(value, str) or not REFERENCE.fullmatch(value):
        raise Wrong(name, value, f"a text such as {bound}")
    return value


def _whole(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Wrong(name, value, f"a whole number from {low} to {high}")
    return value


def _one_of(name: str, value: object, names: tuple[str, ...], where: str = "") -> str:
    if not isinstance(value, str) or value not in names:
        raise Wrong(name, value, f"{' or '.join(names)}{where}")
    return value


def _names(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise Wrong(name, value, "a list of names of jobs")
    return tuple(value)


def _commands(name: str, value: object, most: int, known: Sequence[str] = OF_ALL) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or len(value) > most:
        raise Wrong(name, value, f"a list of at most {most} commands")
    return tuple(_words(f"{name}[{at}]", command, known) for at, command in enumerate(value))


def _words(name: str, command: object, known: Sequence[str]) -> tuple[str, ...]:
    try:
        words = shlex.split(command) if isinstance(command, str) and len(command) <= COMMAND_MAX else []
    except ValueError:
        words = []
    if not words:
        raise Wrong(name, command, "a command, as a shell reads its words")
    for word in words:
        if unknown := placeholders.unknown(word, known):
            raise Wrong(name, command, _of_placeholders(f"a command without {{{unknown}}}", unknown, known))
    return tuple(words)


def _of_placeholders(bound: str, unknown: str, known: Sequence[str]) -> str:
    """What a text must be that has a name in braces which nothing takes the place of."""
    braced = [f"{{{name}}}" for name in known]
    near = nearest(f"{{{unknown}}}", braced, said=BEFORE)
    return f"{bound}: {near}it may have {' and '.join(braced)}, and {{{{x}}}} is told as {{x}}"


def _workers(value: object, queue: object) -> tuple[tuple[str, ...], ...]:
    """The command of each process: those of the file in turn, until there are three at least."""
    commands = _commands("workers", [f"ironclaim worker {queue}"] if value is None else value, WORKERS_MAX)
    if not commands:
        raise Wrong("workers", value, f"a list of 1 to {WORKERS_MAX} commands")
    return tuple(commands[at % len(commands)] for at in range(max(WORKERS, len(commands))))


def _servers(value: object) -> str:
    """The url of the table, or of the variable that it names."""
    if value is None:
        return ""
    content = _table("servers", value)
    url = content.get("url")
    for name in content:
        if name != "url":
            # What it says may be a url with a password.
            near = nearest(name, ["url"], said=BEFORE)
            raise Wrong(f"servers.{name}", type(content[name]).__name__, f"left out: {near}the field is url")
    if not isinstance(url, str):
        raise Wrong("servers", value, 'a table with url = "redis://...", or url = "$VARIABLE"')
    if url.startswith("$"):
        name, url = url, os.environ.get(url[1:], "")
        if not url:
            raise Wrong("servers.url", name, "a variable of the environment that is set")
    try:
        parts = urlsplit(url)
        fits = parts.scheme == "redis" and bool(parts.hostname) and (parts.port or 1) > 0
        # Clients do not agree about other texts: their keys would be in one database, and be removed in another.
        fits = fits and re.fullmatch(r"(/[0-9]*)?", parts.path) is not None and not (parts.query or parts.fragment)
    except ValueError:
        fits = False
    if not fits:
        # Its text may have a password wherever it is wrong.
        raise Wrong("servers.url", type(url).__name__, "a url redis://host:port/db of one server, which Toxiproxy can lead to")
    return url


def _fitting(topology: str, *, given: bool) -> tuple[str, ...]:
    """The kinds of fault that fit: of a server that others use, none that is about the server itself."""
    kinds = (catalogue.KINDS[name] for name in catalogue.fitting(topology) if name not in OF_OWN_HANDLERS)
    return tuple(kind.name for kind in kinds if not given or (kind.name not in OF_OWN_SERVERS and kind.hits in BESIDE_SERVERS))


def _faults(value: object, topology: str, *, given: bool) -> tuple[str, ...] | None:
    fitting = _fitting(topology, given=given)
    if value is None:
        return tuple(name for name in catalogue.usual(topology) if name in fitting)
    if not isinstance(value, list):
        raise Wrong("faults", value, "a list of kinds of fault")
    for at, name in enumerate(value):
        if not isinstance(name, str) or name not in catalogue.KINDS:
            raise Wrong(f"faults[{at}]", name, f"a kind of fault: {', '.join(fitting)}")
        if name not in fitting:
            what = "needs no servers of the harness's own" if given else f"fits the topology {topology}"
            raise Wrong(f"faults[{at}]", name, f"one that {what}: {', '.join(fitting)}")
    if len(set(value)) < len(value):
        raise Wrong("faults", value, "a list that names each kind once")
    return tuple(value)


def _environment(value: object, known: Sequence[str]) -> dict[str, str]:
    if not isinstance(value, dict):
        raise Wrong("environment", type(value).__name__, "a table")
    for name, text in _table("environment", value).items():
        if not name or "=" in name or "\0" in name:
            raise Wrong("environment", [name], "a table of variables, whose names are texts without =")
        if not isinstance(text, str) or "\0" in text:
            # Its type alone, because what programs are told may be a secret.
            raise Wrong(f"environment.{name}", type(text).__name__, "a text without a NUL")
        if name.startswith("IRONCLAIM_"):
            raise Wrong(f"environment.{name}", type(text).__name__, "left out: the harness sets it")
        if unknown := placeholders.unknown(text, known):
            raise Wrong(f"environment.{name}", type(text).__name__, _of_placeholders("without other braces", unknown, known))
    return dict(_table("environment", value))


def _table(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(name, value, "a table")
    return value


def toml(content: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Nested tables of numbers and texts as lines of TOML with dotted keys."""
    lines: list[str] = []
    for name, value in content.items():
        at = (*path, name)
        if isinstance(value, dict) and value:
            lines.append(toml(value, at))
        else:
            key = ".".join(part if re.fullmatch(r"[\w-]+", part, re.ASCII) else json.dumps(part) for part in at)
            lines.append(f"{key} = {_value(value)}\n")
    return "".join(lines)


def _value(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return "{}" if value == {} else json.dumps(value, default=str)
