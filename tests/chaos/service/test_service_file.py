"""`chaos.toml`: what it may say, and that each wrong value is one line with field, value and bound, before anything starts."""

import os
import sys
from pathlib import Path

import pytest

from chaos import catalogue, cli, errors, interrupts
from chaos.service import names, placeholders
from chaos.service.drill import open_queue
from chaos.service.file import OF_OWN_HANDLERS, read, toml
from reports import slo_file
from tests.given import Output, Patch

GOOD = {"queue": '"shop.jobs:queue"', "load": '"load:orders"', "rate": "30"}


def written(folder: Path, **fields: str) -> Path:
    file = folder / "chaos.toml"
    file.write_text("".join(f"{name} = {value}\n" for name, value in {**GOOD, **fields}.items() if value))
    return file


def test_a_file_of_three_fields_has_three_workers_and_the_usual_faults(tmp_path: Path) -> None:
    service = read(written(tmp_path))
    assert service.workers == (("ironclaim", "worker", "shop.jobs:queue"),) * 3
    assert (service.topology, service.apps, service.minutes, service.once) == ("embedded", (), None, False)
    assert service.faults == catalogue.usual("embedded") and service.folder == tmp_path
    assert service.references() == {"queue": "shop.jobs:queue", "load": "load:orders"}


def test_commands_take_turns_until_there_are_three_and_keep_their_words(tmp_path: Path) -> None:
    two = read(written(tmp_path, workers='["one --name \\"a b\\"", "two"]')).workers
    assert two == (("one", "--name", "a b"), ("two",), ("one", "--name", "a b"))
    assert [words[0] for words in read(written(tmp_path, workers='["a", "b", "c", "d"]')).workers] == ["a", "b", "c", "d"]


def test_no_faults_are_no_faults_and_objectives_are_those_of_an_slo_file(tmp_path: Path) -> None:
    assert read(written(tmp_path, faults="[]", slo='{ "recovery.slowest_ms" = 1 }')).faults == ()
    tables = {"recovery": {"slowest_ms": 4_000}, "latency": {"all": {"end_to_end": {"p99_ms": 1.5}}}}
    file = tmp_path / "slo.toml"
    file.write_text(toml(tables))
    assert [(one.name, one.bound) for one in slo_file.read(file, channels=False)] == [
        ("recovery.slowest_ms", 4_000),
        ("latency.all.end_to_end.p99_ms", 1.5),
    ]


#: What is wrong -> the fields that say it, and the line.
WRONG: dict[str, tuple[dict[str, str], str]] = {
    "unknown key": ({"workrs": "3"}, "workrs is 3, it must be left out: perhaps workers; the fields are apps, durability, "),
    "unknown key like none": ({"zz": "3"}, "zz is 3, it must be left out: the fields are apps, durability, "),
    "key of servers": ({"servers": "{ ur = 'redis://:hunter2@h' }"}, 'servers.ur is "str", it must be left out: perhaps url; '),
    "braces of a command": (
        {"workers": "['a --db {rn}/a.db']"},
        'workers[0] is "a --db {rn}/a.db", it must be a command without {rn}: perhaps {run}; it may have {run} and {name}, and',
    ),
    "port of a worker": ({"workers": "['a {port}']"}, "it must be a command without {port}: it may have {run} and {name}, and "),
    "braces of an app": ({"apps": "['a {prt}']"}, "it must be a command without {prt}: perhaps {port}; it may have {run} and "),
    "braces of a variable": (
        {"environment": "{ TOKEN = '{hunter2}{nme}' }"},
        'environment.TOKEN is "str", it must be without other braces: it may have {run} and {name}, and {{x}} is told as {x}',
    ),
    "a misspelt folder": ({"environment": "{ DB = '{rn}/a.db' }"}, "without other braces: perhaps {run}; it may have "),
    "no queue": ({"queue": ""}, "queue is null, it must be a text such as module:queue"),
    "no reference": ({"queue": '"shop.jobs"'}, 'queue is "shop.jobs", it must be a text such as module:queue'),
    "load of another type": ({"load": "3"}, "load is 3, it must be a text such as module:function or module:LocustUser"),
    "rate too low": ({"rate": "0"}, "rate is 0, it must be a whole number from 1 to 5000"),
    "rate too high": ({"rate": "5001"}, "rate is 5001, it must be a whole number from 1 to 5000"),
    "rate of another type": ({"rate": "true"}, "rate is true, it must be a whole number from 1 to 5000"),
    "no workers": ({"workers": "[]"}, "workers is [], it must be a list of 1 to 16 commands"),
    "workers of another type": ({"workers": "3"}, "workers is 3, it must be a list of at most 16 commands"),
    "no command": ({"workers": "['a \"b']"}, 'workers[0] is "a \\"b", it must be a command, as a shell reads its words'),
    "too many apps": ({"apps": "['a', 'a', 'a', 'a', 'a']"}, "it must be a list of at most 4 commands"),
    "unknown fault": ({"faults": "['worker-kil']"}, 'faults[0] is "worker-kil", it must be a kind of fault: worker-kill, '),
    "fault of other servers": (
        {"faults": "['worker-kill', 'primary-kill']"},
        'faults[1] is "primary-kill", it must be one that fits the topology embedded: worker-kill, ',
    ),
    "fault of other handlers": ({"faults": "['worker-oom']"}, "it must be one that fits the topology embedded: "),
    "fault twice": ({"faults": "['worker-kill', 'worker-kill']"}, "it must be a list that names each kind once"),
    "faults of another type": ({"faults": '"worker-kill"'}, 'faults is "worker-kill", it must be a list of kinds of fault'),
    "unknown topology": ({"topology": '"ring"'}, 'topology is "ring", it must be embedded or aof or replica or '),
    "durability of other servers": (
        {"topology": '"sentinel"', "durability": '"always"'},
        'durability is "always", it must be server or replica with the topology sentinel',
    ),
    "minutes": ({"minutes": "61"}, "minutes is 61, it must be a whole number from 1 to 60"),
    "once without effects": ({"once": "true"}, "once is true, it must be false without effects: nobody tells how often"),
    "names of another type": ({"without_effects": '"view"'}, 'without_effects is "view", it must be a list of names of jobs'),
    "without effects": ({"without_effects": '["view"]'}, 'without_effects is ["view"], it must be left out without effects'),
    "once of another type": ({"once": "1"}, "once is 1, it must be true or false"),
    "a password": ({"redis_url": '"redis://:hunter2@h"'}, 'redis_url is "str", it must be left out: '),
    "a url in another field": ({"load": '"redis://:hunter2@h"'}, 'load is "redis://***@h", it must be a text such as '),
    "misspelt variables": ({"enviroment": "{ TOKEN = 'hunter2' }"}, "enviroment is a table, it must be left out: "),
    "variables as a text": ({"environment": "'TOKEN=hunter2'"}, 'environment is "str", it must be a table'),
    "unknown key of two lines": ({'"a\\nb"': "3"}, '"a\\nb" is 3, it must be left out: '),
    "durability of another type": ({"durability": "[]"}, "durability is [], it must be server with the topology embedded"),
    "environment": ({"environment": "{ A = 1 }"}, 'environment.A is "int", it must be a text'),
    "no variable": ({"environment": "{ 'A=B' = 'x' }"}, 'environment is ["A=B"], it must be a table of variables, '),
    "variable without a name": ({"environment": "{ '' = 'x' }"}, 'environment is [""], it must be a table of variables, '),
    "no text for a variable": ({"environment": '{ A = "\\u0000" }'}, 'environment.A is "str", it must be a text without a NUL'),
    "the harness's own": (
        {"environment": "{ IRONCLAIM_HISTORY = '' }"},
        'environment.IRONCLAIM_HISTORY is "str", it must be left out: the harness sets it',
    ),
    "slo of another type": ({"slo": "3"}, "slo is 3, it must be a table"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_is_one_line_with_field_value_and_bound(tmp_path: Path, wrong: str) -> None:
    fields, line = WRONG[wrong]
    with pytest.raises(errors.HarnessError) as caught:
        read(written(tmp_path, **fields))
    assert str(caught.value).startswith("chaos.toml: ") and line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_shell_or_json_has_in_braces_is_no_placeholder_and_doubled_braces_are_single_ones(tmp_path: Path) -> None:
    words, variables = "sh -c 'echo ${HOME} {} {a,b}' {run}", """{ A = '{"a": 1} {{message}} {name}', PORT = '{port}' }"""
    service = read(written(tmp_path, workers=f'["{words}"]', environment=variables, apps='["web {port}"]'))
    assert service.workers[0] == ("sh", "-c", "echo ${HOME} {} {a,b}", "{run}") and service.apps == (("web", "{port}"),)
    known = {"run": "/r", "name": "worker-1", "port": "{run}"}
    told = {name: placeholders.filled(text, known) for name, text in service.environment.items()}
    assert told == {"A": '{"a": 1} {message} worker-1', "PORT": "{run}"}


def test_a_file_that_is_missing_or_no_toml_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(errors.HarnessError, match="No such file"):
        read(tmp_path / "chaos.toml")
    (tmp_path / "chaos.toml").write_text("queue = ")
    with pytest.raises(errors.HarnessError, match="^chaos.toml is not TOML: "):
        read(tmp_path / "chaos.toml")


def test_faults_of_the_own_handlers_are_kinds_of_fault() -> None:
    assert set(OF_OWN_HANDLERS) <= catalogue.KINDS.keys()


SERVICE = """
from engine import Queue
queue, number = Queue("shop"), 7
def __getattr__(name):
    raise RuntimeError("two" + chr(10) + "lines") if name == "broken" else AttributeError(name)
def load(seed):
    yield "work", {}
class Shop:
    pass
"""


UNRESOLVED = [
    ({"queue": '"shop:broken"'}, 'queue is "shop:broken", it must be one that can be imported (RuntimeError: two lines)'),
    ({"effects": '"shop:number"'}, 'effects is "shop:number", it must be a function (it is a int)'),
    ({"workers": '["no-such-program --now"]'}, 'workers[0] begins with "no-such-program", it must be a program on PATH'),
    ({"slo": "{ rate = 3 }"}, "chaos.toml: slo: rate is not known, perhaps rates; it must be latency, recovery, "),
    ({"slo": "{errors = {lots = 0}}"}, "chaos.toml: slo: errors.lots is not known, perhaps lost; the last part must be lost, "),
    ({"slo": "{ rates = 3 }"}, "chaos.toml: slo: rates is 3, an objective of this section must be at rates.NAME"),
]


@pytest.mark.parametrize(("fields", "line"), UNRESOLVED)
def test_an_unresolved_name_is_one_line_and_code_2(tmp_path: Path, capsys: Output, fields: dict[str, str], line: str) -> None:
    (tmp_path / "shop.py").write_text(SERVICE)
    file = written(tmp_path, **{"queue": '"shop:queue"', "load": '"shop:load"', **fields})
    assert cli.main(["run", str(file), "--runs", str(tmp_path / "runs")], interrupts.Interrupts()) == 2
    said = capsys.readouterr()
    assert said.out == "" and line in said.err
    assert said.err.count("\n") == 1 and not (tmp_path / "runs").exists()


OBJECTS = [
    ("queue", "nothing", "one that can be imported (AttributeError: shop_of_names has no"),
    ("queue", "number", "a Queue or an AsyncQueue (it is a int)"),
    ("load", "lost:load", "one that can be imported (ModuleNotFoundError: No module named 'lost')"),
    ("load", "Shop", "a function or a Locust User (it is the class Shop, which is none)"),
    ("load", "load", ""),
]


@pytest.mark.parametrize(("name", "reference", "wrong"), OBJECTS)
def test_what_an_object_must_be(monkeypatch: Patch, tmp_path: Path, name: str, reference: str, wrong: str) -> None:
    (tmp_path / "shop_of_names.py").write_text(SERVICE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_of_names", raising=False)
    told = names.described(name, reference if ":" in reference else f"shop_of_names:{reference}")
    assert told["wrong"].startswith(wrong) if wrong else told == {"users": False}


EFFECTS = [
    *(("{'a': 1, 'b': 0}", {"a": 1, "b": 0}), ("[('a', 1), ('b', 1), ('a', 2)]", {"a": 3, "b": 1}), ("iter([])", {})),
    *((nonsense, None) for nonsense in ("None", "3", "'abc'", "['ab']", "{'a': True}", "{'a': -1}", "{1: 1}", "[('a',)]")),
]


@pytest.mark.parametrize(("told", "counts"), EFFECTS)
def test_effects_are_added_up_for_a_job(monkeypatch: Patch, tmp_path: Path, told: str, counts: dict[str, int] | None) -> None:
    (tmp_path / "counted.py").write_text(f"def effects():\n    return {told}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "counted", raising=False)
    if counts is None:
        with pytest.raises(TypeError, match="^counted:effects must return ids of jobs with how often each took effect"):
            names.effects("counted:effects")
        return
    assert names.effects("counted:effects") == counts


def test_the_queue_of_a_service_is_made_without_settings_of_the_shell(monkeypatch: Patch, tmp_path: Path) -> None:
    text = 'import os\nfrom engine import Queue\nqueue = Queue("shop", prefix=os.environ.get("IRONCLAIM_PREFIX", "jobs"))\n'
    (tmp_path / "shop_of_shell.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("IRONCLAIM_PREFIX", "of-the-shell")
    with open_queue(read(written(tmp_path, queue='"shop_of_shell:queue"')), "shop", "redis://127.0.0.1:1/0") as queue:
        assert queue.prefix == "jobs"
    assert os.environ["IRONCLAIM_PREFIX"] == "of-the-shell" and "IRONCLAIM_HISTORY_URL" not in os.environ
