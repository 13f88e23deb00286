"""The names of Java that PySpark looks up again for each column that it makes: here the JVM is asked once for each.

A third of all round trips of a judging were such questions, and for some of them the JVM searched all jars of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

#: What columns are made by, each by the name that PySpark uses.
ASKED_OFTEN = ("org.apache.spark.sql.functions", "functions", "PythonUtils", "PythonSQLUtils")


def remember(context: SparkContext) -> None:
    """Keep these classes, and each static function of theirs when it has been used once, as long as the JVM lives."""
    from py4j.java_gateway import JavaClass, JavaMember

    class Known(JavaClass):
        """A class whose functions are looked up once."""

        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            if isinstance(found, JavaMember):
                self.__dict__[name] = found
            return found

    jvm: Any = context._jvm
    for name in ASKED_OFTEN:
        asked = getattr(jvm, name)
        setattr(jvm, name, Known(asked._fqn, asked._gateway_client))
