"""A short drill on real parts (server, proxies, subscribers, load) with all seven faults: what its history must show."""

import os
from pathlib import Path

import pytest

from chaos.channels.crew import SUBSCRIBER
from chaos.channels.drill import ChannelDrill
from chaos.channels.plan import FAULT_NAMES, KILL, RESTORE
from chaos.targets.faults import is_gone
from record.history import load_file
from tests.chaos.channels.drills import make_drill
from tests.chaos.drills import carried_out

pytestmark = pytest.mark.slow

Rows = list[dict]


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> ChannelDrill:
    """One drill for all the tests that only read its history."""
    drill = carried_out(make_drill(tmp_path_factory.mktemp("runs"), seed=1, last_ms=20_000))
    assert drill.errors == []
    return drill


@pytest.fixture(scope="module")
def files(drilled: ChannelDrill) -> dict[str, Rows]:
    return {path.stem: list(load_file(path).rows) for path in drilled.folder.history.glob("*.jsonl")}


def faults(files: dict[str, Rows]) -> Rows:
    return [row for row in files["harness"] if row["kind"] == "fault"]


def operations(files: dict[str, Rows], f: str) -> Rows:
    return [row for rows in files.values() for row in rows if row["kind"] == "operation" and (row["f"], row["type"]) == (f, "ok")]


def test_every_fault_was_injected_witnessed_and_healed(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    found = [(row["fault"], row["stage"], row["result"]) for row in faults(files)]
    usual = ("inject", "witness", "heal", "healed")
    wanted = [
        (planned.fault, stage, "ok")
        for planned in drilled.plan.faults
        for stage in (("snapshot", *usual) if planned.name == RESTORE else usual)
    ]
    assert found == wanted, faults(files)
    assert {planned.name for planned in drilled.plan.faults} == set(FAULT_NAMES)


def test_every_preset_clock_wrapped_and_everybody_read_to_the_end(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    finals = {row["channel"]: row for row in files["harness"] if row["kind"] == "final"}
    assert finals.keys() == {channel.name for channel in drilled.spec.channels}
    for channel in drilled.spec.channels:
        final = finals[channel.name]
        if channel.preset_clock is not None:
            assert channel.preset_clock > 0 > final["clock"], channel.name
        assert [item["subscriber"] for item in final["items"]] == list(channel.subscribers)
        assert {item["cursor"] for item in final["items"]} == {final["clock"]}, channel.name


def test_subscribers_were_made_before_anything_was_published(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    made = {(row["channel"], row["subscriber"]): row["done_ns"] for row in operations({"setup": files["setup"]}, "subscribe")}
    assert made.keys() == {(channel.name, one) for channel in drilled.spec.channels for one in channel.subscribers}
    first_ns = min(row["first_send_ns"] for row in operations(files, "publish"))
    assert max(made.values()) < first_ns


def test_the_killed_subscribers_were_given_again_what_they_had_in_hand(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    (killed,) = [planned for planned in drilled.plan.faults if planned.name == KILL]
    assert files[killed.target][-1]["kind"] != "close" and files[killed.replacement][-1]["kind"] == "close"

    def given(proc: str) -> set[tuple[str, str, str]]:
        rows = operations({proc: files[proc]}, "fetch")
        return {(row["channel"], row["subscriber"], item["message"]) for row in rows for item in row["items"]}

    assert given(killed.target) & given(killed.replacement)


def test_clocks_that_went_back_go_on_in_another_era(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    snapshot_ns, inject_ns, heal_ns = (
        row["t_ns"] for row in faults(files) if row["name"] == RESTORE and row["stage"] in ("snapshot", "inject", "heal")
    )
    assert snapshot_ns < inject_ns < heal_ns
    eras = [(row["done_ns"], row["era"]) for row in operations(files, "publish")]
    assert {era for done_ns, era in eras if done_ns < inject_ns} == {0}
    assert max(era for done_ns, era in eras if done_ns > heal_ns) > 0


def test_every_process_has_its_proxy_and_a_history_with_an_end(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    (killed,) = [planned for planned in drilled.plan.faults if planned.name == KILL]
    # Sinks are named after whoever writes them.
    processes = [row for row in files["manifest"] if row["kind"] == "process" and row["role"] != "sink"]
    roles = {row["name"]: row["role"] for row in processes}
    assert roles == {
        **{"harness": "harness", "setup": SUBSCRIBER, "consumer-1": SUBSCRIBER},
        **{f"subscriber-{number}": SUBSCRIBER for number in (1, 2, 3)},
        **{"publisher-1": "publisher", "publisher-2": "publisher"},
    }
    assert all(files[name][-1]["kind"] == "close" for name in roles if name != killed.target)


def test_raw_clocks_are_sampled(drilled: ChannelDrill) -> None:
    text = (drilled.folder.samples / "channels.jsonl").read_text()
    assert all(f'"channel":"{channel.name}"' in text for channel in drilled.spec.channels)


def test_nothing_is_left_behind(drilled: ChannelDrill, files: dict[str, Rows]) -> None:
    started = {row["pid"] for rows in files.values() for row in rows if row["kind"] == "open"} - {os.getpid()}
    assert not [pid for pid in started if not is_gone(pid)]


def test_a_drill_that_cannot_start_its_subscribers_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.channels.crew.ChannelCrew._common", lambda self, name: ["--nonsense"])
    drill = carried_out(make_drill(tmp_path, seed=1, kinds=()))
    assert drill.errors[0].startswith("unplanned exit of ") and not drill.loaded
