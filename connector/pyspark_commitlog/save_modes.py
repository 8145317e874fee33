"""Modes of ``save()``: for a mode that cannot be, the error says ``.mode("append")`` in place of Spark's own advice.

``save()`` without a mode means ``errorifexists``. Spark refuses it for every Python data source, before the source is
asked, and its sentence offers ``Overwrite``, which this sink refuses in turn.

Source: Spark ``UNSUPPORTED_DATA_SOURCE_SAVE_MODE``, ``DataFrameWriter.scala`` (``saveInternal``).
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

_DONE = "_commitlog_explains_modes"
_CONDITION = "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"


def explain_modes(source: str) -> None:
    """Let ``df.write.format(source)...save()`` raise an ``OptionError`` where Spark refuses the mode.

    Other formats and other errors are left alone; so is Spark Connect, where Spark's own sentence stays.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from pyspark.sql.readwriter import DataFrameWriter

        if not hasattr(DataFrameWriter.save, _DONE):
            DataFrameWriter.save = _explained(DataFrameWriter.save, source)  # type: ignore[method-assign]


def _explained(save: Any, source: str) -> Any:
    from pyspark.errors import AnalysisException

    @functools.wraps(save)
    def explained_save(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            save(self, *args, **kwargs)
        except AnalysisException as error:
            given = error.getMessageParameters() or {}
            if error.getCondition() != _CONDITION or str(given.get("source")).lower() != source:
                raise
            from pyspark_commitlog.errors import OptionError  # here: Spark's discovery of sources imports this module

            mode = str(given.get("createMode", "")).strip('"').lower()
            raise OptionError(_advice(mode), option="mode", value=mode) from error

    setattr(explained_save, _DONE, True)
    return explained_save


def _advice(mode: str) -> str:
    why = (
        "save() without a mode means errorifexists, which"
        if mode == "errorifexists"
        else f'mode("{mode}") leaves an existing store as it is, which'
    )
    return f'{why} is not for a log: it is only appended to. Use .mode("append"). Nothing was written.'
