"""How pytest-xdist shares the tests out: a module at a time, and all that start Spark as if they were one."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

__all__ = ["ByModule"]

# One worker gets all of these: the session of the fixture ``spark`` starts once, and no two JVMs start side by side.
_STARTS_SPARK = ("tests/connector/test_spark_", "tests/connector/test_sink_", "tests/examples/")


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """Modules go to whichever worker is free, as they were collected: those with Spark, which are long, early."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, _ = nodeid.partition("::")
        return "Spark" if module.startswith(_STARTS_SPARK) else module
