"""A private PostgreSQL server on a socket in a folder of its own, gone with its owner."""

import itertools
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from engine.testing.server import OwnedFolder, start_guarded

#: Where Debian puts its programs, which are not on PATH.
DEBIAN = Path("/usr/lib/postgresql")
#: Whom the server runs as where root starts it, which it refuses.
UNPRIVILEGED = "postgres"
START_S = 120.0


def program(name: str) -> str:
    """A program of PostgreSQL: on PATH, else that of Debian's newest version. Raises FileNotFoundError."""
    found = shutil.which(name)
    if found is not None:
        return found
    versions = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: float(path.parents[1].name))
    if not versions:
        raise FileNotFoundError(f"no {name} on PATH or below {DEBIAN}: run `.ci/setup postgres`, as `make test` does")
    return str(versions[-1])


class Postgres:
    """The server, alive inside the `with` block. It syncs nothing to disk: what survives is a matter of its own tests."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._as: dict[str, Any] = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if os.geteuid() == 0 else {}

    def __enter__(self) -> Self:
        self._folder = OwnedFolder()
        if self._as:
            owner = pwd.getpwnam(UNPRIVILEGED)
            os.chown(self._folder.path, owner.pw_uid, owner.pw_gid)
        data, self._log = self._folder.path / "data", self._folder.path / "server.log"
        initdb = [program("initdb"), "-D", str(data), "-U", "ironclaim", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=self._folder.path, timeout=300, **self._as)
        settings = (f"unix_socket_directories={self._folder.path}", "listen_addresses=", "fsync=off", "max_connections=40")
        flags = [word for setting in settings for word in ("-c", setting)]
        with self._log.open("wb") as output:
            command = [program("postgres"), "-D", str(data), *flags]
            self._process = start_guarded(
                command, cwd=self._folder.path, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **self._as
            )
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            # SIGTERM waits for connections, SIGINT ends them.
            self._process.send_signal(2)
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.remove()

    def dsn(self) -> str:
        """What psycopg connects to."""
        return f"host={self._folder.path} user=ironclaim dbname=postgres"

    def new_schema(self) -> str:
        """The dsn of connections for which the database is empty. A database of their own were a copy of three hundred files."""
        import psycopg

        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
        return f"{self.dsn()} options=-csearch_path={name}"

    def _wait(self) -> None:
        import psycopg

        deadline_s = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.dsn()).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise AssertionError(f"PostgreSQL does not come up: {self._log.read_text()[-2000:]}") from error
                time.sleep(0.05)
