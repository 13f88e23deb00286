"""What each kind of corruption makes of a run that has all that they need: of jobs, and of channels. Whether the judge sees
them is told by the nightly tests of the corruptor."""

import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.models.dsps import CLOCK_MAX, clock_ahead
from reports.corrupt import command
from reports.corrupt.command import corrupt, render
from reports.corrupt.history import History
from reports.corrupt.kinds import CHANNEL_KINDS, KINDS
from reports.errors import JudgeError
from tests.given import Patch
from tests.golden import same
from tests.reports import good_channels
from tests.reports.channel_story import ChannelStory
from tests.reports.good_channels import P1, S2
from tests.reports.good_run import healthy
from tests.reports.story import Story, crc_of, srv_ms

#: More rows of one file than these are told by their sum.
ROWS_MAX = 40

#: The numbers of rows, and what each machine has of its own.
OWN = re.compile(r'("(?:seq|pid|recorder_ns)":)\d+|("(?:host|boot_id)":")(?!another-host)[^"]+')

CLAIMED = {"class": "email", "lane": "email", "name": "email", "priority": 5, "attempts": 3, "failures": 0, "crashes": 0}


def plain(story: Story, worker: str, job: str, at: float, **more: Any) -> None:
    """A job that goes well, whose result is told, and that is listed at the end."""
    story.enqueue(job, at, attempts=3)
    token = story.claim(worker, job, at + 0.01, told={**CLAIMED, "claims": 1, **more})
    story.start(token, at + 0.012, took=0.02)
    story.effect(token, at + 0.031)
    story.end("finish", token, at=at + 0.035, left="done", result_crc=crc_of(f"of {job}"))


def refusals(story: Story) -> None:
    """One that came while its holder had only begun, was about to end or had ended proves nothing."""
    for holder, sent, took in (("held", 43.9, 0.001), ("racing", 44.9, 0.001), ("new", 46.0, 0.05)):
        story.enqueue(holder, sent, took=took, unique=holder)
        story.run("worker-1", holder, sent + 0.3)
    for away, holder, sent in (("sure", "held", 44.0), ("a", "racing", 45.2595), ("b", "racing", 45.4), ("c", "new", 46.02)):
        story.enqueue(away, sent, unique=holder, result="duplicate", holder=holder)


def ticks(story: Story, *times: int) -> None:
    for at in times:
        item = {"job": f"cron:beat:{1_000 + at}", "schedule": "beat", "tick_ms": srv_ms(at), "result": "created"}
        story.operation("worker-1", "tick", at, [item])


def jobs(folder: Path) -> Path:
    """A run with jobs before and after its faults, failures, refused keys, ticks, results, limits and a consumer."""
    story = healthy(folder)
    story.spec |= {"pickup_bound_ms": 500, "concurrency": 2}
    story.spec["limits"] = [{"name": "rated", "rate": 2}, {"key": "tenant", "concurrency": 1}]
    story.process("consumer-1", "worker")
    for number in range(12):
        plain(story, "worker-1", f"early-{number:02}", 1.0 + number / 5)
    for number in range(75):
        worker = ("worker-1", "worker-3", "worker-4", "consumer-1")[number % 4]
        plain(story, worker, f"calm-{number:02}", 42.0 + number / 10)
    for number in range(7):
        at, job = 42.05 + number, f"failed-{number}"
        story.enqueue(job, at, attempts=3)
        for claims in (1, 2):
            token = story.claim("worker-1", job, at + claims / 10, told={**CLAIMED, "claims": claims, "failures": claims - 1})
            story.start(token, at + claims / 10 + 0.01, took=0.01, end="ok" if claims == 2 else "fail")
            more: dict[str, Any] = {"delay_ms": 50} if claims == 1 else {"result_crc": 1}
            story.end("finish" if claims == 2 else "retry", token, at=at + claims / 10 + 0.03, **more)
    refusals(story)
    ticks(story, 8, 9, *range(45, 49))
    story.extend(story.leased("worker-1", "long", 46.0), 46.5)
    for number in range(4):
        story.life("worker-3", f"read-{number}", 47.0 + number)
        story.read(f"read-{number}", 48.0 + number, result_crc=number)
    # So many turns of its class that a lane without one has starved.
    story.operation("worker-3", "claim", 58.0, [{"job": f"many-{number}", **CLAIMED} for number in range(160)])
    story.row("worker-3", "offset", 59.0, first_send_ns=1, done_ns=2, srv_us=3)
    return story.write()


def channels(folder: Path) -> Path:
    """A run with a channel of its own for each edit, on both sides of the wrap, and some with three subscribers."""
    story = ChannelStory(folder)
    good_channels.cast(story)
    good_channels.faults(story)
    story.process("consumer-1", "subscriber")
    story.spec["plan"].append({"fault": "4-server-restart", "name": "server-restart", "target": "servers"})
    for fault, at in (("4-server-restart", 30.0), ("5-net-latency", 31.0)):
        story.stages(fault, "servers", at, at + 0.1, at + 0.2, at + 0.3, detail="{} seen")
    for number in range(22):
        name, shared, by = f"c{number:02}", number >= 17, "consumer-1" if number % 2 else S2
        preset = clock_ahead(CLOCK_MAX, -3) if number < 8 else 0
        readers = ("reader", "second", "third") if shared else ("reader",)
        story.channel(name, fan_out=len(readers), preset=preset, slow=[])
        for reader in readers:
            story.subscribe(by, name, reader, 25.0)
        for number, count in enumerate((1, 1, 1, 2, 3, 1, 1, 2 if shared else 1)):
            at = 48.0 + number / 10
            story.publish(P1, name, [f"{name}-{number}-{place}" for place in range(count)], at, told={"ttl_s": 20})
            for later, reader in enumerate(readers):
                story.fetch(by, name, reader, at + 0.01 + later / 100, told={"ttl_s": 20})
                story.acknowledge(by, name, reader, at + 0.015 + later / 100)
        if shared:
            # What nobody may edit, as it did not go as planned: delivered twice, or published twice.
            story.publish(P1, name, f"{name}-odd", 48.9, told={"ttl_s": 20})
            story.publish(P1, name, f"{name}-odd" if number % 2 else f"{name}-even", 48.91, told={"ttl_s": 20})
            for again in (0, 1) if number % 2 == 0 else (1,):
                story.fetch(by, name, "reader", 48.92 + again / 100, told={"ttl_s": 20})
            story.acknowledge(by, name, "reader", 48.95)
        for place, bad in enumerate(("tampered", "truncated", "foreign", "old", "beyond")):
            story.misuse(by, name, "reader", bad, 49.5 + place / 100)
    return story.write()


def texts(folder: Path) -> dict[str, Counter[str]]:
    """The rows of each file of a history, without their numbers and what each machine has of its own."""
    whole = {path.name: OWN.sub(r"\g<1>\g<2>0", path.read_text()) for path in (folder / "history").iterdir()}
    return {name: Counter(text.splitlines()) for name, text in whole.items()}


def brief(text: str) -> str:
    row = json.loads(text)
    what = [row["kind"], row.get("f"), row.get("type"), row.get("channel"), row.get("name"), row["t_ns"] // 1_000_000 % 100_000]
    jobs = [item.get("job") or item.get("message") for item in row.get("items") or ()][:3]
    return f"{zlib.crc32(text.encode()):08x} {' '.join(str(one) for one in (*what, *jobs) if one)}"


def changes(before: dict[str, Counter[str]], copy: Path) -> Iterator[str]:
    """Each row that is gone from a run, and each that is new; gaps in the numbers of a file."""
    after = texts(copy)
    for name in sorted({*before, *after}):
        old, new = before.get(name, Counter()), after.get(name, Counter())
        lines = [f"  - {brief(one)}" for one in (old - new).elements()] + [f"  + {brief(one)}" for one in (new - old).elements()]
        if lines:
            yield name
            yield from lines if len(lines) <= ROWS_MAX else [f"  {len(lines)} rows {zlib.crc32(''.join(lines).encode()):08x}"]
        numbers = re.findall(r'"seq":(\d+)', (copy / "history" / name).read_text()) if name in after else []
        if gaps := sorted(set(range(len(numbers))) - set(map(int, numbers))):
            yield f"{name} without {gaps}"


def planted(spec: dict[str, Any], copy: Path) -> Iterator[str]:
    """What is new in the spec of a run."""
    told = json.loads((copy / "spec.json").read_text())
    yield from (f"spec {name}: {told[name]}" for name in told if spec.get(name) != told[name])


#: Violations of any copy.
FOUND = [("nobodys-job", "J5"), ("nobodys-job", "J4"), ("one-tenant", "J12"), ("c05/reader", "P2"), ("c07", "P1")]
PARQUET = SimpleNamespace(where=lambda _: SimpleNamespace(collect=lambda: [{"subject": one, "check": by} for one, by in FOUND]))
SPARK: Any = SimpleNamespace(read=SimpleNamespace(parquet=lambda _: PARQUET))


def test_what_is_planted_is_what_a_history_proves(tmp_path: Path) -> None:
    """Whatever is drawn: the one refusal that proves something, and no tick that came before a worker could be late."""
    story = healthy(tmp_path / "run")
    refusals(story)
    later = range(45, 54)
    ticks(story, *range(1, 10), *later)
    run = story.write()
    for seed in range(8):
        history = History(run, random.Random(seed))
        assert KINDS["key-taken-twice"].edit(history) == "sure"
        assert KINDS["tick-long-after-its-time"].edit(history) in {f"cron:beat:{1_000 + at}" for at in later}
    with pytest.raises(JudgeError, match="the run has no such job: record a longer one"):
        KINDS["key-taken-twice"].edit(history)
    history.spec["recovery_bound_ms"] = 60_000
    with pytest.raises(JudgeError, match="no schedule ticked without a fault about"):
        KINDS["tick-long-after-its-time"].edit(history)


@pytest.mark.parametrize(("make", "kinds"), [(jobs, KINDS), (channels, CHANNEL_KINDS)])
def test_each_kind_changes_what_it_says_and_no_more(make: Any, kinds: dict[str, Any], tmp_path: Path, monkeypatch: Patch) -> None:
    run, clean, told = make(tmp_path / "run"), tmp_path / "clean", list[str]()
    History(run, random.Random(1)).write(clean)
    before, spec = texts(clean), json.loads((clean / "spec.json").read_text())
    decided = {"checks": [{"id": "H0", "verdict": "valid"}, {"id": "H1", "verdict": "unknown"}], "reasons": ["too short"]}

    def judge(copy: Path, **_: Any) -> dict[str, Any]:
        assert (copy / "samples" / "processes.jsonl").exists()
        told.append("\n".join([f"== {copy.name}", *changes(before, copy), *planted(spec, copy)]))
        return decided

    monkeypatch.setattr(command, "judge", judge)
    seen = list(corrupt(run, 1, SPARK, say=told.append))
    subjects = [f"{one.kind.name}: {one.subject}" for one in seen]
    same(f"reports/corruptions_of_{make.__name__}.txt", "\n".join([*told, *subjects, render(seen)]))
    assert len(seen) == len(kinds)
    decided["checks"] = []
    with pytest.raises(JudgeError, match="cannot be judged: too short"):
        next(corrupt(run, 1, SPARK, list(kinds.values())[:1], say=told.append))
