"""The build step of the harness's wheel: its packages lie beside this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("bench", "chaos", "record", "reports")

#: Programs of other queues, which run in environments of their own.
LEFT_OUT = ("__pycache__", "node_modules", "adapters")

#: What is code, or data that code reads.
SUFFIXES = (".py", ".toml", ".css", ".js", ".json", ".c")


class Packages(BuildHookInterface[Any]):
    """Adds the files of the packages to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name each file with its place."""
        checkout = Path(self.root).parent
        for package in PACKAGES:
            for path in sorted((checkout / package).rglob("*")):
                parts = path.relative_to(checkout).parts
                left_out = any(part in LEFT_OUT or part.startswith(".") for part in parts)
                if path.is_file() and path.suffix in SUFFIXES and path.name != "ruff.toml" and not left_out:
                    build_data["force_include"][str(path)] = "/".join(parts)
