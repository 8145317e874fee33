"""Threads: lets a write find the source ``commitlog`` in every thread of the program.

Spark looks for Python data sources in the session that is *active* in the JVM's thread. Each thread of Python has a
thread of the JVM, in which no session is active until the program makes one so; reads name their session, and writes
do not. So a write in another thread than the one that made the session failed with DATA_SOURCE_NOT_FOUND.

Source: Spark ``sql/core/.../execution/datasources/DataSource.scala`` (``isUserDefinedDataSource``).
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

_DONE = "_commitlog_is_found_in_all_threads"


def find_source_in_all_threads(source: str) -> None:
    """Let ``df.write.format(source)`` and ``df.writeStream.format(source)`` make the session of ``df`` active in their
    thread, unless another one is.

    Other formats, and writes of Spark Connect, which has no such threads, are left alone. So is a PySpark without these
    classes: only writes in other threads then need the session made active by the program.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from pyspark.sql.readwriter import DataFrameWriter
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        for writer in (DataFrameWriter, DataStreamWriter):
            if not hasattr(writer.format, _DONE):
                writer.format = _with_session(writer.format, source)  # type: ignore[method-assign]


def _with_session(choose: Any, source: str) -> Any:
    @functools.wraps(choose)
    def choose_with_session(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = [*args, *kwargs.values()][:1]
        if named and str(named[0]).lower() == source:
            # Whatever goes wrong here, the write itself reports it better, or works without.
            with contextlib.suppress(Exception):
                _make_active(self._spark)
        return choose(self, *args, **kwargs)

    setattr(choose_with_session, _DONE, True)
    return choose_with_session


def _make_active(spark: Any) -> None:
    sessions = spark._jvm.SparkSession
    if sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(spark._jsparkSession)
