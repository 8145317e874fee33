"""The session of the demonstration, whose output is for people who see it for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import demo
from tests.connector.test_unix_sockets import SETTING


def test_spark_prints_no_traceback_of_workers_that_were_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Unix sockets a worker that Spark has closed after a minute reports it in vain: ``BrokenPipeError``.

    The import of the connector asks for them. That Spark then follows this setting, in the JVM and in its workers, is
    shown by the tests that ``SETTING`` comes from.
    """
    options: dict[str, str] = {}
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: options.update(builder._options))
    demo.start_spark(tmp_path)
    assert options.items() >= SETTING.items()
