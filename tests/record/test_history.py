"""The history file: one schema, written through, and what is left of it when its writer or its disk fails."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.testing import start_guarded
from record import history
from tests.engine.using import refused

ROOT = Path(__file__).parents[2]

WRITER = """
import sys, time
from pathlib import Path
from record.history import HistoryFile
file = HistoryFile(Path(sys.argv[1]), proc="writer", role="worker")
for number in range(1000):
    file.append([f'"kind":"phase","name":"p{number}"'])
print("written", flush=True)
time.sleep(600)
"""


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_names_of_columns_are_unique() -> None:
    for fields in (history.ROW_FIELDS, history.ITEM_FIELDS):
        names = [field.name for field in fields]
        assert len(names) == len(set(names))
        assert all(field.meaning and field.kinds and 1 <= field.since <= history.SCHEMA_VERSION for field in fields)


def test_a_file_opens_counts_and_closes(tmp_path: Path) -> None:
    path, clock_ns = tmp_path / "worker-1.jsonl", iter(range(100, 10_000, 100)).__next__
    file = history.HistoryFile(path, proc="worker-1", role="worker", version="1.2", clock_ns=clock_ns)
    file.append(['"kind":"phase","name":"a"', '"kind":"phase","name":"b"'])
    file.append(['"kind":"fault"'], t_ns=7)
    file.close()
    file.close()
    file.append(['"kind":"phase","name":"after the end"'])
    rows = lines_of(path)
    assert [row["seq"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["kind"] for row in rows] == ["open", "phase", "phase", "fault", "close"]
    assert all((row["v"], row["proc"]) == (history.SCHEMA_VERSION, "worker-1") for row in rows)
    first, *_, fault, last = rows
    assert (first["role"], first["version"], first["pid"], first["boot_id"]) == ("worker", "1.2", os.getpid(), history.boot_id())
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644 & ~mask and fault["t_ns"] == 7 and last["rows"] == 5 and last["recorder_ns"] > 0


def test_each_call_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    file = history.HistoryFile(path, proc="a", role="worker")
    for number in range(5):
        file.append([f'"kind":"phase","name":"{number}"'] * 2)
        assert len(lines_of(path)) == 1 + 2 * (number + 1)
    file.close()


def test_rows_are_whole_and_without_gaps_and_the_closing_row_is_the_last_whoever_still_writes(tmp_path: Path, capfd: Any) -> None:
    """A worker's threads are about while its main thread closes the file."""
    for attempt in range(40):
        path = tmp_path / f"{attempt}.jsonl"
        file = history.HistoryFile(path, proc="a", role="worker")
        closed, going = threading.Event(), threading.Barrier(4)

        def write(file: history.HistoryFile = file, closed: threading.Event = closed, going: threading.Barrier = going) -> None:
            going.wait()
            while not closed.is_set():
                file.append([f'"kind":"phase","detail":"{"x" * 300}"'])

        with ThreadPoolExecutor(3) as threads:
            for _ in range(3):
                threads.submit(write)
            going.wait()
            file.close()
            closed.set()
        loaded = history.load_file(path)
        last, numbers = loaded.rows[-1], [row["seq"] for row in loaded.rows]
        assert last["kind"] == "close" and numbers == list(range(last["rows"])) and not loaded.torn, f"attempt {attempt}"
    assert capfd.readouterr().err == ""


def test_it_survives_the_sigkill_of_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "writer.jsonl"
    child = start_guarded([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None and child.stdout.readline() == b"written\n"
    child.kill()
    assert child.wait() == -signal.SIGKILL
    loaded = history.load_file(path)
    assert not loaded.torn and len(loaded.rows) == 1001
    assert loaded.rows[-1]["kind"] != "close", "the missing closing row tells that it was killed"


def test_a_full_disk_breaks_the_recording_and_nothing_else(capfd: Any) -> None:
    file = history.HistoryFile(Path("/dev/full"), proc="a", role="worker")
    for _ in range(10):
        file.append(['"kind":"phase","name":"p"'])
    file.close()
    assert file.broken
    message = capfd.readouterr().err
    assert message == "history file full: No space left on device; recording stopped, the verdict will be unknown\n"


def test_a_disk_that_fills_up_in_the_middle_of_a_row(tmp_path: Path) -> None:
    """The kernel takes part of a row: no second part follows, and the loader says that the last line is torn."""
    path = tmp_path / "a.jsonl"
    program = """
import resource, signal, sys
from pathlib import Path
from record.history import HistoryFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = HistoryFile(Path(sys.argv[1]), proc="a", role="worker")
for _ in range(50):
    file.append(['"kind":"phase","name":"p"'])
file.close()
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("history file a.jsonl: short write; recording stopped")
    loaded = history.load_file(path)
    assert path.stat().st_size == 1000 and loaded.torn and not loaded.corrupt_lines and loaded.rows


def test_a_file_that_a_child_has_left_alone_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under the number of a standard input that its process was started without."""
    file, closed = history.HistoryFile(tmp_path / "a.jsonl", proc="a", role="worker"), list[int]()
    close = os.close
    monkeypatch.setattr(os, "close", closed.append)
    for end in (file.abandon, file.close, file.abandon):
        end()
    file.append(['"kind":"phase","name":"p"'])
    assert len(closed) == len(lines_of(file.path)) == 1 and file.broken
    close(*closed)
    with monkeypatch.context() as without_input:
        without_input.setattr(os, "open", lambda *of: 0)
        without_input.setattr(os, "write", lambda descriptor, data: len(data))
        for name in ("abandon", "close"):
            getattr(history.HistoryFile(file.path, proc="a", role="worker"), name)()
    assert closed[1:] == [0, 0]


def test_a_file_that_another_writer_has_alone_is_refused_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = history.HistoryFile(tmp_path / "a.jsonl", proc="a", role="worker", alone=True)
    closed, close = list[int](), os.close
    monkeypatch.setattr(os, "close", closed.append)
    refused(BlockingIOError, None, history.HistoryFile, first.path, proc="a", role="worker", alone=True)
    first.close()
    assert len(closed) == len(set(closed)) == 2
    for descriptor in closed:
        close(descriptor)
    history.HistoryFile(first.path, proc="a", role="worker").close()
    assert [(row["kind"], row["seq"]) for row in lines_of(first.path)] == [("open", 0), ("close", 1)] * 2, "a second one shows"


def test_a_file_that_has_ended_asks_for_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """In a forked child another thread of the parent may have it for ever. And two threads may end a file at once."""
    files = [history.HistoryFile(tmp_path / f"{name}.jsonl", proc="a", role="worker") for name in "abc"]
    files[0].abandon()
    monkeypatch.setattr(files[0], "_lock", None)

    class First:
        """Before who asks gets the lock, somebody else ends the file."""

        def __init__(self, file: history.HistoryFile) -> None:
            self.file = file

        def __enter__(self) -> None:
            monkeypatch.setattr(self.file, "_lock", threading.Lock())
            self.file.close()

        def __exit__(self, *of: object) -> None: ...

    for file in files[1:]:
        monkeypatch.setattr(file, "_lock", First(file))
    files[2].close()
    for file in files:
        file.append(['"kind":"phase"'])
        file.close()
    kinds = [[row["kind"] for row in lines_of(file.path)] for file in files]
    assert kinds == [["open"], ["open", "close"], ["open", "close"]] and capfd.readouterr().err == ""


def test_a_machine_without_a_boot_id_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(history.boot_id()) == 36 and history.boot_id() == history.boot_id().strip()
    monkeypatch.setattr(Path, "read_text", lambda path: path.open("no mode"))
    monkeypatch.setattr(Path, "open", lambda path, mode: (_ for _ in ()).throw(OSError(mode)))
    assert history.boot_id() == ""


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_torn_last_line_is_told_apart(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.jsonl", b'{"v":1,"seq":0}\n{"v":1,"seq":1}\n')
    torn = written(tmp_path / "b.jsonl", b'{"v":1,"seq":0}\n{"v":1,"se')
    # Torn exactly before its line end: complete JSON, and yet nobody knows.
    bare = written(tmp_path / "c.jsonl", b'{"v":1,"seq":0}\n{"v":1,"seq":1}')
    empty = written(tmp_path / "d.jsonl", b"")
    loaded = [history.load_file(path) for path in (whole, torn, bare, empty)]
    assert [(file.torn, len(file.rows)) for file in loaded] == [(False, 2), (True, 1), (True, 1), (False, 0)]
    assert not any(file.corrupt_lines for file in loaded)


@pytest.mark.parametrize(
    "line",
    [b"", b"nonsense", b"[1]", b"7", b"{}", b'{"v":"1"}', b"\xff\xfe", b'{"v":null}', b'{"v":1.5}', b"[" * 100_000],
    ids=["empty", "words", "list", "number", "no version", "text version", "no UTF-8", "null", "fraction", "deep"],
)
def test_a_corrupt_line_is_named_and_the_rest_is_read(tmp_path: Path, line: bytes) -> None:
    loaded = history.load_file(written(tmp_path / "a.jsonl", b'{"v":1,"seq":0}\n' + line + b'\n{"v":1,"seq":2}\n'))
    assert loaded.corrupt_lines == (1,) and [row["seq"] for row in loaded.rows] == [0, 2]


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", b'{"v":%d,"seq":0}\n' % (history.SCHEMA_VERSION + 1))
    words = rf"history file a\.jsonl: schema version {history.SCHEMA_VERSION + 1}.* up to {history.SCHEMA_VERSION}"
    refused(history.HistoryError, words, history.load_file, path)


def test_an_older_version_gains_its_missing_columns() -> None:
    row = history.upgrade({"v": 0, "seq": 3, "kind": "open"}, "a.jsonl")
    assert (row["v"], row["seq"], row["kind"], row["srv_us"]) == (0, 3, "open", None)
    assert set(row) >= {field.name for field in history.ROW_FIELDS}


def test_a_file_that_cannot_be_read_or_begun_is_named(tmp_path: Path) -> None:
    refused(OSError, "No such file.*none/a.jsonl", history.HistoryFile, tmp_path / "none/a.jsonl", proc="a", role="worker")
    words = r"^history file none\.jsonl: No such file or directory$"
    refused(history.HistoryError, words, history.load_file, tmp_path / "none.jsonl")


def test_a_folder_is_read_by_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.sink.jsonl", "a.jsonl", "notes.txt"):
        written(tmp_path / name, b'{"v":1,"seq":0}\n')
    assert [file.path.name for file in history.load_folder(tmp_path)] == ["a.jsonl", "a.sink.jsonl", "b.jsonl"]


def test_the_adapter_of_the_original_bull_writes_rows_of_this_schema() -> None:
    assert f"const SCHEMA_VERSION = {history.SCHEMA_VERSION};" in (ROOT / "chaos/interop/node/history.js").read_text()
