"""How pytest-xdist shares the tests out: those that start Spark as two long ones, the others from each room in turn."""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling

from tests.support.long_runs import share_of

# Two workers get what uses Spark, about as much each, so that no more than two Sparks of the tests' own start: the
# fixture ``spark`` is one session for each worker, ``spark_programs`` one process.
_PROGRAMS = (
    "tests/connector/sink/test_retry",
    "tests/connector/test_tokens",
    "tests/connector/test_unix_sockets",
    "tests/examples/test_examples",
    "tests/examples/test_readme",
    "tests/examples/test_rocketmq_pages",
    "tests/examples/test_tutorials",
)
_SOURCE = tuple(
    f"tests/connector/source/test_{name}"
    for name in (
        "archives",
        "history",
        "listener_numbers",
        "log_elsewhere",
        "lookup",
        "metadata_source",
        "minimum_of_a_trigger",
        "missing_topics",
        "numbers_of_a_query",
        "reading_by_time",
        "record_limit",
        "served_stores",
        "spark_",
    )
)
_SINK = (
    "tests/cluster/",
    "tests/connector/cluster/",
    "tests/connector/options/test_kafka_options",
    "tests/connector/sink/",
    "tests/connector/sink_failures/",
    "tests/connector/test_kafka_rows",
    "tests/connector/test_short_errors",
    "tests/damage_table/test_spark",
)
# One worker parses both packages, and has their syntax trees for all of its tests.
_TIDY = "tests/tidy/"
# All modules with Spark; a tidy test holds them against the tests that use it.
WITH_SPARK = (*_PROGRAMS, *_SOURCE, *_SINK)


def places_in_turn(modules: Iterable[str]) -> dict[str, float]:
    """The place of each module: those with Spark, which are long, come first, and the rooms take turns.

    The tests of a room are alike: they compute, or they wait for a server, or for a process. While some wait, others
    compute, so no worker has a room to itself, and each room lasts from the beginning to the end of the run.
    """
    places: dict[str, float] = {}
    rooms: dict[str, list[str]] = {}
    for module in modules:
        if module.startswith(WITH_SPARK):
            places[module] = -1.0
        else:
            rooms.setdefault(module.rpartition("/")[0], []).append(module)
    for room in rooms.values():
        places |= {module: number / len(room) for number, module in enumerate(room)}
    return places


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """``make test``: modules go to whichever worker is free, in their order: see ``places_in_turn``."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, _ = nodeid.partition("::")
        if module.startswith((*_PROGRAMS, *_SOURCE)):
            return "Spark's source, and programs"
        if module.startswith(_SINK):
            return "Spark's sink"
        return _TIDY if module.startswith(_TIDY) else module


class ByTest(LoadScopeScheduling):  # type: ignore[misc]
    """``make stress``: tests go to whichever worker is free, in their order, which begins with the longest."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
