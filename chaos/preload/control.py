"""What the library does inside each process of a run: a control file per process, which faults write and `shim.c` reads."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from bench.workload import CONTROL_VARIABLE

#: The host name that processes are told in a run in which its address changes. Nothing but the library knows it.
HOST = "queue.ironclaim.test"

#: offset of the wall clock and delay of each sync, in ns; a host name and the address that it leads to.
LAYOUT = struct.Struct("=qq64s64s")
OFFSETS = {"wall_offset_ns": 0, "sync_delay_ns": 8}
ADDRESS_AT = 16 + 64


class Preload:
    """The library for the processes of one run. `folder`: of the control files. `pretend`: the mutant whose faults do nothing:
    what would change something later is not written."""

    def __init__(self, library: Path, folder: Path, *, pretend: bool = False) -> None:
        self._library = library
        self._folder = folder
        self._pretend = pretend
        #: Where the host name leads.
        self._address = ""

    def environment(self, name: str) -> dict[str, str]:
        """The environment of a process that is about to start; its control file is there then."""
        path = self._path(name)
        if not path.exists():
            path.write_bytes(LAYOUT.pack(0, 0, HOST.encode() if self._address else b"", self._address.encode()))
        before = os.environ.get("LD_PRELOAD", "")
        return {"LD_PRELOAD": f"{self._library} {before}".strip(), CONTROL_VARIABLE: str(path)}

    def set_wall_offset_ns(self, name: str, offset_ns: int) -> None:
        """Set the wall clock of a process to the machine's and so much."""
        self._write(name, OFFSETS["wall_offset_ns"], struct.pack("=q", offset_ns))

    def set_sync_delay_ns(self, name: str, delay_ns: int) -> None:
        """Let every sync to the disk of a process take so much longer."""
        self._write(name, OFFSETS["sync_delay_ns"], struct.pack("=q", delay_ns))

    def lead_to(self, address: str) -> None:
        """Let the host name lead to this address: in processes that start from now on, and in those that were told a host."""
        told = [path for path in self._folder.glob("*.control") if self._address]
        if not (told and self._pretend):
            self._address = address
        for path in told:
            self._write(path.stem, ADDRESS_AT, address.encode().ljust(64, b"\0"))

    def _write(self, name: str, at: int, value: bytes) -> None:
        if self._pretend:
            return
        # In place: the process has the file mapped. A value of eight bytes changes at once, as it is aligned.
        descriptor = os.open(self._path(name), os.O_WRONLY)
        try:
            os.pwrite(descriptor, value, at)
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.control"
