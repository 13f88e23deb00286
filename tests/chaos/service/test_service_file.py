"""`chaos.toml`: what it may say, and that each wrong value is one line with field, value and bound, before anything starts."""

import os
from pathlib import Path

import pytest

from chaos import catalogue, cli, errors, interrupts
from chaos.service import names, placeholders
from chaos.service.drill import open_queue
from chaos.service.file import OF_OWN_HANDLERS, read, toml
from reports import slo_file
from tests.given import Output, Patch
from tests.golden import outcome, same

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


#: Field -> values of it that are wrong; the line that says so stands in a text.
WRONG: dict[str, list[str]] = {
    **{"workrs": ["3"], "zz": ["3"], '"a\\nb"': ["3"], "slo": ["3"], "minutes": ["61"], "once": ["true", "1"]},
    **{"queue": ["", '"shop.jobs"'], "load": ["3", '"redis://:hunter2@h"'], "redis_url": ['"redis://:hunter2@h"']},
    **{"enviroment": ["{ TOKEN = 'hunter2' }"], "servers": ["{ ur = 'redis://:hunter2@h' }"], "rate": ["0", "5001", "true"]},
    **{
        "topology": ['"ring"'],
        "durability": ['"always"\ntopology = "sentinel"', "[]"],
        "without_effects": ['"view"', '["view"]'],
    },
    "workers": ["['a --db {rn}/a.db']", "['a {port}']", "[]", "3", "['a \"b']"],
    "apps": ["['a {prt}']", "['a', 'a', 'a', 'a', 'a']"],
    "environment": [
        *("{ TOKEN = '{hunter2}{nme}' }", "{ DB = '{rn}/a.db' }", "'TOKEN=hunter2'", "{ A = 1 }", "{ 'A=B' = 'x' }"),
        *("{ '' = 'x' }", '{ A = "\\u0000" }', "{ IRONCLAIM_HISTORY = '' }"),
    ],
    "faults": [
        *("['worker-kil']", "['worker-kill', 'primary-kill']", "['worker-oom']", "['worker-kill', 'worker-kill']"),
        '"worker-kill"',
    ],
}


def test_a_wrong_value_is_one_line_with_field_value_and_bound(tmp_path: Path) -> None:
    wrong = [(field, value) for field, values in WRONG.items() for value in values]
    told = [f"{field} = {value!r}: {outcome(read, written(tmp_path, **{field: value}))}\n" for field, value in wrong]
    assert all(": HarnessError: chaos.toml: " in line and line.count("\n") == 1 for line in told)
    same("chaos/wrong_services.txt", "".join(told))


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


#: Fields, and what they name in a module `shop_of_names`; what is wrong with it stands in a text.
OBJECTS = (("queue", "nothing"), ("queue", "number"), ("load", "Shop"), ("load", "load"))


def test_what_an_object_must_be(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "shop_of_names.py").write_text(SERVICE)
    monkeypatch.syspath_prepend(tmp_path)
    named = [*((name, f"shop_of_names:{one}") for name, one in OBJECTS), ("load", "lost:load")]
    told = [f"{name} = {one}: {names.described(name, one)}\n" for name, one in named]
    same("chaos/objects.txt", "".join(told).replace(str(tmp_path), "FOLDER"))


EFFECTS = (
    *("{'a': 1, 'b': 0}", "[('a', 1), ('b', 1), ('a', 2)]", "iter([])"),
    *("None", "3", "'abc'", "['ab']", "{'a': True}", "{'a': -1}", "{1: 1}", "[('a',)]"),
)


def test_effects_are_added_up_for_a_job(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text("".join(f"def of_{at}():\n    return {one}\n" for at, one in enumerate(EFFECTS)))
    monkeypatch.syspath_prepend(tmp_path)
    same("chaos/effects.txt", "".join(f"{one}: {outcome(names.effects, f'counted:of_{at}')}\n" for at, one in enumerate(EFFECTS)))


def test_the_queue_of_a_service_is_made_without_settings_of_the_shell(monkeypatch: Patch, tmp_path: Path) -> None:
    text = 'import os\nfrom engine import Queue\nqueue = Queue("shop", prefix=os.environ.get("IRONCLAIM_PREFIX", "jobs"))\n'
    (tmp_path / "shop_of_shell.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("IRONCLAIM_PREFIX", "of-the-shell")
    with open_queue(read(written(tmp_path, queue='"shop_of_shell:queue"')), "shop", "redis://127.0.0.1:1/0") as queue:
        assert queue.prefix == "jobs"
    assert os.environ["IRONCLAIM_PREFIX"] == "of-the-shell" and "IRONCLAIM_HISTORY_URL" not in os.environ
