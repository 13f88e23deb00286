"""What commands print of one queue in which there is some of everything, for people and as JSON, to the last character, and
what arguments they take."""

import argparse
import json
import os
import shlex
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from engine import Queue
from engine.command.main import _parser
from tests import golden
from tests.engine.command.running import ironclaim
from tests.engine.using import START_MS, Bury, Desk, Drop, Failure, NoteQueue, RunTimes, set_history

#: Commands and what they print; a command that is added to the file is carried out, too.
PRINTED = "engine/printed.txt"


def peopled(desk: Desk) -> None:
    """Jobs in every state, limits, a pause, a schedule, and what workers have told."""
    desk.did(NoteQueue(desk.now_ms)).run(set_history(desk, 100, payload_bytes=50, names=("main", "other")))
    about = {"name": "w1", "host": "h", "pid": 7, "version": "1", "concurrency": 2, "handlers": ["main"], "started_ms": START_MS}
    about |= {"in_hand": 2, "jobs": ["held"], "routing": {"routes": ["default"]}}
    desk.beat("a", about=json.dumps(about, separators=(",", ":")))
    desk.set_limit("n:main", concurrency=9).set_limit("k:acme", rate=2, per_ms=10_000).pause("slow", 60_000)
    leased = desk.leased("done", "failing", "dying", "dead2", "skipped", "held", "p", key="acme2")
    ends, trace = {job.lease.job: job.lease for job in leased}, "Traceback (most recent call last)\n  x\nOSError: no way"
    desk.tick(1_500).finished(ends["done"]).retried(ends["failing"], 60_000, trace)
    desk.run(Bury((Failure(ends["dying"], "ValueError: no card 7"), Failure(ends["dead2"], "OSError: no route"))))
    desk.run(Drop((ends["skipped"],), ("skipped",), ("KeyError: 1",)))
    desk.enqueue("child", needs=("p",), on_parent_failure="ignore").enqueue("later", delay_ms=90_000, expires_ms=100_000)
    more: Any = {"priority": 9, "headers": (("trace", "t"),), "unique": "once", "attempts": 4, "timeout_ms": 5_000}
    desk.enqueue("whole", name="other", key="acme", **more)
    desk.queue.enqueue("other", 1, id="routed", route="gpu", target={"server": "s1"}, skip_on=["ValueError"])
    desk.enqueue("tail", name="other", key="acme", payload={"to": "a\u2028é"}).enqueue("paused", name="slow")
    took = RunTimes("main", "ok", 9_000, 4_000, ((43, 2), (44, 1))), RunTimes("main", "failed", 5, 5, ((20, 1),))
    desk.run(desk.took_operation(*took))
    desk.queue.schedules.put("nightly", "main", {"n": 1}, cron="0 3 * * *", zone="Europe/Berlin", missed="all")
    desk.queue.schedules.put("often", "other", every_ms=90_000, start_ms=START_MS)
    desk.tick(3_000)


def printed(desk: Desk) -> Iterator[str]:
    """The commands of the record, each with what it prints and ends with now, under the clock of the desk."""

    def made(*given: Any, **settings: Any) -> Queue:
        queue = Queue(*given, **settings)
        queue.model.now_ms = desk.now_ms
        return queue

    with patch("engine.command.arguments.Queue", made):
        for line in (golden.FOLDER / PRINTED).read_text().splitlines():
            if line.startswith("$ "):
                words = shlex.split(line.removeprefix("$ ironclaim "))
                at = ("--url", desk.queue.url, *(() if words[0] == "queues" else ("--queue", "desk")))
                done = ironclaim(*words, *at)
                yield f"{line}\n{done.stdout}{done.stderr}= {done.returncode}\n"


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What each argument of each command is: whether it must be given, how often, as what, and what it is if it is not."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield f"{parser.prog}: one of {', '.join(action.choices)}{' or none' * (not action.required)}"
            for inner in action.choices.values():
                yield from options(inner)
        elif action.dest != "help":
            kind = getattr(action.type, "__name__", "")
            words = {"default": action.default, "const": action.const, "nargs": action.nargs, "dest": action.dest, "type": kind}
            # To newer patches of Python a list that may be empty is none that must be given; 3.11 says that it must.
            words |= {"choices": action.choices and list(action.choices), "required": action.required and action.nargs != "*"}
            said = [f"{name}={value!a}" for name, value in words.items() if value not in (None, "", False, argparse.SUPPRESS)]
            yield f"{parser.prog} {'/'.join(action.option_strings)}: {' '.join(said)}"


@pytest.mark.feature("MQ37")
def test_everything_is_printed_as_it_was(desk: Desk) -> None:
    peopled(desk)
    golden.same(PRINTED, "\n".join(printed(desk)))


def test_every_argument_of_every_command_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("IRONCLAIM_")]:
        monkeypatch.delenv(name)
    golden.same("engine/options.txt", "".join(f"{line}\n" for line in options(_parser())))
