"""Databases with the tables of `outbox` and `effects`, one of each kind, empty; and what is in their tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from engine import effects, outbox


class Database:
    """One database: `address` is what another process connects to."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self.address = address

    @property
    def mark(self) -> str:
        return "?" if self.kind == "sqlite" else "%s"

    def connect(self, **options: Any) -> Any:
        return connect(self.kind, self.address, **options)

    async def aconnect(self) -> Any:
        assert self.kind == "postgresql"
        return await psycopg.AsyncConnection.connect(self.address)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def change(self, statement: str) -> None:
        connection = self.connect()
        try:
            connection.execute(statement)
            connection.commit()
        finally:
            connection.close()

    def states(self) -> dict[str, int]:
        return dict(self.query("SELECT state, count(*) FROM ironclaim_outbox GROUP BY state"))


def connect(kind: str, address: str, **options: Any) -> Any:
    return sqlite3.connect(address, timeout=30, **options) if kind == "sqlite" else psycopg.connect(address, **options)


def new_database(kind: str, folder: Path, postgres: Any) -> Database:
    address = str(folder / "shop.db") if kind == "sqlite" else postgres().new_database()
    database = Database(kind, address)
    connection = database.connect()
    outbox.create_table(connection)
    effects.create_table(connection)
    connection.execute("CREATE TABLE shipped (job TEXT NOT NULL, number INTEGER NOT NULL)")
    connection.commit()
    connection.close()
    return database
