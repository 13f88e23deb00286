"""The classes of Spark as its JVM has loaded and verified them, kept in a file for the JVMs after it (class data sharing).

Loading them was a third of what a short run cost to judge. The first session writes the file when it ends; later ones map it. It
is only ever a help: the JVM itself compares it with its own build and with the classpath, and does without one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

#: The setting that options of the JVM are part of.
OPTIONS = "spark.driver.extraJavaOptions"

#: An archive that no JVM has mapped for so long is of another Java, another PySpark or a checkout that is gone. It has 190 MB.
UNUSED_S = 30 * 24 * 3_600.0

#: A JVM that does not know an option of this kind goes on without it.
TOLERANT = "-XX:+IgnoreUnrecognizedVMOptions"


class ClassArchive:
    """The archive of one Java and one PySpark. `making`: the JVM that starts next leaves one, because there is none yet."""

    def __init__(self, java: str, jars: Path, folder: Path | None = None) -> None:
        """`java`: what tells this Java from any other; `jars`: the folder of the classpath."""
        self.file = (folder or folder_of_user()) / f"spark-{identity(java, jars)}.jsa"
        self._fresh = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        # The options of Spark are words between blanks.
        self._nameable = " " not in str(self.file)
        self.making = self._nameable and not self.file.exists()

    def option(self) -> str:
        """The options of the JVM; none where nothing can be kept."""
        if not self._nameable:
            return ""
        try:
            if self.making:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            else:
                os.utime(self.file)
        except OSError:
            self.making = False
            return ""
        name, path = ("ArchiveClassesAtExit", self._fresh) if self.making else ("SharedArchiveFile", self.file)
        return f"{TOLERANT} -XX:{name}={path}"

    def keep(self, exit_code: int | None) -> None:
        """Let others have what this JVM has written, if it has ended by itself. Of two at once the later one stays."""
        if not self.making:
            return
        with suppress(OSError):
            if exit_code == 0:
                self._fresh.replace(self.file)
                for old in self.file.parent.glob("spark-*.jsa*"):
                    if old.stat().st_mtime < time.time() - UNUSED_S:
                        old.unlink()
        with suppress(OSError):
            self._fresh.unlink(missing_ok=True)


def folder_of_user() -> Path:
    """`ironclaim` below XDG_CACHE_HOME or ~/.cache, where the tools of the harness are kept, too."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "ironclaim"


def identity(java: str, jars: Path) -> str:
    """A name for this Java with these jars, where they are: the JVM compares their times and sizes, too."""
    told = [java, str(jars)]
    told += sorted(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars.glob("*.jar"))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
