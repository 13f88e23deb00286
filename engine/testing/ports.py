"""Free loopback ports, also for listeners that close and open again."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"

#: What the kernel gives to outgoing connections: "<lowest> <highest>".
LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOCAL_LOWEST = 32_768

#: Below this are well-known services.
LOWEST = 10_000

TRIES = 50


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago. Somebody else may take it before you bind: be ready to try another."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def quiet_port() -> int:
    """A free TCP port of 127.0.0.1 that the kernel does not give to outgoing connections.

    A proxy that is switched off leaves its port. Any client of this machine may get a port of the kernel's range in the meantime;
    one that connects to the very port that it was given is even connected to itself. Somebody may still take it on purpose
    before you bind: be ready to try another.
    """
    for _ in range(TRIES):
        # Not from the seed: two drills of one seed must not fight for the same ports.
        port = random.SystemRandom().randrange(LOWEST, max(LOWEST + 1, lowest_local_port()))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            # As servers do: a port whose last connections are only being forgotten is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
        return port
    return free_port()


def lowest_local_port() -> int:
    """Where the kernel's range for outgoing connections begins."""
    try:
        return int(LOCAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LOCAL_LOWEST
