"""The rows that prove a violation: found in the files, with file and line, in order of time."""

import json
from pathlib import Path
from typing import Any

import pytest

from reports import evidence
from reports.evidence import HITS_MAX, ROWS_MAX, chosen, names_in, printed, search
from reports.facts import Phase, Process, Run
from tests.reports.channel_story import ChannelStory
from tests.reports.good_channels import healthy as healthy_channels
from tests.reports.good_run import healthy
from tests.reports.story import BASE_NS, Story

WORKERS = tuple(Process(f"worker-{number}", "worker", "") for number in (1, 2, 3))
FACTS = Run(spec={}, files={}, processes=WORKERS, phases=(Phase("lead-in", BASE_NS),))


def decided(*found: tuple[str, str, str], verdict: str = "violated") -> dict[str, Any]:
    """A verdict with examples: (check, subject, rest of the sentence)."""
    checks: dict[str, dict[str, Any]] = {}
    for check, subject, rest in found:
        empty = {"id": check, "verdict": verdict, "examples": [], "subjects": [], "violations": 0, "evidence": []}
        entry = checks.setdefault(check, empty)
        entry["examples"].append(f"{subject} {rest}")
        entry["subjects"].append(subject)
        entry["violations"] += 1
    return {"checks": list(checks.values())}


def gathered(run: Path, *found: tuple[str, str, str], facts: Run = FACTS, **more: Any) -> list[dict[str, Any]]:
    return evidence.gather(run, decided(*found, **more), facts, BASE_NS)["violations"]


def doubled(folder: Path) -> tuple[Story, str]:
    """A valid run with one job that two workers hold; and the sentence of the check about it."""
    story = healthy(folder)
    first = story.handled("worker-1", "twice", 40.1, enqueued=40.0, took=1.0)
    second = story.claim("worker-3", "twice", 40.2)
    story.end("finish", second, at=40.4)
    story.end("finish", first, at=41.2, reply=None)
    sentence = f"claim {second.fence}/{second.nonce} by worker-3 while {first.fence}/{first.nonce} by worker-1 was held"
    return story, sentence


def row_at(run: Path, line: dict[str, Any]) -> dict[str, Any]:
    """The row that a line of evidence points to."""
    return json.loads((run / "history" / line["file"]).read_text().splitlines()[line["line"] - 1])


def test_the_rows_of_a_job_come_with_file_and_line_in_order_of_time(tmp_path: Path) -> None:
    story, sentence = doubled(tmp_path / "run")
    run = story.write()
    (one,) = gathered(run, ("J1", "twice", sentence))
    told = [(line["what"], line["answer"], line["process"], line["at_s"], line["named"]) for line in one["rows"]]
    assert told == [
        *(("enqueue", "created", "producer-1", 40.0, False), ("claim", "leased", "worker-1", 40.1, True)),
        *(("handle", "ok", "worker-1", 40.11, True), ("claim", "leased", "worker-3", 40.2, True)),
        *(("finish", "ok, finished", "worker-3", 40.4, True), ("finish", "no answer", "worker-1", 41.2, True)),
    ]
    assert (one["check"], one["level"], one["note"], one["left_out"]) == ("J1", "violated", "", 0)
    for line in one["rows"]:
        row = row_at(run, line)
        assert (row["f"], row["proc"]) == (line["what"], line["process"])
        assert row["type"] == ("invoke" if line["answer"] == "no answer" else "ok")
    assert one["rows"][3]["done_s"] == pytest.approx(40.201) and one["rows"][3]["about"] in sentence


def test_lines_are_counted_over_corrupt_ones_and_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a row does not do: lines may be missing, or no rows."""
    story, sentence = doubled(tmp_path / "run")
    run = story.write()
    file = run / "history" / "worker-1.jsonl"
    file.write_bytes(b'not a row about "twice"\n\n' + file.read_bytes() + b'{"torn":"twice"')
    monkeypatch.setattr(evidence, "BLOCK_BYTES", 100)
    (one,) = gathered(run, ("J1", "twice", sentence))
    own = [line for line in one["rows"] if line["file"] == file.name]
    assert len(own) == 3 and all(row_at(run, line)["items"][0]["job"] == "twice" for line in own)


def test_a_violation_of_the_whole_run_says_that_no_row_names_it(tmp_path: Path) -> None:
    (one,) = gathered(healthy(tmp_path / "run").write(), ("J19", "every delayed job", "started 3 ms late"))
    assert one["rows"] == [] and one["note"].startswith("no row is about it alone")


def test_a_violation_by_a_process_shows_its_last_rows(run: Path) -> None:
    (one,) = gathered(run, ("J13", "worker-3", "claimed nothing for 9 s"))
    last = len((run / "history" / "worker-3.jsonl").read_text().splitlines())
    assert [line["line"] for line in one["rows"]] == list(range(last - evidence.LAST_ROWS + 1, last + 1))
    assert one["rows"][-1]["what"] == "close" and "last rows" in one["note"]


def test_other_jobs_of_the_sentence_are_shown_too(story: Story) -> None:
    story.life("worker-1", "old-1", 39.0)
    story.life("worker-1", "new-1", 39.5)
    (one,) = gathered(story.write(), ("J9", "new-1", "was claimed by worker-1 while old-1 waited"))
    assert {line["job"] for line in one["rows"]} == {"old-1", "new-1"}
    assert all(line["named"] == (line["job"] == "old-1") for line in one["rows"])
    assert {line.split()[5] for line in printed(one["rows"]) if " claim " in line} == {"old-1", "new-1"}


def test_a_name_with_characters_that_json_escapes_is_found(story: Story) -> None:
    story.life("worker-1", 'jöb "1"\\', 39.0)
    run = story.write()
    with (run / "history" / "worker-3.jsonl").open("a") as file:
        row = {"kind": "operation", "f": "claim", "type": "ok", "proc": "node", "t_ns": BASE_NS, "items": [{"job": 'jöb "1"\\'}]}
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    (one,) = gathered(run, ("J4", 'jöb "1"\\', "was lost"))
    assert {line["process"] for line in one["rows"]} == {"producer-1", "worker-1", "node"}


def test_evidence_of_a_common_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"job":"email"}\n' * (HITS_MAX + 1) + '{"job":"x"}\n')
    found = search([file], ["email", "x"], ["job"])
    assert found["email"].common and not found["x"].common
    assert [hit.line for hit in found["x"].hits] == [HITS_MAX + 2]


def test_many_violations_bound_the_names_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first example of each check comes before the second of any."""
    monkeypatch.setattr(evidence, "NAMES_MAX", 2)
    run = healthy(tmp_path / "run").write()
    found = gathered(run, ("J1", "quiet-0", "x"), ("J1", "quiet-1", "x"), ("J4", "quiet-2", "x"))
    assert [(one["check"], one["subject"], bool(one["rows"])) for one in found] == [
        *(("J1", "quiet-0", True), ("J4", "quiet-2", True), ("J1", "quiet-1", False))
    ]
    assert "not searched for" in found[2]["note"]


def test_violated_checks_come_before_unknown_ones_and_valid_ones_have_none(tmp_path: Path) -> None:
    verdict = decided(("J4", "quiet-0", "may be lost"), verdict="unknown")
    verdict["checks"] += decided(("J1", "k1", "overlaps"))["checks"] + decided(("J8", "z1", "early"), verdict="valid")["checks"]
    found = evidence.gather(healthy(tmp_path / "run").write(), verdict, FACTS, BASE_NS)["violations"]
    assert [(one["check"], one["level"]) for one in found] == [("J1", "violated"), ("J4", "unknown")]


def test_many_rows_are_cut_to_those_around_the_named_ones() -> None:
    lines = [{"at_s": float(at), "named": at == 70} for at in range(100)]
    kept = [line["at_s"] for line in chosen(lines)]
    assert len(kept) == ROWS_MAX and 70.0 in kept and kept == sorted(kept)
    assert (min(kept), max(kept)) == (50.0, 89.0) or (min(kept), max(kept)) == (51.0, 90.0)
    assert [line["at_s"] for line in chosen([{**line, "named": False} for line in lines], 4)] == [0.0, 1.0, 98.0, 99.0]


def test_names_of_a_sentence_are_no_numbers_no_words_and_no_processes() -> None:
    sentence = "was claimed as 17000/abc:1 by worker-1 for 300 ms, while job-17, x_1 and 9.5 waited"
    assert names_in(sentence, frozenset({"worker-1"})) == ["job-17", "x_1"]


def test_the_verdict_holds_the_first_violation_of_each_violated_check(tmp_path: Path) -> None:
    story, sentence = doubled(tmp_path / "run")
    run, said = story.write(), list[str]()
    verdict = decided(("J1", "twice", sentence), ("J1", "quiet-0", "x"))
    evidence.collect(run, verdict, FACTS, said.append)
    (check,) = verdict["checks"]
    assert said == [] and len(check["evidence"]) == 6 and len(evidence.read(run)) == 2
    place, second, unit, *rest = check["evidence"][1].split()
    assert (place.partition(":")[0], second, unit, rest[:2]) == ("worker-1.jsonl", "40.100", "s", ["claim", "leased"])
    assert len({line.index(" s  ") for line in check["evidence"]}) == 1, "columns are aligned"


def test_evidence_that_cannot_be_had_is_one_line_and_changes_nothing(run: Path) -> None:
    (run / "evidence.json.new").symlink_to("/dev/full")
    verdict, said = decided(("J1", "quiet-0", "x")), list[str]()
    evidence.collect(run, verdict, FACTS, said.append)
    cannot = "evidence.json of run cannot be written: No space left on device"
    assert said == [f"judge: the evidence of run cannot be written: JudgeError: {cannot}"]
    assert (verdict["checks"][0]["evidence"], evidence.read(run)) == ([], [])


def test_no_lines_print_as_nothing() -> None:
    assert printed([]) == []


@pytest.fixture
def channels(tmp_path: Path) -> ChannelStory:
    return healthy_channels(tmp_path / "run")


def test_a_message_that_a_subscriber_never_got_comes_with_its_publish_and_the_subscribers_calls(channels: ChannelStory) -> None:
    facts = Run({"model": "dsps"}, {})
    rest = "never got k2, which was published while it was subscribed"
    (one,) = gathered(channels.write(), ("P1", "wrap-kill/reader", rest), facts=facts)
    named = [(line["what"], line["process"], line["about"].split()[0]) for line in one["rows"] if line["named"]]
    fetched = [("fetch", "subscriber-1", "k2"), ("fetch", "subscriber-3", "k2")]
    assert [one for one in named if one[0] != "handed"] == [("publish", "publisher-1", "k2"), *fetched]
    assert {"subscribe", "acknowledge"} <= {line["what"] for line in one["rows"] if not line["named"]}


def test_a_violation_of_a_channel_shows_the_messages_that_its_sentence_names(channels: ChannelStory) -> None:
    (one,) = gathered(channels.write(), ("P4", "wrap-kill", "gave one clock to k2 and k3"), facts=Run({"model": "dsps"}, {}))
    assert {line["about"].split()[0] for line in one["rows"]} == {"k2", "k3"}
    assert all(line["named"] for line in one["rows"])
