"""Which worker may run a job: the rules of targets and routing keys, as a table from BridgeMQ's document and its script."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.options import checked
from engine.routing import Attributes, Target, matches, matching, names_among, priority_range, target_text
from tests.engine.using import Enqueue, Options, class_of, class_target

NODE = Attributes("w1", "node", frozenset({"email", "gpu"}), "us-east")
BARE = Attributes("w2")


def wanted(**options: Any) -> dict[str, Any]:
    read = checked(options)
    return json.loads(class_target(read.route, read.target) or "{}")


def target(**fields: Any) -> dict[str, Any]:
    return wanted(target=Target(**fields))


@pytest.mark.feature("BQ13", "BQ14", "BQ15", "BQ16", "BQ17")
@pytest.mark.parametrize(("asks", "node", "bare"), [
    ({}, True, True),
    # The exact server, and then nothing else is asked.
    ({"server": "w1"}, True, False), ({"server": "w2", "stack": ["node"]}, False, True),
    ({"server": "w1", "region": ["mars"], "capabilities": ["none"], "mode": "all"}, True, False),
    ({"stack": ["node"]}, True, False), ({"stack": ["python", "node"]}, True, False),
    # A worker has one stack, so one of the wanted is enough in both modes.
    ({"stack": ["python", "node"], "mode": "all"}, True, False), ({"stack": ["python"]}, False, False),
    ({"region": ["us-east", "eu"]}, True, False), ({"region": ["eu"]}, False, False),
    ({"capabilities": ["gpu", "tpu"]}, True, False), ({"capabilities": ["gpu", "tpu"], "mode": "all"}, False, False),
    ({"capabilities": ["gpu", "email"], "mode": "all"}, True, False), ({"capabilities": ["tpu"]}, False, False),
    # Criteria are met together, in both modes.
    ({"capabilities": ["gpu"], "region": ["eu"]}, False, False),
    ({"capabilities": ["gpu"], "region": ["us-east"], "stack": ["node"]}, True, False),
    ({"capabilities": ["gpu"], "region": ["us-east"], "stack": ["perl"], "mode": "any"}, False, False),
    # What asks for nothing.
    ({"stack": [], "capabilities": (), "region": set[str]()}, True, True),
])  # fmt: skip
def test_targets(asks: dict[str, Any], node: bool, bare: bool) -> None:
    assert (matches(target(**asks), NODE), matches(target(**asks), BARE)) == (node, bare)
    assert matches(wanted(target=asks), NODE) == node, "a mapping says the same as a Target"


@pytest.mark.feature("BN03", "BN04")
@pytest.mark.parametrize(("route", "routes", "runs"), [
    (None, ["default"], True), ("default", ["default"], True), ("gpu", ["default"], False),
    ("gpu", ["gpu"], True), (None, ["gpu"], False), (None, ["gpu", "default"], True),
    ("gpu", ["gpu", "default"], True), ("mail", ["gpu", "default"], False),
])  # fmt: skip
def test_routing_keys(route: str | None, routes: list[str], runs: bool) -> None:
    assert matches(wanted(route=route), Attributes("w", routes=frozenset(routes))) is runs


def test_a_routing_key_and_a_target_are_met_together() -> None:
    worker = Attributes("w", "node", routes=frozenset({"gpu"}))
    both = wanted(route="gpu", target=Target(stack=["node"]))
    assert matches(both, worker) and not matches(both, Attributes("w", "node", routes=frozenset({"default"})))
    assert not matches(both, Attributes("w", "perl", routes=frozenset({"gpu"})))
    assert not matches(wanted(route="gpu", target={"server": "w"}), BARE)


NAMES = st.sampled_from(["a", "b", "c"])
SOME = st.lists(NAMES, max_size=3)
MODES = st.sampled_from(["any", "all"])
TARGETS = st.builds(Target, server=st.none() | NAMES, stack=SOME, capabilities=SOME, region=SOME, mode=MODES)
WORKERS = st.builds(Attributes, NAMES, NAMES | st.just(""), st.frozensets(NAMES), NAMES | st.just(""))


@given(TARGETS, WORKERS)
def test_the_matcher_says_what_the_rules_say(asked: Target, worker: Attributes) -> None:
    text = target_text("target", asked)
    if asked.server is not None:
        expected = asked.server == worker.server
    else:
        has, needs = worker.capabilities, set(asked.capabilities)
        enough = needs <= has if asked.mode == "all" else bool(needs & has) or not needs
        in_stack = not list(asked.stack) or worker.stack in asked.stack
        expected = enough and in_stack and (not list(asked.region) or worker.region in asked.region)
    assert matches(json.loads(text or "{}"), worker) is expected


@given(TARGETS, st.randoms(use_true_random=False))
def test_equal_targets_make_one_class(asked: Target, random: Any) -> None:
    def mixed(values: Any) -> list[str]:
        return random.sample([*values, *values], 2 * len(values))

    other = {"capabilities": mixed(asked.capabilities), "region": mixed(asked.region), "stack": mixed(asked.stack)}
    same, text = Target(asked.server, mode=asked.mode, **other), target_text("target", asked)
    assert text == target_text("target", same)
    assert class_of("work", "gpu", text) == class_of("work", "gpu", target_text("target", same))


def test_the_names_of_classes() -> None:
    def class_name(**options: Any) -> str:
        return Enqueue("j", "work", b"", b"nonce---", checked(options)).class_name

    assert class_name() == class_name(route="default") == class_name(target={}) == "work"
    assert class_name(route="gpu") == "work@gpu"
    digest = class_name(target={"server": "w1"})
    assert digest.startswith("work@~") and digest != class_name(target={"server": "w2"})
    assert class_name(route="gpu", target={"server": "w1"}) == digest.replace("@", "@gpu")
    longest = Enqueue("j", "n" * 128, b"", b"nonce---", checked({"route": "r" * 64, "target": {"server": "s"}}))
    assert len(longest.class_name) <= 255, "it has one byte for its length in the envelope"
    assert Enqueue("j", "work", b"", b"nonce---", Options(route="gpu", key="k")).lane == "work@gpu/k"


def test_the_classes_of_a_worker() -> None:
    classes = [
        ("work@gpu", '{"route":"gpu"}'), ("work@~1", '{"stack":["node"]}'), ("work@~2", '{"stack":["perl"]}'),
        ("other@~1", '{"stack":["node"]}'), ("work@~3", "no JSON"), ("work@~4", "[]"), ("work@~5", '{"capabilities":7}'),
        ("work@~6", '{"stack":"node"}'), ("work@~7", '{"capabilities":null,"region":[]}'), ("workers@gpu", '{"stack":["node"]}'),
    ]  # fmt: skip
    assert matching(classes, ["work"], NODE) == ("work@~1", "work@~7")
    assert matching(classes, ["work", "other"], Attributes("w", routes=frozenset({"gpu"}))) == ("work@gpu",)


def test_what_a_worker_restricts_itself_to() -> None:
    assert names_among(["a", "b", "c"], None) == ("a", "b", "c") and names_among(["a", "b", "c"], ["c", "a"]) == ("a", "c")
    assert priority_range("priorities", None) is None and priority_range("priorities", (1, 10)) is None
    assert priority_range("priorities", [3, 7]) == (3, 7) and priority_range("priorities", (7, 7)) == (7, 7)
    assert target_text("target", {"region": [f"r{n}" for n in range(32)]})
