"""Secrets of a service: in nothing that the harness prints or stores, whatever the service's processes say of them."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from chaos import errors, processes
from chaos.service.file import ServiceFile, read
from chaos.service.known import resolved
from chaos.service.secrets import LENGTH_LEAST, secrets_of
from engine import Handlers, Queue, Worker
from record.history import HistoryFile
from record.recorder import Recorder
from tests.chaos.service.service import crew_of
from tests.engine.helpers.marks import DSN, MARK, URL

TOKEN = f"{MARK}/ü '\"\n{MARK}-2"
MORE = f"""
[environment]
TOKEN = "{MARK} +ü 'x'"
LINES = '''
{MARK}-begin
{MARK}-end'''
SHOP_DB = "{{run}}/{MARK}.db"
BANK = "postgresql://u:{quote(MARK + "#?")}@bank/db"
SHORT = "on"
"""

#: Raises a text with all that the service has been told, and the password of its queue.
BROKEN = """
import os
from engine import Queue
queue = Queue("shop", url="redis://:{mark}%20pw@127.0.0.1:1/0")
def load(seed):
    yield "work", {{}}
def __getattr__(name):
    if name == "broken":
        raise RuntimeError(" ".join(os.environ[one] for one in ("TOKEN", "LINES", "BANK", "SHORT")) + "\\n{mark} pw")
    raise AttributeError(name)
"""


def written(folder: Path, more: str = MORE, **fields: str) -> Path:
    file = folder / "chaos.toml"
    (folder / "shop.py").write_text(BROKEN.format(mark=MARK))
    given = {"queue": '"shop:queue"', "load": '"shop:load"', "rate": "1", **fields}
    file.write_text("".join(f"{name} = {value}\n" for name, value in given.items()) + more)
    return file


def test_a_secret_with_doubled_braces_is_hidden_as_processes_are_told_it() -> None:
    assert secrets_of({"TOKEN": "ab{{cd}}ef"}).hide("it is ab{cd}ef") == "it is $TOKEN"


def test_secrets_are_found_as_texts_spell_them_and_short_values_are_left() -> None:
    secrets = secrets_of({"TOKEN": TOKEN, "MODE": "on", "DB": f"{{run}}/{MARK}.db"}, [URL, DSN], [f"{MARK} of a client"])
    for said in (TOKEN, repr(TOKEN), quote(TOKEN), TOKEN.splitlines()[1], URL, DSN, f"/runs/7/{MARK}.db", f"{MARK} of a client"):
        assert MARK not in secrets.hide(f"it says {said} and goes on"), said
    assert secrets.hide(f"[{TOKEN}] is on") == "[$TOKEN] is on" and len("on") < LENGTH_LEAST
    assert secrets.hide(f"bad password {MARK}") == "bad password ***" and MARK not in repr(secrets)


def test_no_line_about_a_name_that_cannot_be_imported_has_a_secret(tmp_path: Path) -> None:
    for field in ("load", "effects"):
        with pytest.raises(errors.HarnessError, match="it must be one that can be imported") as caught:
            resolved(read(written(tmp_path, **{field: '"shop:broken"'})))
        assert MARK not in str(caught.value) and "$TOKEN" in str(caught.value) and " on" in str(caught.value)
    known = resolved(read(written(tmp_path)))
    assert f"{MARK} pw" in known.service.passwords and MARK not in f"{known!r} {known.queue}"


#: What stands in a field by mistake.
MISTAKES = (
    f'"{URL}"', f'"{DSN}"', f'["{URL}"]', f'{{ TOKEN = "{MARK}" }}', f'[{{ TOKEN = "{MARK}" }}]',
    f'{{ "{URL}" = 1 }}', f'["\\"{URL}"]',
)  # fmt: skip


def test_no_line_about_a_wrong_file_has_a_secret(tmp_path: Path) -> None:
    refused = 0
    names = [*ServiceFile.__dataclass_fields__, "enviroment", "[sl]\nenvironment", "a.b"]
    for name in names:
        for value in MISTAKES:
            try:
                read(written(tmp_path, "", **{name: value}))
            except errors.HarnessError as error:
                refused += 1
                assert MARK not in str(error), (name, value)
    assert refused > 0.8 * len(names) * len(MISTAKES)


def test_no_word_of_a_process_that_ends_has_a_secret_and_its_log_has_none_afterwards(tmp_path: Path) -> None:
    words = f"sh -c 'echo \"$LINES\"; echo $BANK; echo {URL}; echo it ended with $TOKEN; exit 3'"
    service = read(written(tmp_path, workers=f"['''{words}''']"))
    crew = crew_of(tmp_path, service)
    child = crew.start_worker("worker-1")
    child.process.wait(120)
    assert crew.unplanned_exits() == [child]
    assert child.ending() == "worker-1: exit code 3 (it ended with $TOKEN)"
    assert MARK in child.log.read_text() and MARK not in processes.last_line(child.log, crew.hide)
    service.secrets.hide_in(child.log)
    said = child.log.read_text()
    shown = ["$LINES", "$LINES", "$BANK", "redis://***@10.255.255.1:6379/0", "it ended with $TOKEN"]
    assert MARK not in said and said.splitlines() == shown
    assert [path.name for path in child.log.parent.iterdir()] == [child.log.name]
    crew.watch.close()
    crew.manifest.close()


def test_a_history_of_a_service_has_the_types_of_errors_alone(ironclaim_url: str, tmp_path: Path) -> None:
    for private in (False, True):
        file = HistoryFile(tmp_path / f"worker-{private}.jsonl", proc=f"worker-{private}", role="worker")
        handlers = Handlers()

        @handlers("fail")
        def fail(job: Any) -> None:
            raise LookupError(f"no card {job.payload['card']}")

        with Queue(f"q{private}", url=ironclaim_url, observer=Recorder(file, queue="q", private=private)) as queue:
            queue.enqueue("fail", {"card": MARK}, attempts=2, backoff_ms=0)
            Worker(queue, handlers, sweep_ms=50).run(burst=True)
        file.close()
        said = (tmp_path / f"worker-{private}.jsonl").read_text()
        assert (MARK in said) is not private
        assert said.count('"error":"LookupError"') == (0 if not private else said.count('"error":"'))
    assert said.count('"error":"LookupError"') >= 4
