"""The session of the demonstration, whose output is for people who see it for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import demo


class _Builder:
    """Keeps the settings of a session that is not made."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, _name: str) -> _Builder:
        return self

    def master(self, _master: str) -> _Builder:
        return self

    def config(self, key: str, value: str) -> _Builder:
        self.settings[key] = value
        return self

    def getOrCreate(self) -> _Builder:
        return self


def test_spark_prints_no_traceback_of_workers_that_were_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Unix sockets a worker that Spark has closed after a minute reports it in vain: ``BrokenPipeError``."""

    class Session:
        builder = _Builder()

    monkeypatch.setattr(demo, "SparkSession", Session)
    demo.start_spark(tmp_path)
    assert Session.builder.settings["spark.python.unix.domain.socket.enabled"] == "false"
