"""A server that others run and use: the keys of a run have a prefix of their own there, and are removed after it.

A run that was killed leaves its keys. It has announced its prefix, and says every few seconds that it lives; the next one that
comes to the server removes what belongs to prefixes whose runs do not live any more.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from chaos.errors import HarnessError
from chaos.probe import Address, address_of
from engine.errors import redacted_url

#: The set of the prefixes of all runs on the server.
PREFIXES = "ironclaim-chaos:prefixes"

#: What a run makes. Anybody may write into the set: of another text nothing is removed, because it could name all keys.
MADE = re.compile(r"chaos-[0-9a-f]{16}:", re.ASCII)

#: A run says so often that it lives, and is taken for dead when it has not for so long.
BEAT_S = 5.0
DEAD_S = 60

TIMEOUT_S = 5.0

#: Keys that are removed at once.
BATCH = 500


class Given:
    """The server at a url, inside a `with` block; `prefix` is what the keys of the run begin with. Raises HarnessError where it
    does not answer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"chaos-{secrets.token_hex(8)}:"
        # Without decoding: keys may be any bytes.
        self._server: Any = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="beats", daemon=True)
        self._unheard_s = 0.0
        self._forgotten = False
        self.removed: list[str] = []

    def __enter__(self) -> Given:
        try:
            if self._server.info("cluster").get("cluster_enabled"):
                raise HarnessError(f"the server at {redacted_url(self.url)} is one of a cluster, and has a part of the keys")
            announced: set[bytes] = self._server.smembers(PREFIXES)
            for prefix in sorted(member.decode(errors="replace") for member in announced):
                if MADE.fullmatch(prefix) and not self._lives(prefix):
                    self._remove(prefix)
                    self.removed.append(prefix)
            # It lives before it is announced, or another run would remove it; who dies in between leaves what expires.
            self._say()
            self._server.sadd(PREFIXES, self.prefix)
        except (redis.RedisError, OSError) as error:
            raise HarnessError(f"the server at {redacted_url(self.url)}: {error}") from None
        self._beating.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._beating.join()
        try:
            self._remove(self.prefix)
        except (redis.RedisError, OSError) as problem:
            said = f"the keys that begin with {self.prefix} are still at {redacted_url(self.url)}: {problem}"
            raise HarnessError(f"{said}; the next run removes them") from None
        finally:
            self._server.close()

    def version(self) -> str:
        """What it is."""
        info = self._server.info("server")
        return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info.get('redis_version', ''))}"

    def address(self) -> Address:
        return address_of(self.url)

    def server_pids(self) -> dict[str, int]:
        return {}

    def complaint(self) -> str:
        """That it has not answered for longer than a run may be silent, so that another one has removed its keys."""
        if self._forgotten:
            return f"this run was silent for {DEAD_S} s, so another run may have removed its keys"
        return f"the server at {redacted_url(self.url)} does not answer" if self._unheard_s > DEAD_S else ""

    def unplanned_failover(self) -> str:
        return ""

    def _lives(self, prefix: str) -> bool:
        said = self._server.get(self._alive(prefix))
        if said is None:
            return False
        who = json.loads(said)
        if who["host"] != machine():
            return True
        # On this machine it is known at once; of another user's process perhaps only that one of this number is there.
        now = process(who["pid"])
        return now == who["process"] if now else exists(who["pid"])

    def _alive(self, prefix: str) -> str:
        return f"{prefix}alive"

    def _say(self, *, again: bool = False) -> bool:
        """False: `again`, and the server has forgotten it."""
        who = {"host": machine(), "pid": os.getpid(), "process": process(os.getpid())}
        return bool(self._server.set(self._alive(self.prefix), json.dumps(who), ex=DEAD_S, xx=again))

    def _beat(self) -> None:
        heard_s = time.monotonic()
        while not self._over.wait(BEAT_S):
            try:
                self._forgotten = self._forgotten or not self._say(again=True)
                heard_s = time.monotonic()
            except (redis.RedisError, OSError):
                pass
            self._unheard_s = time.monotonic() - heard_s

    def _remove(self, prefix: str) -> None:
        """Remove all keys that begin with a prefix, and then the prefix. Nothing else is touched."""
        keys: list[bytes] = []
        for key in self._server.scan_iter(match=f"{prefix}*", count=BATCH):
            keys.append(key)
            if len(keys) == BATCH:
                self._server.unlink(*keys)
                keys.clear()
        if keys:
            self._server.unlink(*keys)
        self._server.srem(PREFIXES, prefix)


def machine() -> str:
    """Where process ids mean the same: hosts, and containers of one, may have the same name."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def exists(pid: int) -> bool:
    """Whether there is a process of this number, whoever it belongs to."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def process(pid: int) -> str:
    """What tells a process from a later one of the same number; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
