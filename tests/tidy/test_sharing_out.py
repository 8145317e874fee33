"""Two workers have the tests with Spark, and the rooms of the others take turns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.local_spark import PROJECT

_USES_SPARK = re.compile(r"\bspark(?:: SparkSession|_programs: SparkPrograms)")


def test_modules_with_spark_share_two_workers() -> None:
    pytest.importorskip("xdist")
    from tests.support.sharing_out import WITH_SPARK

    found = [path.relative_to(PROJECT) for path in Path(PROJECT, "tests").rglob("test_*.py") if _uses_spark(path)]
    assert len(found) > 30
    elsewhere = [str(path) for path in found if not str(path).startswith(WITH_SPARK)]
    assert not elsewhere, f"a third Spark would start: name these in tests/support/sharing_out.py: {elsewhere}"


def test_the_rooms_take_turns_after_the_modules_with_spark() -> None:
    pytest.importorskip("xdist")
    from tests.support.sharing_out import places_in_turn

    modules = [f"tests/crash/test_{name}.py" for name in "abcd"]
    modules += ["tests/examples/test_examples.py", "tests/model/test_model.py", "tests/tidy/test_a.py"]
    modules += ["tests/tidy/test_b.py"]
    places = places_in_turn(modules)
    assert [module.removeprefix("tests/") for module in sorted(modules, key=places.__getitem__)] == [
        "examples/test_examples.py",
        "crash/test_a.py",
        "model/test_model.py",
        "tidy/test_a.py",
        "crash/test_b.py",
        "crash/test_c.py",
        "tidy/test_b.py",
        "crash/test_d.py",
    ]


def _uses_spark(path: Path) -> bool:
    return _USES_SPARK.search(path.read_text()) is not None
