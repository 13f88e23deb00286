"""The build step of the wheel that links the scripts: a process that starts need not do it
(`engine/redis/scripts.py`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LinkedScripts(BuildHookInterface[Any]):
    """Adds `linked.json` of every model to a wheel. An editable install has none: its scripts may change."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        # What the wheel is made of, and not an engine that is installed.
        sys.path.insert(0, self.root)
        try:
            from engine.models.foreign.foreign import REUSED
            from engine.redis.scripts import FILE, all_models, layers_of, linked_model
        finally:
            sys.path.remove(self.root)
        lua = Path(self.root) / "lua"
        for model in all_models(lua):
            linked = Path(self.root) / "build" / "linked" / f"{model}.json"
            linked.parent.mkdir(parents=True, exist_ok=True)
            linked.write_text(linked_model(lua, model, REUSED))
            folder = layers_of(lua, model)[0][0].relative_to(lua)
            build_data["force_include"][str(linked)] = f"engine/lua/{folder}/{FILE}"
