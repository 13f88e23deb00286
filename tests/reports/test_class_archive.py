"""The archive of the JVM's classes: the first JVM leaves one, later ones map it, and none is worse off for it."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from reports.class_archive import UNUSED_S, ClassArchive, folder_of_user


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark.jar").write_bytes(b"jar")
    return folder


def ran(archive: ClassArchive, *options: str) -> int:
    """A JVM with the option of the archive has run: its exit code."""
    java = shutil.which("java")
    assert java
    code = subprocess.run([java, *archive.option().split(), *options, "-version"], capture_output=True, timeout=600).returncode
    archive.keep(code)
    return code


def wrote(archive: ClassArchive, content: bytes, code: int = 0) -> None:
    """A JVM has written that, and ended with this exit code."""
    assert "ArchiveClassesAtExit" in archive.option()
    archive._fresh.write_bytes(content)
    archive.keep(code)


def test_the_first_jvm_leaves_an_archive_and_the_next_one_maps_it(tmp_path: Path, jars: Path) -> None:
    first = ClassArchive("java 17", jars, tmp_path / "cache")
    assert first.making and ran(first) == 0
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.file.name]
    second = ClassArchive("java 17", jars, tmp_path / "cache")
    assert not second.making
    assert ran(second, "-Xshare:on") == 0, "a JVM that must have its archive starts"


def test_the_jvm_of_a_session_maps_one_or_leaves_one(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    words = Path(f"/proc/{context._gateway.proc.pid}/cmdline").read_text().split("\0")
    named = [word.partition("=") for word in words if word.startswith(("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"))]
    assert [Path(path).parent for _, _, path in named] == [folder_of_user()]


def test_an_archive_that_does_not_fit_is_done_without(tmp_path: Path, jars: Path) -> None:
    ClassArchive("java 17", jars, tmp_path).file.write_bytes(b"of another Java")
    found = ClassArchive("java 17", jars, tmp_path)
    assert not found.making and ran(found) == 0 and found.file.read_bytes() == b"of another Java"


def test_a_jvm_that_fails_leaves_none(tmp_path: Path, jars: Path) -> None:
    wrote(ClassArchive("java 17", jars, tmp_path / "cache"), b"half", code=-9)
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_java_and_other_jars_have_another_archive(tmp_path: Path, jars: Path) -> None:
    names = [ClassArchive(java, jars, tmp_path).file.name for java in ("java 17", "java 21")]
    (jars / "spark.jar").write_bytes(b"another")
    names.append(ClassArchive("java 17", jars, tmp_path).file.name)
    assert len(set(names)) == 3


def test_of_two_that_make_one_at_once_the_later_one_stays(tmp_path: Path, jars: Path) -> None:
    one, other = (ClassArchive("java 17", jars, tmp_path / "cache") for _ in range(2))
    other._fresh = other._fresh.with_suffix(".other")
    wrote(one, b"one")
    assert one.file.read_bytes() == b"one"
    wrote(other, b"other")
    assert other.file.read_bytes() == b"other"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [one.file.name]


def test_where_nothing_can_be_kept_the_jvm_gets_no_option(tmp_path: Path, jars: Path) -> None:
    (tmp_path / "file").write_text("")
    archive = ClassArchive("java 17", jars, tmp_path / "file" / "cache")
    assert (archive.option(), archive.making) == ("", False)
    spaced = ClassArchive("java 17", jars, tmp_path / "my cache")
    assert (spaced.option(), spaced.making) == ("", False)


def test_an_archive_that_nobody_maps_any_more_goes_when_a_new_one_comes(tmp_path: Path, jars: Path) -> None:
    past_s = time.time() - UNUSED_S - 60
    used, unused = (ClassArchive(java, jars, tmp_path) for java in ("used", "unused"))
    for archive in (used, unused):
        archive.file.write_bytes(b"archive")
        os.utime(archive.file, (past_s, past_s))
    assert "SharedArchiveFile" in ClassArchive("used", jars, tmp_path).option()
    wrote(ClassArchive("new", jars, tmp_path), b"new")
    assert used.file.exists() and not unused.file.exists()


# What PySpark asks the JVM for again and again is asked for once.


def test_a_known_function_of_columns_is_one_call_of_java(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> Any:
        return F.array(F.lit(1), F.col("id"))

    made()
    context: Any = spark.sparkContext
    client = context._gateway._gateway_client
    asked: list[str] = []
    send = client.send_command

    def noted(command: str, *rest: Any, **more: Any) -> Any:
        asked.append(command)
        return send(command, *rest, **more)

    monkeypatch.setattr(client, "send_command", noted)
    column = made()
    assert [command.splitlines()[0] for command in asked if command.startswith("r")] == [], "no name is looked up"
    assert sum(command.startswith("c") for command in asked) >= 4
    assert spark.range(2).select(column.alias("pair")).collect() == [Row(pair=[1, 0]), Row(pair=[1, 1])]
