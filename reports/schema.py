"""The Spark schema of a history row, derived from the table in `engine.history`: every integer BIGINT, tokens as strings."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from engine.history import ITEM_FIELDS, ROW_FIELDS, Field

#: Column in which Spark puts a line that does not fit the schema.
CORRUPT = "_corrupt_record"


def item_type() -> StructType:
    """One entry of `items`."""
    return StructType([StructField(field.name, spark_type(field)) for field in ITEM_FIELDS])


def row_type() -> StructType:
    """One history row, all columns nullable, with the column for corrupt lines last."""
    columns = [StructField(field.name, spark_type(field)) for field in ROW_FIELDS]
    return StructType([*columns, StructField(CORRUPT, StringType())])


def spark_type(field: Field) -> DataType:
    """The Spark type of one field."""
    if field.type == "items":
        return ArrayType(item_type())
    if field.type == "list[str]":
        return ArrayType(StringType())
    return LongType() if field.type == "int" else StringType()
