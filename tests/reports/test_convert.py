"""From JSON lines to Parquet: nothing is lost, nothing is made up, and what cannot be read is counted."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from record.history import SCHEMA_VERSION
from reports import convert, errors, hosts

BASE = {"v": SCHEMA_VERSION, "proc": "w", "t_ns": 1}


def line(seq: int, **columns: Any) -> bytes:
    return json.dumps({**BASE, "seq": seq, **columns}).encode() + b"\n"


def call(seq: int, op: str, kind: str, *jobs: str, f: str = "claim", **columns: Any) -> bytes:
    items = [{"job": job, "fence": 2**53 + 1} for job in jobs]
    return line(seq, kind="operation", f=f, op=op, type=kind, items=items, **columns)


def converted(folder: Path, content: bytes) -> tuple[convert.Converted, list[dict[str, Any]]]:
    """What a history file of this content becomes, and its events."""
    (folder / "history").mkdir(exist_ok=True)
    file = folder / "history" / "w.jsonl"
    file.write_bytes(content)
    ((made, _),) = convert.convert(folder, [file])
    return made, pq.read_table(made.events).to_pylist()


def seen(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(event["type"], event["op"], event["item"]["job"], event["position"]) for event in events]


def test_an_operation_is_there_once_as_its_answer_or_as_what_was_not_answered(tmp_path: Path) -> None:
    content = b"".join(
        [
            line(0, kind="open"),
            call(1, "a", "invoke", "j1", "j2"),
            call(2, "b", "invoke", "j3"),
            call(3, "c", "invoke", "j4"),
            call(4, "a", "ok", "j2"),
            call(5, "b", "fail", "j9"),
            line(6, kind="close"),
        ]
    )
    _, events = converted(tmp_path, content)
    unanswered = [("invoke", "a", "j1", 0), ("invoke", "c", "j4", 0)]
    assert sorted(seen(events)) == [("fail", "b", "j9", 0), *unanswered, ("ok", "a", "j2", 0)]
    assert {event["item"]["fence"] for event in events} == {2**53 + 1}


@pytest.mark.slow
def test_the_answer_may_come_much_later_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one or two lines, and lines that are longer than a block."""
    monkeypatch.setattr(convert, "BLOCK_BYTES", 150)
    lines = [call(number, f"o{number}", "invoke", f"j{number}") for number in range(40)]
    lines += [call(40 + number, f"o{number}", "ok", f"j{number}") for number in range(39)]
    made, events = converted(tmp_path, b"".join(lines))
    assert sorted(seen(events)) == sorted([("ok", f"o{n}", f"j{n}", 0) for n in range(39)] + [("invoke", "o39", "j39", 0)])
    collected = made.collected()
    assert collected is not None
    assert (collected.facts.rows, collected.facts.corrupt, collected.facts.seq_sum) == (79, 0, 78 * 79 // 2)


def test_an_event_has_the_replid_of_the_last_connection_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "BLOCK_BYTES", 300)
    lines = [call(0, "a", "ok", "j0"), line(1, kind="connection", replid="r1")]
    lines += [call(number, f"a{number}", "ok", f"j{number}") for number in range(2, 6)]
    lines += [line(6, kind="connection", replid="r2"), call(7, "z", "ok", "j7")]
    _, events = converted(tmp_path, b"".join(lines))
    assert {event["item"]["job"]: event["replid"] for event in events} == {
        "j0": None,
        **{f"j{number}": "r1" for number in range(2, 6)},
        "j7": "r2",
    }


ODD_LINES = [
    *(b"[1]", b"7", b"{", b'{"v": 7, "seq": "one"}', b'{"v": 7} {"v": 7}', b'{"v": 7, "seq": 99999999999999999999}'),
    *(b'{"v": 7, "items": [{"fence": "x"}]}', b'{"seq": 1}'),
]


@pytest.mark.parametrize("odd", ODD_LINES)
def test_a_line_that_is_no_row_is_counted_and_the_others_are_read(odd: bytes, tmp_path: Path) -> None:
    content = b"".join([line(0, kind="open"), odd + b"\n", b"\n", call(2, "a", "ok", "j"), line(3, kind="close", rows=4)])
    made, events = converted(tmp_path, content)
    collected = made.collected()
    assert collected is not None
    assert (collected.facts.rows, collected.facts.corrupt, collected.facts.close_rows) == (4, 1, 4)
    assert seen(events) == [("ok", "a", "j", 0)]


def test_a_line_that_was_cut_off_is_told_apart(tmp_path: Path) -> None:
    made, _ = converted(tmp_path, line(0, kind="open") + line(1, kind="clock")[:-9])
    collected = made.collected()
    assert collected is not None
    assert (collected.facts.torn, collected.facts.torn_corrupt, collected.facts.corrupt) == (True, True, 1)


def test_a_newer_version_is_recognized_in_rows_that_cannot_be_read(tmp_path: Path) -> None:
    made, _ = converted(tmp_path, b'{"v": 99, "seq": {"of": 1}}\n')
    collected = made.collected()
    assert collected is not None and collected.facts.version_max == 99


def test_a_file_is_converted_again_only_when_it_has_changed(tmp_path: Path) -> None:
    made, _ = converted(tmp_path, call(0, "a", "ok", "j1"))
    begun: list[int] = []
    file, before = tmp_path / "history" / "w.jsonl", made.events.stat().st_mtime_ns
    convert.convert(tmp_path, [file], begun.append)
    assert (begun, made.events.stat().st_mtime_ns) == ([], before)
    file.write_bytes(call(0, "a", "ok", "j2"))
    os.utime(file, ns=(0, 0))
    convert.convert(tmp_path, [file], begun.append)
    assert begun == [file.stat().st_size]
    assert seen(pq.read_table(made.events).to_pylist()) == [("ok", "a", "j2", 0)]


def test_a_file_is_converted_again_when_the_clock_of_its_host_is_known_better(tmp_path: Path) -> None:
    made, _ = converted(tmp_path, call(0, "a", "ok", "j1", done_ns=50))
    begun: list[int] = []
    file = tmp_path / "history" / "w.jsonl"
    for shift_ns, times in ((7, 1), (7, 1), (8, 2)):
        away = hosts.Host("there", "there", (file.name,), at_ns=(1, 9), shifts_ns=(shift_ns, shift_ns))
        ((_, collected),) = convert.convert(tmp_path, [file], begun.append, [away])
        (event,) = pq.read_table(made.events).to_pylist()
        assert (event["done_ns"], event["t_ns"], collected.facts.last_ns) == (50 + shift_ns, 1 + shift_ns, 1 + shift_ns)
        assert len(begun) == times


def test_rows_about_channels_keep_their_items(tmp_path: Path) -> None:
    content = line(0, kind="operation", f="fetch", type="ok", op="a", channel="c", items=[{"message": "m"}])
    made, events = converted(tmp_path, content)
    (row,) = pq.read_table(made.rows).to_pylist()
    assert (events, [item["message"] for item in row["items"]], row["readable"]) == ([], ["m"], True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "parquet").write_text("in the way")
    with pytest.raises(errors.JudgeError, match=f"the history of {tmp_path.name} cannot be converted"):
        converted(tmp_path, line(0, kind="open"))
