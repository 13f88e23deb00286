"""Arguments whose defaults come from the environment, and values that people write: `90s`, `10m`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import engine
from engine.command.output import print_error
from engine.errors import HIDDEN, EngineError, Malformed, describe, logger, nearest, redacted, redacted_url
from engine.handlers import Handlers
from engine.models import named
from engine.ops.admin import ReadShards
from engine.queue import admin
from engine.queue.settings import QueueSettings
from engine.queue.sharding import read_record
from engine.queue.synchronous import Queue
from engine.redis.endpoint import DEFAULT_URL, Endpoint
from engine.validate import UNITS_NS
from engine.worker.group import WorkerGroup
from engine.worker.worker import Worker

# -- What `ironclaim worker` runs: objects of the user's modules, found by their names. What is wrong with
# a module is one line.

log = logger("ironclaim.worker")

Runnable = QueueSettings | Handlers | Worker | WorkerGroup
_BOUND = (
    "module:object, or module.object, of a Queue or AsyncQueue with jobs, a Handlers object, a "
    "Worker or a WorkerGroup"
)


class BrokenModule(EngineError):
    """A module of the user raised when it was imported."""


@dataclass(frozen=True, slots=True)
class Target:
    """An object, and what it was called by."""

    reference: str
    value: Runnable


def load(reference: str) -> Target:
    """The object to run that `package.module:name` or `package.module.name` names. Raises as `find` does."""
    found, module = find(reference, _BOUND)
    if not isinstance(found, Runnable):
        has = f"; {module.__name__} has {', '.join(_runnable(module)) or 'none'}"
        raise Malformed("object", reference, f"{_BOUND} ({reference} is a {type(found).__name__}{has})")
    return Target(reference, found)


def find(reference: str, bound: str) -> tuple[Any, ModuleType]:
    """The object that a reference names, and its module; `bound` says what it should be. Raises Malformed
    saying which part is wrong, and BrokenModule."""
    module_name, colon, name = reference.partition(":")
    if (colon and not name) or not all(
        part.isidentifier() for part in f"{module_name}.{name or 'x'}".split(".")
    ):
        raise Malformed("object", reference, bound)
    if os.getcwd() not in sys.path and "" not in sys.path:
        # The installed command has its own folder there, and services start workers where their code is.
        sys.path.insert(0, os.getcwd())
    module, parts = _module(reference, module_name, bound)
    if colon and parts:
        raise _no_module(reference, module_name, bound)
    found: Any = module
    for part in name.split(".") if colon else parts:
        if not hasattr(found, part):
            raise Malformed(
                "object",
                reference,
                f"{bound} ({_named(found)} has no {part}{nearest(part, _runnable(module))})",
            )
        found = getattr(found, part)
    return found, module


def agree(options: argparse.Namespace, queue: QueueSettings, reference: str) -> None:
    """Raise Malformed, naming it, for an option or a variable that says something else of a queue than the
    object itself."""

    def differs(flag: str, given: object, own: object) -> Malformed:
        return Malformed(origin_of(flag, given), given, f"left out, or as {reference} says: {own!r}")

    if options.queue is not None and options.queue != queue.name:
        raise differs("--queue", options.queue, queue.name)
    if options.url is not None and not Endpoint(options.url).reaches(
        queue.endpoint.of_kind(asynchronous=False)
    ):
        raise differs("--url", redacted_url(options.url), redacted_url(queue.url))
    if options.prefix is not None and options.prefix != queue.prefix:
        raise differs("--prefix", options.prefix, queue.prefix)
    given, own = options.model, queue.spec
    if given is not None and (type(given), getattr(given, "layout", "")) != (
        type(own),
        getattr(own, "layout", ""),
    ):
        raise Malformed(
            origin_of("--model", given, model), repr(given), f"left out, or as {reference} says: {own!r}"
        )


def _module(reference: str, name: str, bound: str) -> tuple[ModuleType, list[str]]:
    """The module that as many parts of a dotted name as possible name, and the parts that are left."""
    parts = name.split(".")
    found = _imported(parts[0])
    if found is None:
        raise _no_module(reference, parts[0], bound)
    for count in range(2, len(parts) + 1):
        inner = _imported(".".join(parts[:count]))
        if inner is None:
            return found, parts[count - 1 :]
        found = inner
    return found, []


def _imported(name: str) -> ModuleType | None:
    """A module; None where there is none of this name. Raises BrokenModule."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise _broken(name, error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _broken(name, error) from error


def _no_module(reference: str, name: str, bound: str) -> Malformed:
    return Malformed(
        "object", reference, f"{bound} (there is no module {name} in {os.getcwd()} or where Python looks)"
    )


def _broken(name: str, error: BaseException) -> BrokenModule:
    """What a module has raised, with the line of the user's code that it comes from."""
    log.debug("importing %s", name, exc_info=error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        file, line, text = error.filename, error.lineno, error.msg
    else:
        file, line = _place_of(error)
        text = describe(error).removeprefix(f"{type(error).__name__}: ")
    shown = os.path.relpath(file) if Path(file).is_relative_to(os.getcwd()) else file
    return BrokenModule(
        f"{shown}:{line}: {type(error).__name__}: {' '.join(text.split())} (importing {name})"
    )


def _place_of(error: BaseException) -> tuple[str, int | None]:
    """File and line of the last frame of the user's own code; of the last one at all where none is."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen ")
    ]
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    outside = [
        frame for frame in frames if not Path(frame.filename).is_relative_to(Path(engine.__file__).parent)
    ]
    own = [
        frame
        for frame in outside
        if not any(Path(frame.filename).is_relative_to(folder) for folder in libraries)
    ]
    last = (own or outside or frames)[-1]
    return last.filename, last.lineno


def _named(found: object) -> str:
    return f"module {found.__name__}" if isinstance(found, ModuleType) else f"a {type(found).__name__}"


def _runnable(module: ModuleType) -> Iterator[str]:
    """Names of the objects of a module that a worker can run."""
    return (name for name, value in vars(module).items() if isinstance(value, Runnable))


def duration_ms(text: str) -> int:
    """`1500ms`, `90s`, `10m`, `2h`, `7d` in milliseconds. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,15})(ms|s|m|h|d)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: it must be a number with a unit: 1500ms, 90s, 10m, 2h, 7d"
        )
    return int(found[1]) * UNITS_NS[found[2]] // 10**6


def words(text: str) -> tuple[str, ...]:
    """`gpu,eu` as its words."""
    return tuple(word for word in text.split(",") if word)


def model(text: str) -> Any:
    """`bull`, or `bananas:live` with a layout, as one of engine.models. Raises ArgumentTypeError."""
    try:
        return named(text)
    except Malformed as error:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be {error.bound}") from None


def priorities(text: str) -> tuple[int, int]:
    """`7-10` or `5` as the least and the greatest priority. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: it must be one priority or two with a dash: 5, 7-10")
    return int(found[1]), int(found[2] or found[1])


def numbers(text: str) -> tuple[int, ...]:
    """`6,3,1` as its numbers. Raises ArgumentTypeError."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: it must be whole numbers with commas between: 6,3,1")
    return tuple(map(int, text.split(",")))


def switch(text: str) -> bool:
    """`on` or `off`. Raises ArgumentTypeError."""
    return one_of("on", "off")(text) == "on"


def one_of(*known: str) -> Callable[[str], str]:
    """One of these words, in any case. Raises ArgumentTypeError."""

    def word(text: str) -> str:
        if text.lower() not in known:
            raise argparse.ArgumentTypeError(f"{text!r}: it must be one of {', '.join(known)}")
        return text.lower()

    return word


#: What the names of environment variables begin with, and those that options have.
_PREFIX, _VARIABLES = "IRONCLAIM_", set[str]()
#: How similar two names are of which one is the other, misspelt. The harness, services and Kubernetes have
#: others, which nobody should be told of: `IRONCLAIM_SERVICE_HOST` is 0.82 of `IRONCLAIM_SERVICE_MS`.
_SIMILARITY_MIN = 0.85


def variable(flag: str) -> str:
    """The environment variable of an option: `IRONCLAIM_LEASE_MS` for `--lease-ms`."""
    return _PREFIX + flag.removeprefix("--").upper().replace("-", "_")


def misspelt(*others: str) -> Iterator[str]:
    """What to say of each variable of the environment that is nearly that of an option, or one of these."""
    known = [name.removeprefix(_PREFIX) for name in sorted({*_VARIABLES, *others})]
    for name in sorted(os.environ):
        word = name.removeprefix(_PREFIX)
        if word not in (name, *known):
            perhaps = nearest(word, known, least=_SIMILARITY_MIN, said=f", perhaps {_PREFIX}{{}}")
            if perhaps:
                yield f"{name}: no command reads this variable{perhaps}"


def add(
    parser: argparse.ArgumentParser,
    flag: str,
    *,
    default: Any,
    help: str,
    kind: Callable[[str], Any] = str,
    required: bool = False,
    shown: Any = None,
    metavar: str | None = None,
) -> None:
    """Add an option that the environment may set. `shown` is the default in the help text, where another one
    is applied later. Raises Malformed, naming the variable, for a value of the wrong kind."""
    name = variable(flag)
    _VARIABLES.add(name)
    given = os.environ.get(name)
    if given is not None:
        try:
            default = kind(given)
        except (ValueError, argparse.ArgumentTypeError) as error:
            why = "a whole number" if kind is int else str(error)
            raise Malformed(name, given, f"what {flag} takes: {why}") from None
    shown = default if shown is None or given is not None else shown
    ending = "" if shown in (None, "", ()) else f"; default: {_told(flag, shown)}"
    about = f"{help} [{name}{ending}]".replace("%", "%%")
    parser.add_argument(
        flag,
        type=kind,
        default=default,
        required=required and default is None,
        help=about,
        metavar=metavar,
    )


def _told(flag: str, default: object) -> object:
    """A default as the help tells it: without what may be secret in it."""
    if flag.endswith(("token", "secret", "password")):
        return HIDDEN
    return redacted_url(str(default)) if flag.endswith(("url", "dsn")) else redacted(str(default))


def origin_of(flag: str, value: object, kind: Callable[[str], Any] = str) -> str:
    """Where the value of an option comes from, for messages: the name of the variable that holds it, else the
    flag."""
    given = os.environ.get(variable(flag))
    return flag if given is None or kind(given) != value else variable(flag)


def add_queue(parser: argparse.ArgumentParser) -> None:
    """The options of every command that looks at one queue."""
    add_server(parser)
    add(parser, "--queue", default=None, required=True, help="name of the queue")


def add_server(parser: argparse.ArgumentParser, *, url: str | None = DEFAULT_URL) -> None:
    """The options that say where queues are, and in which format."""
    add(parser, "--url", default=url, shown=DEFAULT_URL, help="server: redis://, rediss:// or unix://")
    add(parser, "--prefix", default=None, help="what all keys begin with (default: as the model has it, ic)")
    add(
        parser,
        "--model",
        kind=model,
        default=None,
        help="data model: bull, bananas:live, ... (default lanes)",
    )


def opened(
    options: argparse.Namespace,
    name: str | None = None,
    check: Callable[[Queue], object] = id,
    **settings: Any,
) -> Queue:
    """The queue that the options name, or this one of their server, with as many shards as it has there.
    `check`: what is to be done with it is looked at before the server is asked anything. Raises Malformed."""
    given: dict[str, Any] = {"url": options.url or DEFAULT_URL, "prefix": options.prefix, **settings}
    queue = Queue(name or options.queue, options.model, **given)
    check(queue)
    if queue.model.name != "lanes":
        return queue
    text: str = queue.driver.run(queue.model.call(ReadShards()))
    if not text:
        return queue
    queue.close()
    return Queue(queue.name, options.model, shards=read_record(text).layouts[-1].shards, **given)


def never_was(queue: Queue, options: argparse.Namespace) -> bool:
    """Whether the server neither lists the queue nor holds jobs of it that other programs have put there.
    Then that is said, because its name may be misspelt."""
    listed = queue.driver.run(admin.listing(options.model, options.prefix, admin.LIMIT_MAX))
    counts = queue.counts()
    jobs = (counts.waiting, counts.delayed, counts.blocked, counts.active, counts.dead, counts.done)
    if any(found.name == options.queue for found in listed) or any(jobs):
        return False
    under = f" under the prefix {options.prefix}" if options.prefix else ""
    never = "nothing was ever put into it, and no worker has worked for it"
    print_error(f"there is no queue {options.queue}{under}: {never}")
    return True


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option for programs that read what the command prints."""
    parser.add_argument("--json", action="store_true", help="print JSON")
