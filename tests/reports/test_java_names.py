"""What PySpark asks the JVM for again and again is asked for once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F


def test_a_function_of_columns_is_one_call_of_java_when_its_name_is_known(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> Any:
        return F.array(F.lit(1), F.col("id"))

    made()
    context: Any = spark.sparkContext
    client = context._gateway._gateway_client
    asked: list[str] = []
    send = client.send_command

    def noted(command: str, *rest: Any, **more: Any) -> Any:
        asked.append(command)
        return send(command, *rest, **more)

    monkeypatch.setattr(client, "send_command", noted)
    column = made()
    assert [command.splitlines()[0] for command in asked if command.startswith("r")] == [], "no name is looked up"
    assert sum(command.startswith("c") for command in asked) >= 4
    assert spark.range(2).select(column.alias("pair")).collect() == [Row(pair=[1, 0]), Row(pair=[1, 1])]
