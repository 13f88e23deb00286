"""The manifests of a load on Kubernetes: what every pod must have, one run in all of them, and commands that exist."""

import argparse
import re
from pathlib import Path

import pytest
import yaml

from chaos import cli
from chaos.plan import PRODUCER, worker_names
from engine.command import health, worker
from record.environment import recording
from reports.command import parser as reports_parser

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/guides/kubernetes"
GUIDE = (ROOT / "docs/guides/several-hosts.md").read_text()
KUSTOMIZATION = "kustomization.yaml"

#: API version of each kind.
VERSIONS = {"Job": "batch/v1", "StatefulSet": "apps/v1", "Service": "v1", "PersistentVolumeClaim": "v1"}

#: Names of variables whose values are secrets: a url has a password in it.
SECRET = re.compile(r"URL|HOST$|PASSWORD|TOKEN|SECRET|KEY")

Manifest = dict

FILES = {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))}
MANIFESTS = {f"{one['kind']}/{one['metadata']['name']}": one for name in FILES if name != KUSTOMIZATION for one in FILES[name]}
WORKLOADS = {name: one for name, one in MANIFESTS.items() if "template" in one["spec"]}


def pod(name: str) -> Manifest:
    """The pod of a workload."""
    return WORKLOADS[name]["spec"]["template"]["spec"]


def containers(name: str) -> list[Manifest]:
    """Every container of a workload."""
    return [*pod(name).get("initContainers", ()), *pod(name)["containers"]]


def words(name: str) -> list[str]:
    """The command line of a workload."""
    (container,) = pod(name)["containers"]
    return [*container["command"], *container.get("args", ())]


def option(name: str, flag: str) -> str:
    """The value of an option on the command line of a workload."""
    line = words(name)
    return line[line.index(flag) + 1]


def test_the_kustomization_names_every_file_once_and_pins_the_image() -> None:
    (found,) = FILES[KUSTOMIZATION]
    assert sorted(found["resources"]) == sorted(name for name in FILES if name != KUSTOMIZATION)
    images = {container["image"] for name in WORKLOADS for container in containers(name)}
    assert images == {f"{image['name']}:{image['newTag']}" for image in found["images"]}


def test_every_kind_has_its_api_version_and_a_name_of_its_own() -> None:
    assert {one["kind"]: one["apiVersion"] for one in MANIFESTS.values()} == VERSIONS
    assert len(MANIFESTS) == sum(len(FILES[name]) for name in FILES if name != KUSTOMIZATION)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pod_is_bounded_and_has_no_rights_that_it_does_not_need(name: str) -> None:
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    volumes = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod(name)["volumes"]}
    assert all(f"PersistentVolumeClaim/{claim}" in MANIFESTS for claim in volumes.values())
    for container in containers(name):
        image, _, tag = container["image"].rpartition(":")
        assert image and tag not in ("", "latest")
        for part in ("requests", "limits"):
            assert set(container["resources"][part]) == {"cpu", "memory"}
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_secret_stands_in_a_manifest(name: str) -> None:
    for container in containers(name):
        for variable in container.get("env", ()):
            if SECRET.search(variable["name"]):
                assert set(variable["valueFrom"]["secretKeyRef"]) == {"name", "key"} and "value" not in variable
        assert not re.search(r"rediss?://", yaml.safe_dump(container))


def test_what_ends_has_a_bound_and_what_runs_has_probes() -> None:
    for name, one in WORKLOADS.items():
        (container,) = pod(name)["containers"]
        if one["kind"] == "Job":
            assert one["spec"]["backoffLimit"] == 0 and pod(name)["restartPolicy"] == "Never", "or a second history is written"
            assert one["spec"]["activeDeadlineSeconds"] > 0
        else:
            assert {"startupProbe", "livenessProbe"} <= set(container)


def test_selectors_find_the_pods() -> None:
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in WORKLOADS.items()}
    for name, one in MANIFESTS.items():
        if one["kind"] == "Service":
            assert one["spec"]["selector"] in labels.values()
        elif one["kind"] == "StatefulSet":
            assert one["spec"]["selector"]["matchLabels"] == labels[name]
            assert f"Service/{one['spec']['serviceName']}" in MANIFESTS


def test_all_parts_speak_of_one_run() -> None:
    harness, master, load = "Job/harness", "Job/locust-master", "Job/locust-worker"
    told = cli.parse(words(harness)[words(harness).index("run") :])
    workers = WORKLOADS["StatefulSet/worker"]
    names = [f"{workers['metadata']['name']}-{workers['spec']['ordinals']['start'] + at}" for at in range(told.workers)]
    assert (workers["spec"]["replicas"], tuple(names)) == (told.workers, worker_names(told.workers))
    spec = WORKLOADS[load]["spec"]
    assert spec["parallelism"] == spec["completions"] == told.producers == int(option(master, "--expect-workers"))
    assert option(load, "--master-host") in {one["metadata"]["name"] for one in MANIFESTS.values() if one["kind"] == "Service"}
    assert (int(option(master, "--seed")), int(option(master, "--rate"))) == (told.seed, told.rate)
    assert {option(name, "--queue") for name in (master, "StatefulSet/worker")} == {told.queue}
    history = f"{told.runs}/latest/history"
    assert option(master, "--history") == f"{history}/{PRODUCER}.jsonl"
    (container,) = pod("StatefulSet/worker")["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables.items() >= recording(Path(f"{history}/$(POD_NAME).jsonl")).items()
    assert int(option(master, "-u")) >= told.producers


def test_the_commands_exist_and_take_these_options() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for module in (worker, health):
        module.add_parser(commands)
    (container,) = pod("StatefulSet/worker")["containers"]
    lines = [words("StatefulSet/worker"), *(container[probe]["exec"]["command"] for probe in ("startupProbe", "livenessProbe"))]
    for line in lines:
        assert line[0] == "ironclaim" and callable(parser.parse_args(line[1:]).run)
    assert words("Job/judge")[:3] == ["python", "-m", "reports"]
    assert reports_parser().parse_args(words("Job/judge")[3:]).command == "judge"


def test_the_guide_names_what_is_there() -> None:
    for name in FILES:
        assert f"kubernetes/{name}" in GUIDE
    variables = [one for name in WORKLOADS for container in containers(name) for one in container.get("env", ())]
    secrets = [one["valueFrom"]["secretKeyRef"] for one in variables if "secretKeyRef" in one.get("valueFrom", {})]
    ((of, key),) = {(secret["name"], secret["key"]) for secret in secrets}
    assert f"create secret generic {of} --from-literal={key}=" in GUIDE
