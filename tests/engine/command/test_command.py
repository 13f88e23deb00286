"""The console command, as a program of its own against a real server."""

import argparse
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from engine import GroupSettings, Queue, WorkerSettings, __version__, models, options
from engine.command.arguments import duration_ms
from engine.command.main import _parser  # pyright: ignore[reportPrivateUsage]
from tests.engine.command.running import ROOT, Done, ironclaim, refused, said
from tests.engine.using import Finish, claim


def test_top_shows_counts_and_rates(queue: Queue, at: tuple[str, ...]) -> None:
    queue.enqueue_many([{"name": "send", "payload": number} for number in range(7)])
    arguments = ("top", *at, "--count", "2", "--every-s", "0.1")
    first, second = map(json.loads, ironclaim(*arguments, "--json").stdout.splitlines())
    assert (first["waiting"], first["finished"], first["finished_per_s"]) == (7, 0, None)
    assert (second["waiting"], second["finished_per_s"]) == (7, 0.0) and second["srv_us"] > first["srv_us"]
    screen = ironclaim(*arguments).stdout
    assert "waiting  delayed  blocked  active  dead  oldest s  workers\n      7        0        0       0     0  " in screen
    assert "finished      0" in screen and "dead          0" in screen and "done" not in screen and "buried" not in screen
    former = {"done": "finished_kept", "buried": "dead_total", "buried_per_s": "dead_per_s"}
    assert all(second[name] == second[now] for name, now in former.items()) and second["dead_per_s"] == 0.0
    assert "\x1b" not in screen, "no control characters where nobody looks"


@pytest.mark.feature("BN32")
def test_a_resharding_tells_what_it_does_and_what_is_left(queue: Queue) -> None:
    words = ("reshard", "mails", "--to", "3", "--url", queue.url)
    queue.enqueue("work", 1, id="runs")
    (job,) = claim(queue).jobs
    queue.enqueue("work", 1, id="waits")
    told = "queue mails: prepares 3 shards\nqueue mails: moves the jobs of 1 shard\n"
    told += "queue   mails\nshards  3\nmoved   1\nleft    1\n"
    left = "ironclaim: queue mails: 1 job left at the old shards, running or waiting for others; run this again later\n"
    assert ironclaim(*words, "--wait", "1ms") == Done(1, told, left)
    queue.driver.run(queue.model.call(Finish((job.lease,))))
    assert ironclaim(*words, "--json") == Done(0, '{"queue": "mails", "shards": 3, "moved": 0, "left": 0}\n', "")
    # Other commands see that there are shards now.
    assert json.loads(ironclaim("top", "--queue", *words[1:2], *words[4:], "--count", "1", "--json").stdout)["waiting"] == 1


def test_the_environment_sets_what_no_argument_says(ironclaim_url: str) -> None:
    settings = {"IRONCLAIM_URL": ironclaim_url, "IRONCLAIM_QUEUE": "mails"}
    assert [said("enqueue", "send", *at, **settings)["queue"] for at in ((), ("--queue", "other"))] == ["mails", "other"]
    assert said("pause", "send", **settings)["queue"] == "mails"
    assert said("pause", "send", "--queue", "other", **settings)["queue"] == "other"
    told = refused("worker", "m:h", **settings, IRONCLAIM_LEASE_MS="long")
    assert told.startswith("ironclaim: IRONCLAIM_LEASE_MS: 'long'") and "--lease-ms" in told


def test_a_variable_that_is_nearly_one_of_ours_is_told_and_those_of_others_are_not(ironclaim_url: str) -> None:
    # Of a drill, of the harness, of Kubernetes beside a service of this name, of a service.
    others = "HISTORY HISTORY_QUEUE HISTORY_URL HISTORY_UNDER SINK PROC TIMED CONTROL GROW REDIS_SERVER SPARK_MASTER SPARK_CONF "
    others += "SERVICE_HOST SERVICE_PORT PORT_8080_TCP SHOP"
    given = {f"IRONCLAIM_{name}": "x" for name in ("OBSERVR", "LEASE_MSS", "URLS", *others.split())}
    done = ironclaim("queues", "--json", **given, IRONCLAIM_URL=ironclaim_url)
    meant = (("LEASE_MSS", "LEASE_MS"), ("OBSERVR", "OBSERVER"), ("URLS", "URL"))
    lines = [f"ironclaim: IRONCLAIM_{name}: no command reads this variable, perhaps IRONCLAIM_{one}" for name, one in meant]
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (0, "[]\n", lines)


def test_the_help_of_the_worker_has_each_setting_with_its_default() -> None:
    text = " ".join(ironclaim("worker", "--help").stdout.split()).replace("worker- HOST", "worker-HOST")
    about = options.sentences(WorkerSettings) | options.sentences(GroupSettings)
    assert {*about} == {*options.settings_of(GroupSettings)}, "a row has a docstring"
    for name, row in options.settings_of(GroupSettings).items():
        if name in ("attributes", "gate"):
            assert f"IRONCLAIM_{name.upper()}" not in text, "only a program has one"
        else:
            shown = {"presence": "on", "routes": "default"}.get(name, row.default)
            ending = "" if row.default in (None, "", ()) else f"; default: {shown}"
            assert f"{about[name]} [IRONCLAIM_{name.upper()}{ending}]" in text


def test_the_help_of_a_command_describes_no_other_one() -> None:
    subparsers = argparse._SubParsersAction  # pyright: ignore[reportPrivateUsage]
    (commands,) = (one.choices for one in _parser()._actions if isinstance(one, subparsers))  # pyright: ignore[reportPrivateUsage]
    about = {name: parser.description or "" for name, parser in cast("dict[str, argparse.ArgumentParser]", commands).items()}
    assert len([text for text in about.values() if text]) > 8
    assert {name: text for name, text in about.items() if {*re.findall(r"`ironclaim (\w+)", text)} - {name}} == {}


def test_the_version_is_told_without_importing_what_commands_need() -> None:
    program = "import sys; from engine.command.main import main; code = main(['--version']); print(code, *sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    version, modules = told.stdout.splitlines()
    assert version == f"ironclaim {__version__}" and modules.split()[0] == "0"
    # The client alone takes more than 100 ms.
    assert not {"redis", "asyncio", "engine.command.worker", "engine.queue.synchronous"} & {*modules.split()}


def test_a_server_that_is_not_there_is_one_line(ironclaim_url: str) -> None:
    assert refused("resume", "--queue", "q", "--url", f"{ironclaim_url.rsplit('/', 1)[0]}/99")


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert refused("serve", "--port", str(port)) == f"ironclaim: 127.0.0.1:{port}: Address already in use\n"


def test_durations() -> None:
    assert [duration_ms(text) for text in ("5ms", "90s", "10m", "2h", "7d")] == [5, 90_000, 600_000, 7_200_000, 604_800_000]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A program of its own, in a folder of its user's modules."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder, env=env, check=False)


@pytest.mark.slow
def test_the_installed_command_finds_modules_in_the_working_folder(ironclaim_url: str, tmp_path: Path) -> None:
    """Its script's folder is first on the path, not the one it is started in."""
    program = f"from engine import Queue\nqueue = Queue('q', url={ironclaim_url!r})\n@queue.job('send')\ndef send(): ...\n"
    (tmp_path / "shop_of_a_newcomer.py").write_text(program)
    script = tmp_path / "bin" / "ironclaim"
    script.parent.mkdir()
    script.write_text("import sys\nfrom engine.command.main import main\nsys.exit(main())\n")
    done = run([sys.executable, str(script), "worker", "shop_of_a_newcomer:queue", "--burst"], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_worker_is_told_the_model_of_its_queue(ironclaim_url: str, tmp_path: Path) -> None:
    program = "from engine import Handlers\nhandlers = Handlers()\n@handlers('send')\ndef send(job): print('sent', job.id)\n"
    (tmp_path / "senders.py").write_text(program)
    with Queue("told", models.Mosquito(layout="live"), url=ironclaim_url) as queue:
        job = queue.enqueue("send", {}).job
        words = ("senders:handlers", "--queue", "told", "--model", "mosquito:live", "--url", ironclaim_url, "--burst")
        done = run([sys.executable, "-m", "engine", "worker", *words], tmp_path)
        assert (done.returncode, done.stdout) == (0, f"sent {job}\n"), done.stderr
        assert queue.counts().waiting == 0


SCRIPTS = [("lanes", "claim"), ("bull", "claim"), ("bananas:live", "tick"), ("dsps", "fetch")]


@pytest.mark.parametrize(("model", "script"), SCRIPTS)
def test_a_script_is_printed_as_the_server_runs_it(model: str, script: str, client: Any) -> None:
    text = ironclaim("lua", script, "--model", model).stdout
    assert text.startswith("#!lua") and "local function server_us(" in text
    assert client.script_load(text) == hashlib.sha1(text.encode()).hexdigest()
    assert script in ironclaim("lua", "--model", model).stdout.split()
    unknown = refused("lua", "nothing", "--model", model)
    assert unknown.startswith("ironclaim: script: 'nothing' is not allowed, it must be one of ")
