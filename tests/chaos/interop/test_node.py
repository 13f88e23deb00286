"""Node and its packages: what is said where they are missing, and that what is tracked names no registry."""

import json
from pathlib import Path

import pytest

from chaos.interop import node
from tests.given import script


def test_without_node_the_message_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(node.NodeMissing, match="needs node, which is missing; on Debian: sudo apt-get install nodejs npm"):
        node.modules()


def test_packages_are_installed_once_and_kept_by_their_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script(tmp_path / "bin/npm", "[ \"$1\" = ci ] || exit 9\necho call >>'%s'\nmkdir node_modules" % (tmp_path / "calls"))
    script(tmp_path / "bin/node")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    said: list[str] = []
    first = node.modules(said.append)
    assert first.is_dir() and first.is_relative_to(tmp_path) and node.modules(said.append) == first
    assert ((tmp_path / "calls").read_text(), len(said)) == ("call\n", 1)
    assert [path.name for path in first.parent.parent.iterdir() if path.name != ".node-lock"] == [first.parent.name]


def test_a_failed_installation_is_one_line_with_npms_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script(tmp_path / "npm", "echo 'npm warn old' >&2\necho 'npm error code E404' >&2\nexit 1")
    script(tmp_path / "node")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(node.NodeMissing, match="`npm ci` failed with code 1: npm error code E404"):
        node.modules()


def test_the_lock_file_pins_bull_and_names_no_registry() -> None:
    text = (node.FOLDER / node.LOCK).read_text()
    assert "://" not in text.replace("https://github.com", "")
    packages = json.loads(text)["packages"]
    assert packages["node_modules/bull"]["version"] == "1.0.0" == node.version()
    assert not [name for name, package in packages.items() if name and "integrity" not in package]
    assert not [name for name, package in packages.items() if "resolved" in package]
