"""Holds rows against the table that documents them (rule 29)."""

import json
from pathlib import Path
from typing import Any

from record.history import ITEM_FIELDS, ROW_FIELDS, Field

ROWS = {field.name: field for field in ROW_FIELDS}
ITEMS = {field.name: field for field in ITEM_FIELDS}
#: The table calls these operations together `end`; a renewal carries the same token.
ENDS = ("finish", "retry", "bury", "release", "drop", "extend")


def raw_rows(path: Path) -> list[dict[str, Any]]:
    """The rows as they are in the file, without the columns that the loader adds."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_rows(rows: list[dict[str, Any]]) -> None:
    """Each row and item has only documented columns, of the documented types, and those that every row must have."""
    for row in rows:
        kinds = {row["kind"]}
        for name, value in row.items():
            _check(ROWS, name, value, kinds)
        assert {name for name, field in ROWS.items() if field.kinds == "*"} <= set(row), row
        kinds |= {row["f"]} | ({"end"} if row["f"] in ENDS else set()) if row["kind"] == "operation" else set()
        for item in row.get("items", []):
            for name, value in item.items():
                _check(ITEMS, name, value, kinds)


def _check(table: dict[str, Field], name: str, value: object, kinds: set[str]) -> None:
    assert name in table, f"column {name} is not documented"
    field = table[name]
    assert field.kinds == "*" or kinds & set(field.kinds.split()), f"column {name} is documented for {field.kinds}, not {kinds}"
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool), "str": isinstance(value, str),
        "list[str]": isinstance(value, list) and all(isinstance(entry, str) for entry in value),
        "items": isinstance(value, list) and all(isinstance(entry, dict) for entry in value),
    }  # fmt: skip
    assert fits[field.type], f"column {name} is documented as {field.type}: {value!r}"


def checked_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a history that is as its schema says."""
    rows = raw_rows(path)
    check_rows(rows)
    return rows
