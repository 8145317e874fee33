"""How pytest-xdist shares the tests out: a module at a time, and those that start Spark as if they were two."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

__all__ = ["ByModule"]

# One worker gets all of a kind: those with the fixture ``spark``, whose session starts once, and the programs that
# start a Spark of their own.
_SPARK_SESSION = (
    "tests/connector/source/test_spark_",
    "tests/connector/sink/",
    "tests/connector/sink_failures/",
)
_SPARK_PROGRAMS = (
    "tests/connector/source/test_spark_crash",
    "tests/connector/sink/test_connect",
    "tests/connector/sink/test_retry",
    "tests/examples/",
)


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """Modules go to whichever worker is free, as they were collected: those with Spark, which are long, early."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, _ = nodeid.partition("::")
        if module.startswith(_SPARK_PROGRAMS):
            return "Spark programs"
        return "Spark session" if module.startswith(_SPARK_SESSION) else module
