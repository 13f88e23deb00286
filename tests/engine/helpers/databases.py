"""Databases with the tables of `outbox` and `effects`, one of each kind, empty; and what is in their tables."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from engine import effects, outbox


class Database:
    """One database: `address` is what another process connects to."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind, self.address = kind, address

    @property
    def mark(self) -> str:
        return "?" if self.kind == "sqlite" else "%s"

    def connect(self, **options: Any) -> Any:
        return connect(self.kind, self.address, **options)

    async def aconnect(self) -> Any:
        assert self.kind == "postgresql"
        return await psycopg.AsyncConnection.connect(self.address)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection whose transaction is committed in the end."""
        with closing(self.connect()) as connection:
            yield connection
            connection.commit()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            return connection.execute(statement).fetchall()

    def change(self, statement: str) -> None:
        with self.transaction() as connection:
            connection.execute(statement)

    def states(self) -> dict[str, int]:
        return dict(self.query("SELECT state, count(*) FROM ironclaim_outbox GROUP BY state"))


def connect(kind: str, address: str, **options: Any) -> Any:
    return sqlite3.connect(address, timeout=30, **options) if kind == "sqlite" else psycopg.connect(address, **options)


def new_database(kind: str, folder: Path, postgres: Any) -> Database:
    database = Database(kind, str(folder / "shop.db") if kind == "sqlite" else postgres().new_schema())
    with database.transaction() as connection:
        outbox.create_table(connection)
        effects.create_table(connection)
        connection.execute("CREATE TABLE shipped (job TEXT NOT NULL, number INTEGER NOT NULL)")
    return database
