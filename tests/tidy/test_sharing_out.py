"""Whatever uses a Spark of the tests runs on one of the two workers that have one."""

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


def _uses_spark(path: Path) -> bool:
    return _USES_SPARK.search(path.read_text()) is not None
