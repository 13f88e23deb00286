"""The planted defects themselves: each fits, and does what it says; whether the judge finds them is in `test_mutants_caught`."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos import mutants
from chaos.channels import planted
from chaos.channels.mutants import MUTANTS, PLANTED
from chaos.errors import HarnessError
from chaos.processes import ROOT, child_environment
from engine import Channel, models
from engine.channel import replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from engine.redis.scripts import scripts_folder
from tests.chaos.channels.presetting import preset


def mutated(name: str, url: str, folder: Path) -> Channel:
    return Channel("orders", models.Dsps(), url=url, lua=mutants.plant(MUTANTS[name], scripts_folder(), folder / "lua"))


def test_each_mutant_is_of_a_script_or_of_a_process_or_of_the_harness() -> None:
    for name, mutant in MUTANTS.items():
        assert bool(mutant.edits) + (name in PLANTED) + mutant.faults_do_nothing == 1
    with pytest.raises(HarnessError, match="mutant 'no-reap' does not exist; choose from checksum-not-verified, "):
        mutants.find("no-reap", MUTANTS)


def test_the_receipt_of_a_batch_across_the_wrap_covers_a_part_of_it(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    preset(ironclaim_url, "orders", CLOCK_MAX - 2)
    monkeypatch.setattr(replies, "page", replies.page)
    planted.receipt_plain_less()
    with Channel("orders", models.Dsps(), url=ironclaim_url) as channel:
        channel.subscribe("reader")
        channel.publish_many([(f"m{number}", number) for number in range(4)])
        found = channel.fetch("reader")
        assert [message.clock for message in found.messages] == [CLOCK_MAX - 1, CLOCK_MAX, CLOCK_MIN, CLOCK_MIN + 1]
        assert found.receipt is not None and channel.acknowledge("reader", found.receipt).result == "OK"
        assert [message.clock for message in channel.fetch("reader").messages] == [CLOCK_MIN, CLOCK_MIN + 1]


def test_the_last_of_a_batch_is_kept_back_and_its_receipt_covers_it(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "page", replies.page)
    planted.message_kept_back()
    with Channel("orders", models.Dsps(), url=ironclaim_url) as channel:
        channel.subscribe("reader")
        channel.publish_many([("m1", 1), ("m2", 2)])
        found = channel.fetch("reader")
        assert [message.id for message in found.messages] == ["m1"] and found.receipt is not None
        assert channel.acknowledge("reader", found.receipt).result == "OK"
        assert channel.fetch("reader").messages == ()


def test_a_fetch_that_moves_the_cursor_gives_nothing_twice(ironclaim_url: str, tmp_path: Path) -> None:
    with mutated("cursor-moved-by-fetch", ironclaim_url, tmp_path) as channel:
        channel.subscribe("reader")
        channel.publish("m1", 1)
        assert [message.id for message in channel.fetch("reader").messages] == ["m1"]
        assert channel.fetch("reader").messages == ()


def test_clocks_near_the_wrap_are_the_same_when_they_go_through_tostring(ironclaim_url: str, tmp_path: Path) -> None:
    preset(ironclaim_url, "orders", CLOCK_MAX - 9)
    with mutated("clock-through-tostring", ironclaim_url, tmp_path) as channel:
        published = channel.publish_many([(f"m{number}", number) for number in range(3)])
        assert [one.clock for one in published] == [CLOCK_MAX] * 3


CHANGED_RECEIPT = """
import sys
from engine.channel import replies
print(replies.read_inner("orders", "reader", replies.inner("orders", "other", 7)))
"""


def test_a_process_takes_any_receipt_when_that_is_planted_in_it(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(f"def main():\n    pass\nif __name__ == '__main__':\n{indented(CHANGED_RECEIPT)}")
    environment = child_environment({})
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    command = [sys.executable, "-m", "chaos.channels.planted", "checksum-not-verified", "asking"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=True, timeout=300)
    assert done.stdout == "7\n"
    with pytest.raises(ValueError, match="its checksum is of something else"):
        replies.read_inner("orders", "reader", replies.inner("orders", "other", 7))


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
