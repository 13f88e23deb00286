"""`ironclaim worker` runs the objects of a module as they are, and says in one line what is wrong with them."""

import asyncio
import itertools
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import Queue, models, testing
from engine.command.worker import _changed, _home_of, _sources  # pyright: ignore[reportPrivateUsage]
from tests import golden
from tests.engine.command.running import ROOT, Done, ironclaim, refused, said
from tests.engine.helpers import producing, waiting

#: A module of its own for each test, which the others have not imported.
numbers = itertools.count()

SHOP = """
import json, os, sys
from pathlib import Path
from engine import AsyncQueue, ConnectOptions, Handlers, Job, Queue, Worker, WorkerGroup, models

URL = {url!r}
RAN = Path(__file__).with_suffix(".ran")

class Reversed:
    name = "reversed"
    def dumps(self, value): return json.dumps(value)[::-1].encode()
    def loads(self, data): return json.loads(data.decode()[::-1])

def tell(queue, number):
    with RAN.open("a") as file:
        file.write(f"{{queue}} {{number}}\\n")

mails = Queue("mails", url=URL, prefix="shop", serializer=Reversed(), connect=ConnectOptions(timeout_ms=900))
bills = AsyncQueue("bills", models.Mosquito(layout="live", dead_ttl_s=60), url=URL)
slips = Queue("slips", url=URL)
empty = Queue("empty", url=URL)

@mails.job("send")
def send(number: int): tell("mails", number)

@bills.job("pay")
async def pay(number: int): tell("bills", number)

@slips.job("print")
@mails.job("print")
def slip(number: int): tell("slips", number)

handlers, more = Handlers(), Handlers()

@handlers("plain")
def plain(job): tell("plain", job.payload)

@more("other")
def other(job): tell("other", job.payload)

worker = Worker(slips, name="own", sweep_ms=50)
group = WorkerGroup([mails, slips], strategy="weighted", weights=[3, 1], sweep_ms=50)
"""


class Shop:
    """A module in the working folder, and what its handlers ran."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.name = f"shop_{os.getpid()}_{next(numbers)}"
        (folder / f"{self.name}.py").write_text(SHOP.format(url=url))

    def named(self, objects: str) -> list[str]:
        """Names of the module's objects, as they stand on the command line."""
        return [f"{self.name}:{word}" for word in objects.split()]

    def run(self, objects: str, *options: str, **environment: str) -> Done:
        """Run `ironclaim worker` with these objects of the module."""
        return ironclaim("worker", *self.named(objects), *options, "--burst", "--sweep-ms", "50", **environment)

    def load(self) -> Any:
        return __import__(self.name)

    def ran(self) -> list[str]:
        return sorted(waiting.whole_lines(self.folder / f"{self.name}.ran"))


@pytest.fixture
def shop(tmp_path: Path, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = Shop(tmp_path, ironclaim_url)
    yield made
    module = sys.modules.pop(made.name, None)
    for name in ("mails", "bills", "slips", "empty") if module is not None else ():
        asyncio.run(getattr(module, name).aclose())


@pytest.mark.slow
def test_a_queue_runs_with_its_own_prefix_and_serialiser(shop: Shop, client: Any) -> None:
    module = shop.load()
    module.send.enqueue(1)
    assert (shop.run("mails"), shop.ran()) == (Done(0, "", ""), ["mails 1"])
    assert client.exists("shop:{mails}:seq") or client.keys("shop:{mails}:*")
    assert module.mails.counts().finished == 1 and module.mails.counts().dead == 0


def test_an_async_queue_runs_with_its_own_model(shop: Shop) -> None:
    shop.load().pay.enqueue(2)
    assert shop.run("bills").returncode == 0 and shop.ran() == ["bills 2"]
    with Queue("bills", models.Mosquito(layout="live"), url=shop.url) as queue:
        assert queue.counts().waiting == 0


@pytest.mark.parametrize("options", [(), ("--weights", "3,1,2"), ("--strategy", "shuffle", "--concurrency", "2")])
def test_several_queues_run_in_one_worker_each_with_its_own_jobs(shop: Shop, options: tuple[str, ...]) -> None:
    module = shop.load()
    module.send.enqueue(1)
    module.pay.enqueue(2)
    module.slip.enqueue(3)
    done = shop.run("mails bills slips", *options)
    assert (done.returncode, done.stderr, shop.ran()) == (0, "", ["bills 2", "mails 1", "slips 3"])


def test_the_weights_are_those_of_the_group(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Group:
        def __init__(self, queues: Any, **settings: Any) -> None:
            made.append(([queue.name for queue in queues], settings))

        def run(self, *, burst: bool) -> str:
            return "empty"

    monkeypatch.setattr("engine.command.worker.WorkerGroup", Group)
    assert shop.run("mails slips", "--weights", "3,1", "--names", "print").returncode == 0
    asked = {"sweep_ms": 50, "names": ("print",), "strategy": "weighted", "weights": (3, 1)}
    assert made == [(["mails", "slips"], asked)]


@pytest.mark.parametrize("name", ["worker", "group"])
def test_a_worker_and_a_group_run_with_their_own_settings(shop: Shop, name: str) -> None:
    shop.load().slip.enqueue(5)
    done = ironclaim("worker", f"{shop.name}:{name}", "--burst")
    assert (done.returncode, done.stderr, shop.ran()) == (0, "", ["slips 5"])


def test_handlers_run_the_queue_that_the_options_name(shop: Shop) -> None:
    with Queue("told", url=shop.url, prefix="bank") as queue:
        queue.enqueue("plain", 1)
        queue.enqueue("other", 2)
        at = ("--queue", "told", "--url", shop.url)
        assert shop.run("handlers more", *at, "--prefix", "bank").returncode == 0
        assert shop.ran() == ["other 2", "plain 1"] and queue.counts().finished == 2
    with Queue("told", models.Mosquito(layout="live"), url=shop.url) as queue:
        queue.enqueue("plain", {"a": "b"})
        assert shop.run("handlers", *at, "--model", "mosquito:live").returncode == 0 and queue.counts().waiting == 0


@pytest.mark.parametrize("reference", ["{0}.mails", "{0}:mails", "inner_of_{0}.jobs:mails", "inner_of_{0}.jobs.mails"])
def test_objects_are_found_by_dotted_names(shop: Shop, reference: str) -> None:
    package = shop.folder / f"inner_of_{shop.name}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(f"from {shop.name} import mails\n")
    shop.load().send.enqueue(1)
    done = ironclaim("worker", reference.format(shop.name), "--burst", "--sweep-ms", "50")
    assert (done.returncode, done.stderr, shop.ran()) == (0, "", ["mails 1"])


#: Commands that are refused, each with the line that says why; one that is added to the file is carried out, too.
REFUSED = "engine/refused.txt"


def test_what_no_command_takes_is_one_line_before_anything_is_sent(shop: Shop) -> None:
    """Nobody is where the environment says; objects of a module know a server of their own."""
    nowhere, text = {"IRONCLAIM_URL": f"redis://127.0.0.1:{testing.free_port()}"}, ""
    for line in (golden.FOLDER / REFUSED).read_text().splitlines():
        if line.startswith(("$ ", "# ")):
            text += f"{line}\n"
        if line.startswith("$ "):
            settings, _, words = line.removeprefix("$ ").replace("shop:", f"{shop.name}:").partition("ironclaim")
            environment = dict(setting.split("=") for setting in settings.split()) or ({} if "shop:" in line else nowhere)
            told = refused(*shlex.split(words), **environment)
            text += told.replace(shop.name, "shop").replace(shop.url, "URL").replace(str(shop.folder), "FOLDER")
    golden.same(REFUSED, text)


def test_what_agrees_with_an_object_is_no_contradiction(shop: Shop) -> None:
    shop.load().send.enqueue(1)
    at = ("--queue", "mails", "--url", shop.url, "--prefix", "shop", "--model", "lanes")
    assert (shop.run("mails", *at).returncode, shop.ran()) == (0, ["mails 1"])


BAD_OPTION = "from engine import Queue\nqueue = Queue('q')\n@queue.job('send', attempts=0)\ndef send(): ...\n"


BROKEN = [
    ("import json\n\n1 / 0\n", "{0}.py:3: ZeroDivisionError: division by zero (importing {0})"),
    ("def f(:\n", "{0}.py:1: SyntaxError: invalid syntax (importing {0})"),
    ("import no_such_library\n", "{0}.py:1: ModuleNotFoundError: No module named 'no_such_library' (importing {0})"),
    ("import json\njson.loads('{{')\n", "{0}.py:2: JSONDecodeError: Expecting property name enclosed in double quotes: line 1"),
    (BAD_OPTION, "{0}.py:3: Malformed: attempts: 0 is not allowed, it must be a whole number from 1 to 1000 (importing {0})"),
    ("raise ValueError('two\\nlines')\n", "{0}.py:1: ValueError: two lines (importing {0})"),
    ("import sys\nsys.exit('bye')\n", "{0}.py:2: SystemExit: bye (importing {0})"),
]


@pytest.mark.parametrize(("source", "complaint"), BROKEN)
def test_a_module_that_cannot_be_imported_is_one_line_with_its_file_and_line(
    shop: Shop, source: str, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"broken_{shop.name}"
    (shop.folder / f"{name}.py").write_text(source.replace("{{", "{"))
    with caplog.at_level(logging.DEBUG, "ironclaim.worker"):
        assert refused("worker", f"{name}:queue").startswith(f"ironclaim: {complaint.format(name)}")
    # Who wants to know more sees the whole traceback.
    assert [record.exc_info is not None for record in caplog.records if record.message == f"importing {name}"] == [True]


def test_a_reference_that_names_nothing_says_what_is_wrong(shop: Shop) -> None:
    for reference, complaint in (
        ("no_such_module:queue", "(there is no module no_such_module in {0} or where Python looks)"),
        ("{1}.inner:queue", "(there is no module {1}.inner in {0} or where Python looks)"),
        ("{1}", "({1} is a module; {1} has mails, bills"), ("{1}.py:mails", "(there is no module {1}.py in "),
        ("./{1}:mails", "object: './{1}:mails' is not allowed, it must be module:object, or module.object, of a Queue"),
        ("{1}:", "object: '{1}:' is not allowed"),
    ):  # fmt: skip
        assert complaint.format(shop.folder, shop.name) in refused("worker", reference.format(shop.folder, shop.name))


COMMANDS: list[tuple[str, Callable[[Any], bool]]] = [
    ("jobs list", lambda rows: [row["job"] for row in rows] == ["mine"]),
    *((command, lambda rows: rows == []) for command in ("jobs times", "dead list", "workers")),
    ("pause send", lambda row: row["paused"] == "send"),
    ("why mine", lambda row: row["why"].startswith("waits because the name send is paused")),
    *(("resume send", lambda row: row["resumed"] == "send"), ("jobs show mine", lambda row: row["name"] == "send")),
    ("cron list", lambda rows: [row["schedule"] for row in rows] == ["nightly"]),
    *(("top --count 1", lambda look: look["waiting"] == 1), ("jobs cancel mine", lambda row: row["result"] == "done")),
]


def test_each_command_takes_a_prefix(ironclaim_url: str) -> None:
    with Queue("mails", url=ironclaim_url, prefix="shop") as queue:
        queue.enqueue("send", {}, id="mine")
        queue.schedules.put("nightly", "send", {}, cron="0 3 * * *")
        for command, right in COMMANDS:
            queue.pause("send")
            words = (*command.split(), "--queue", "mails")
            assert right(said(*words, "--url", ironclaim_url, "--prefix", "shop")), command
            if "cancel" not in command:
                queue.pause("send")
                assert right(said(*words, IRONCLAIM_URL=ironclaim_url, IRONCLAIM_PREFIX="shop")), command
    assert said("queues", "--url", ironclaim_url) == []
    assert [row["queue"] for row in said("queues", "--url", ironclaim_url, "--prefix", "shop")] == ["mails"]


def test_each_command_takes_a_model(ironclaim_url: str) -> None:
    with Queue("mails", models.Mosquito(layout="live"), url=ironclaim_url) as queue:
        queue.enqueue("send", {"a": "b"})
        at = ("--url", ironclaim_url, "--model", "mosquito:live")
        (row,) = said("jobs", "list", "--queue", "mails", *at)
        assert row["name"] == "send" and [found["waiting"] for found in said("queues", *at)] == [1]


# -- a process of its own


def start(shop: Shop, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "engine", "worker", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    log = (shop.folder / "log").open("w")
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, cwd=shop.folder, env=env)


@pytest.mark.slow
def test_child_processes_find_the_functions_of_several_queues(shop: Shop) -> None:
    module = shop.load()
    module.send.enqueue(1)
    module.slip.enqueue(2)
    module.slip.with_options(queue=module.mails).enqueue(3)
    worker = start(shop, *shop.named("mails slips"), "--processes", "1", "--burst", "--sweep-ms", "50", "--log-level", "WARNING")
    assert worker.wait(120) == 0, (shop.folder / "log").read_text()
    assert shop.ran() == ["mails 1", "slips 2", "slips 3"]
    assert "INFO:" not in (shop.folder / "log").read_text(), "no word of what is less than a warning"


def test_a_reload_looks_at_the_sources_of_its_modules_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app, one = tmp_path / "reloaded_app", tmp_path / "reloaded_one.py"
    sources = [app / "__init__.py", app / "deep" / "a.py", one]
    others = [app / folder / "b.py" for folder in (".git", "__pycache__", "node_modules", "site-packages", "own")]
    for path in (*sources, *others, app / "own" / "pyvenv.cfg", app / "notes.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    named = ("reloaded_app.deep:a", "reloaded_one:b", "pytest:c", "nowhere:d", ":")
    assert [_home_of(reference) for reference in named] == [app, one, *[tmp_path] * 3]
    before = dict(_sources([app, one]))
    assert {*before} == {*map(str, sources)}
    written = partial(os.utime, ns=(1, 1))
    for change, path in ((written, others[0]), (written, one), (Path.touch, app / "new.py"), (Path.unlink, sources[1])):
        change(path)
        assert _changed(before, [app, one]) == ("" if path in others else str(path.relative_to(tmp_path)))
        before = dict(_sources([app, one]))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_starts_anew_when_a_source_file_changes(shop: Shop, number: signal.Signals) -> None:
    log, source = shop.folder / "log", shop.folder / f"{shop.name}.py"
    worker = start(shop, f"{shop.name}:slips", "--reload", "--sweep-ms", "50")

    def told(words: str, times: int = 1) -> Callable[[], bool]:
        return lambda: log.read_text().count(words) >= times

    try:
        waiting.wait_until(told("queue slips"), "it works", 120)
        with Queue("slips", url=shop.url) as queue:
            queue.enqueue("print", {"number": 1}, id="first")
            waiting.wait_until(lambda: producing.ids_of(queue, "done") == ["first"], "the first job", 120)
            good = source.read_text()
            source.write_text(good + "\n1 / 0\n")
            waiting.wait_until(told("ZeroDivisionError: division by zero"), "it tells of the mistake", 120)
            waiting.wait_until(told("has ended with code 2: it starts anew when a file changes"), "it waits", 120)
            source.write_text(good.replace('tell("slips", number)', 'tell("changed", number)'))
            waiting.wait_until(told("queue slips", 2), "it works again", 120)
            queue.enqueue("print", {"number": 2}, id="second")
            waiting.wait_until(lambda: set(producing.ids_of(queue, "done")) == {"first", "second"}, "the second job", 120)
    finally:
        worker.send_signal(number)
        assert worker.wait(120) == 0, log.read_text()
    assert shop.ran() == ["changed 2", "slips 1"]
    assert log.read_text().count(f"{shop.name}.py has changed: the worker stops, and starts anew") == 1
