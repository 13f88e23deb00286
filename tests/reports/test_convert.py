"""From JSON lines to Parquet: nothing is lost, nothing is made up, and what cannot be read is counted."""

import json
import os
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from record.history import SCHEMA_VERSION
from reports import convert, errors, hosts
from reports.file_facts import FileFacts, plain
from tests.golden import same
from tests.reports.test_corruptions import channels, jobs

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
    content = [line(0, kind="open"), call(1, "a", "invoke", "j1", "j2"), call(2, "b", "invoke", "j3")]
    content += [call(3, "c", "invoke", "j4"), call(4, "a", "ok", "j2"), call(5, "b", "fail", "j9"), line(6, kind="close")]
    _, events = converted(tmp_path, b"".join(content))
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
    later = {f"j{number}": "r1" for number in range(2, 6)}
    assert {event["item"]["job"]: event["replid"] for event in events} == {"j0": None, **later, "j7": "r2"}


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


S = 1_000_000_000


#: What may succeed, and what H2 looks for.
ANSWERED = ("enqueue created", "enqueue repeated", "claim leased", "claim repeated", "finish ok", "finish stale", "extend ok")
ANSWERED += ("publish created", "fetch ok", "acknowledge OK", "handle x")

TOKEN = {"job": "j", "fence": 1, "nonce": "n:1"}
CALL = {"kind": "operation", "type": "ok", "op": "a", "first_send_ns": S, "done_ns": 2 * S, "srv_us": 1}
CLAIM = {**CALL, "f": "claim"}
OPEN, CLOSE = {"kind": "open", "boot_id": "b"}, {"kind": "close", "rows": 2, "recorder_ns": 1}

#: Rows of files that are not as they must be, or that have a thing once.
ODD: dict[str, list[dict[str, Any]]] = {
    **{f"{f} {result}": [{**CALL, "f": f, "result": result, "items": [{**TOKEN, "result": result}]}]
       for f, result in (one.split() for one in ANSWERED)},
    "claims": [{**CLAIM, "incarnation": "i", "lease_ms": 9, "type": kind, "items": []} for kind in ("invoke", "invoke", "info")],
    "answered": [{**CLAIM, "op": op, "type": kind} for op in "ab" for kind in ("invoke", "ok" if op == "a" else "fail")],
    "nameless": [{**CLAIM, **change} for change in ({"op": None}, {"f": None}, {"type": "x"}, {"f": "y"})],
    "disordered": [{**CLAIM, "t_ns": 9 * S, **times} for times in (
        {}, *({"last_send_ns": at_s * S} for at_s in (0, 1, 3)), {"done_ns": 10 * S},
    )],
    "late": [*({**CALL, "f": "enqueue", "intended_ns": S - ms * 10**6} for ms in (49, 50, 99, 100)), {**CALL, "f": "publish"}],
    "refused": [{**CLAIM, "errors": errors} for errors in (["OOM x", "", "READONLY y", "X"], [])],
    "tokenless": [{**CLAIM, "items": [{"job": "j", "result": "leased"}]}, {"kind": "effect", "items": [{"job": "j"}]}],
    "timeless": [{"kind": kind, "srv_us": at, "items": [TOKEN]} for kind, at in (("final", 1), ("final", None), ("fault", 1))],
    "back": [{"kind": "clock", "t_ns": at_s * S} for at_s in (9, *[5] * 1_022, 9, 7, 8)],
    "unknown": [{"kind": "x"}, {"kind": "connection", "replid": "r", "t_ns": 3}, {"kind": "offset", "srv_us": 1}],
    "twice": [OPEN, CLOSE, {"kind": "close", "rows": 1}],
}  # fmt: skip


def odd(folder: Path) -> Path:
    """A folder of these files, and some that are torn or corrupt."""
    (folder / "history").mkdir(parents=True)
    contents = {name: b"".join(line(at, **row) for at, row in enumerate(rows)) for name, rows in ODD.items()}
    whole = line(0, **OPEN) + line(1, **CLOSE)
    contents |= {"empty": b"", "begun": line(3, kind="open", v=1), "bare": whole[:-1]}
    contents |= {"corrupt": whole + b"{\n[]\n", "torn": whole + b'{"v'}
    for name, content in contents.items():
        (folder / "history" / f"{name}.jsonl").write_bytes(content)
    return folder


def brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 90 else f"{len(value)} {text[:60]} {zlib.crc32(text.encode()):08x}"


def test_the_facts_of_files_are_as_ever_and_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Those that are not as of a file of which nothing is known; what a run tells of all of them together."""
    lines, nothing = list[str](), vars_of(FileFacts(""))
    for run in (jobs(tmp_path / "jobs"), channels(tmp_path / "channels"), odd(tmp_path / "odd")):
        files = sorted((run / "history").iterdir())
        found = [collected for _, collected in convert.convert(run, files)]
        assert [collected for _, collected in convert.convert(run, files)] == found
        for one in found:
            known = {name: value for name, value in vars_of(one.facts).items() if value != nothing[name]}
            rare = [[row["kind"], row["item_count"], len(row.get("items", ()))] for row in one.rare]
            known |= {"rare": rare, "incarnations": one.incarnations, "replids": one.replids, "leases": one.leases_ms}
            lines += [f"{run.name}/{known.pop('name')}", *(f"  {name} {brief(value)}" for name, value in known.items() if value)]
    same("reports/facts.txt", "\n".join([*lines, ""]))


def vars_of(facts: FileFacts) -> dict[str, Any]:
    """The facts as JSON has them."""
    return {name: plain(value) for name, value in asdict(facts).items()}


def test_rows_about_channels_keep_their_items(tmp_path: Path) -> None:
    content = line(0, kind="operation", f="fetch", type="ok", op="a", channel="c", items=[{"message": "m"}])
    made, events = converted(tmp_path, content)
    (row,) = pq.read_table(made.rows).to_pylist()
    assert (events, [item["message"] for item in row["items"]], row["readable"]) == ([], ["m"], True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "parquet").write_text("in the way")
    with pytest.raises(errors.JudgeError, match=f"the history of {tmp_path.name} cannot be converted"):
        converted(tmp_path, line(0, kind="open"))
