"""`ironclaim enqueue`: put one job into a queue, with the options of jobs as flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from engine import validate
from engine.command.arguments import add_json, add_queue, duration_ms, numbers, opened, words
from engine.command.output import print_error, renamed, show_one
from engine.errors import EngineError, nearest, outlined
from engine.ops.workers import WORKERS_MAX
from engine.options import DEFAULTS, OPTIONS, Described, JobOptions, sentences
from engine.queue import producing
from engine.queue.producing import NewJob
from engine.queue.synchronous import Queue
from engine.queue.why import unhandled, unhandled_words

#: What a flag does with its value: the argument of `add_argument` for each kind of option.
Keywords = dict[str, Any]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser("enqueue", help="put one job into a queue", description=__doc__)
    parser.add_argument("name", help="name of the job")
    parser.add_argument("--payload", type=_json, default={}, metavar="JSON", help="any JSON value ({})")
    parser.add_argument("--id", help="an id of your own: with the same one the job is there once")
    add_queue(parser)
    add_json(parser)
    hints, about = get_type_hints(JobOptions, include_extras=True), sentences(JobOptions)
    for option in OPTIONS:
        default = f" (default {DEFAULTS[option]})" if option in DEFAULTS else ""
        help = f"{about[option]}{default}".replace("%", "%%")
        keywords = _keywords(option, get_args(hints[option])[0])
        parser.add_argument(f"--{option.replace('_', '-')}", dest=f"option_{option}", help=help, **keywords)
    parser.set_defaults(run=run_enqueue)


def run_enqueue(options: argparse.Namespace) -> int:
    """Enqueue the job."""
    given = {option: getattr(options, f"option_{option}") for option in OPTIONS}
    given = {option: value for option, value in given.items() if value is not None}
    job = (options.name, options.payload)

    def check(queue: Queue) -> None:
        producing.draft(*job, queue.payload_bytes_max, options.id, given, queue.serializers, queue.model)

    with opened(options, check=check) as queue:
        enqueued = queue.enqueue(*job, id=options.id, **given)
        note = _note(queue, options.name)
    row = {"job": enqueued.job, "queue": options.queue, "result": enqueued.result}
    if not enqueued.created:
        row["holder"] = enqueued.holder
    show_one(renamed(row, id="job") if options.json else row, as_json=options.json)
    if note:
        print_error(f"note: {note}")
    return 0


def _note(queue: Queue, name: str) -> str:
    """Why nobody will run a job of this name though workers live; '' where one may."""
    # The job is there, whatever the look at workers meets.
    with suppress(EngineError):
        alive = [worker for worker in queue.workers.list() if worker.alive]
        if alive and len(alive) < WORKERS_MAX:
            known = (handler for worker in alive for handler in worker.handlers)
            words = unhandled_words(unhandled((name,), alive), alive)
            return words and f"{words}{nearest(name, known)}"
    return ""


def _keywords(option: str, kind: Any) -> Keywords:
    """How the flag of an option with this type is read; `append` and pairs where it takes several."""
    kinds = set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
    kinds.discard(type(None))
    origins = {get_origin(of): of for of in kinds}
    if bool in kinds:
        return {"action": "store_const", "const": True}
    if Literal in origins:
        return {"choices": get_args(origins[Literal])}
    if Mapping in origins and get_args(origins[Mapping])[1] is str:
        return {"action": _Pairs, "metavar": "NAME=VALUE"}
    if Sequence in origins:
        of_numbers = option.endswith("_ms")
        return {"type": numbers if of_numbers else words, "metavar": "N,N,..." if of_numbers else "A,B,..."}
    if Described in kinds:
        return {"type": _new_job, "metavar": "JSON"}
    plain: tuple[tuple[type, Callable[[str], Any], str], ...] = (
        (datetime, _instant, "TIME"),
        (int, _milliseconds if option.endswith("_ms") else int, "LENGTH" if option.endswith("_ms") else "N"),
        (float, float, "X"),
        (str, str, "TEXT"),
    )
    for of, read, metavar in plain:
        if of in kinds:
            return {"type": read, "metavar": metavar}
    return {"type": _json, "metavar": "JSON"}


class _Pairs(argparse.Action):
    """`--headers a=b --headers c=d` as a mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        flag: str | None = None,
    ) -> None:
        name, equals, value = str(values).partition("=")
        if not (name and equals):
            raise argparse.ArgumentError(self, f"{outlined(values)}: it must be NAME=VALUE")
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), name: value})


def _json(text: str) -> Any:
    try:
        return validate.json_value(text)
    except (ValueError, RecursionError) as error:
        # It may be a payload.
        raise argparse.ArgumentTypeError(f"{outlined(text)}: it must be JSON ({error})") from None


def _new_job(text: str) -> NewJob:
    """`{"name": "report", "payload": {...}}`, with further options beside them."""
    fields = _json(text)
    if not isinstance(fields, dict) or "name" not in fields:
        raise argparse.ArgumentTypeError(
            f"{outlined(text)}: it must be a JSON object with a name, and perhaps a payload and options"
        )
    described: dict[str, Any] = {"payload": {}, **fields}
    return NewJob(described.pop("name"), described.pop("payload"), **described)


def _milliseconds(text: str) -> int:
    """`90s`, or a number of milliseconds."""
    return int(text) if text.isdecimal() else duration_ms(text)


def _instant(text: str) -> int | datetime:
    """Milliseconds since 1970, or ISO 8601; a time without a zone is refused where it is checked."""
    try:
        return int(text) if text.isdecimal() else datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: it must be ISO 8601 with a zone, or ms since 1970"
        ) from None
