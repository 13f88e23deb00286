"""The model of channels as a value: its settings, its keys, and replies that are outside the contract."""

import shutil
from pathlib import Path

import pytest

from engine import Malformed, Queue, ScriptFault, models
from engine.models.dsps import DspsModel
from engine.ops.channels import Acknowledge, AskOld, Fetch, Publish, Subscribe, Unsubscribe
from engine.redis.scripts import scripts_folder
from tests.engine.channels.channel_desk import message
from tests.engine.helpers.producing import refused

MODEL = DspsModel("orders")
PUBLISH = Publish((message("a"),), 1, not_after_ms=1)


def test_its_settings() -> None:
    assert models.Dsps() == models.Dsps(rules=(models.ChannelRule(".+", 1_800_000),), storage="redis")
    for wrong in ((), "x", (1,)):
        refused(Malformed, "rules", models.Dsps, rules=wrong)
    for name in ("", "a b", None):
        refused(Malformed, "storage", models.Dsps, storage=name)


def test_no_queue_takes_it() -> None:
    refused(Malformed, "model", Queue, "q", models.Dsps(), url="redis://localhost:1")


@pytest.mark.feature("DS23", model="dsps")
def test_its_keys() -> None:
    keys = MODEL.keys
    assert keys.clock == "c.{orders}.clock" and keys.cursor("sub") == "c.{orders}.r.sub"
    assert keys.body(-7) == "c.{orders}.m.-7" and keys.mid("m1") == "c.{orders}.mid.m1" and keys.wake_topic == "dsps.c.{orders}"
    for operation in (PUBLISH, Subscribe("s", "n", 1, not_after_ms=1), Fetch("s", 1, 1), AskOld("s", ("a",))):
        assert all(key.startswith("c.{orders}.") for key in MODEL.call(operation).keys)


def test_another_folder_of_scripts(tmp_path: Path) -> None:
    for name in ("whole", "less"):
        shutil.copytree(scripts_folder() / "dsps", tmp_path / name / "dsps")
    assert DspsModel("orders", tmp_path / "whole").scripts["fetch"] == MODEL.scripts["fetch"]
    (tmp_path / "less" / "dsps" / "fetch.lua").unlink()
    refused(ScriptFault, "no fetch.lua", DspsModel("orders", tmp_path / "less").call, Fetch("s", 1, 1))


def test_a_reply_outside_the_contract() -> None:
    for operation, raw in (
        *((PUBLISH, [1, b"1", 0, 0, []]), (PUBLISH, [1, b"1", 0, 0, [b"x1"]]), (PUBLISH, [1, b"1e+15", 0, 0, [b"c1"]])),
        *((PUBLISH, [b"1", b"1", 0, 0, [b"c1"]]), (PUBLISH, [1, b"9007199254740992", 0, 0, [b"c1"]])),
        (Subscribe("s", "n", 1, not_after_ms=1), [1, b"done", b"1", b"1", 0, 0]),
        *((Unsubscribe("s", "n", not_after_ms=1), [1, b"created"]), (Fetch("s", 1, 1), [1, b"ok", b"1"])),
        *((Fetch("s", 1, 1), [1, b"ok", b"1", b"0", 0, 0, 0, b"1", 0, 0, bad]) for bad in ([b"x", b"{}"], [b"1"])),
        *((Acknowledge("s", 1, 1), [1, b"ok", b"1", b"1", 0, 0, 0]), (AskOld("s", ("a",)), None)),
        (AskOld("s", ("a", "b")), [1, b"ok", b"1", b"1", [1]]),
    ):
        refused(ScriptFault, None, MODEL.parse, operation, raw)
