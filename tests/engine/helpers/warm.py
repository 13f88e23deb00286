"""Python processes that begin with the engine loaded: a process that has loaded it once forks them.

An interpreter that loads the engine, and links its scripts, takes half a second of processor; the tests start hundreds. What such
a process does otherwise is what `python -m` and `python -c` do. It is a child of the process that asks for it, and ends with it.
Who tests the start itself, or what a process loads, or changes that, starts an interpreter.
"""

import ctypes
import functools
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

ROOT = Path(__file__).parents[3]
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MESSAGE_BYTES_MAX = 1 << 17

_starting = threading.Lock()


class WarmProcess(subprocess.Popen[bytes]):
    """A child that `subprocess` has not started, and waits for like any other."""

    def __init__(self, arguments: Sequence[str], pid: int) -> None:
        self.args, self.pid, self.returncode = arguments, pid, None
        self.stdin = self.stdout = self.stderr = None
        vars(self).update(_child_created=True, _waitpid_lock=threading.Lock(), _sigint_wait_secs=0.25)


def start(
    words: Sequence[str], *, env: Mapping[str, str], output: IO[Any], errors: IO[Any] | None = None, cwd: Path = ROOT
) -> subprocess.Popen[bytes]:
    """`python -m MODULE ...` or `python -c PROGRAM ...` as a child of the calling process, in a session of its own. Without
    `errors` it writes them into its output."""
    command = [sys.executable, *words]
    with _starting:
        channel, _ = _forking(os.getpid())
        sys.audit("subprocess.Popen", sys.executable, command, str(cwd), dict(env))
        request = {"words": [*words], "cwd": str(cwd), "env": dict(env), "parent": os.getpid()}
        files = [output.fileno(), (errors or output).fileno()]
        # Only now: what else loses its parent is nobody's child, as ever.
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(channel, [json.dumps(request).encode()], files)
            return WarmProcess(command, int(channel.recv(32)))
        finally:
            _prctl(PR_SET_CHILD_SUBREAPER, 0)


def run(words: Sequence[str], *, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The same to its end."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = start(words, env=env, output=output, errors=errors, cwd=cwd)
        try:
            code = process.wait(300)
        finally:
            process.kill()
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(process.args, code, output.read(), errors.read())


@functools.cache
def _forking(pid: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The way to the process that forks for this one, and ends with it; and that process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with theirs:
        command = [sys.executable, "-m", "tests.engine.helpers.warm", str(theirs.fileno())]
        # Not guarded: it is to outlive the thread that was the first to ask, and it sees our end by that of the way.
        options: dict[str, Any] = {"cwd": ROOT, "env": environment, "stdin": subprocess.DEVNULL, "start_new_session": True}
        process = subprocess.Popen[bytes](command, pass_fds=[theirs.fileno()], **options)
    return ours, process


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# -- in the process that forks, and in those that it has forked


def load() -> None:
    """What every one of them needs."""
    import engine.command.worker  # pyright: ignore[reportUnusedImport]
    import engine.worker.worker  # pyright: ignore[reportUnusedImport]  # noqa: F401
    import record.environment  # pyright: ignore[reportUnusedImport]  # noqa: F401
    from engine.command.main import _parser  # pyright: ignore[reportPrivateUsage]
    from engine.models.lanes import Lanes

    _parser()
    assert Lanes("q").scripts
    gc.freeze()


def serve(channel: socket.socket) -> dict[str, Any]:
    """Fork for each request that comes. Returns in a process that was forked, with its request."""
    while True:
        said, files, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 2)
        if not said:
            sys.exit()
        reader, writer = os.pipe()
        if not (between := os.fork()):
            # Whose parent is gone is a child of the process that has asked for it.
            between = os.getpid()
            if child := os.fork():
                os.write(writer, b"%d" % child)
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0005)
            for descriptor in (reader, writer, channel.detach()):
                os.close(descriptor)
            return {**json.loads(said), "files": files}
        os.waitpid(between, 0)
        channel.send(os.read(reader, 32))
        for descriptor in (reader, writer, *files):
            os.close(descriptor)


def begin(request: dict[str, Any]) -> None:
    """Become what `python` would be with these words, as far as that can be told from inside."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["parent"]:
        os._exit(1)
    os.setsid()
    for descriptor, file in enumerate(request["files"], 1):
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    kind, what, *rest = request["words"]
    sys.orig_argv = [sys.executable, *request["words"]]
    sys.argv = [kind, *rest]
    # Of our own: the folder that it was started in, and PYTHONPATH.
    sys.path[:2] = [request["cwd"] if kind == "-m" else "", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    run_module, main = cast("Any", runpy)._run_module_as_main, vars(sys.modules["__main__"])
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    if kind == "-m":
        run_module(what)
    else:
        del main["__file__"], main["__cached__"]
        main["__spec__"] = main["__package__"] = None
        exec(compile(what, "<string>", "exec"), main)


if __name__ == "__main__":
    load()
    begin(serve(socket.socket(fileno=int(sys.argv[1]))))
