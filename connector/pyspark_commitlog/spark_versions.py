"""Spark versions: what the PySpark that is installed has, of the parts that are not in 4.0. No other module asks.

===========  =======================================================================================================
since        what, and what the connector does without it
===========  =======================================================================================================
PySpark 4.1  ``DataSourceStreamArrowWriter``. A stream's writer is a ``DataSourceArrowWriter`` too, which 4.0 looks for.
PySpark 4.1  ``arrow_udf``. ``lookup`` is refused.
PySpark 4.2  ``latestOffset(start, limit)``. ``PositionStreamReader`` keeps the position.
PySpark 4.2  ``reportLatestOffset``. The listener reports no lag, and warns of it.
===========  =======================================================================================================

docs/decisions/0029-spark-and-python-versions.md has the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource

from pyspark_commitlog.errors import SparkVersionError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """PySpark 4.0 gives Arrow batches to each ``DataSourceArrowWriter``, whether of a stream or not.

        Source: PySpark 4.0 ``sql/worker/write_into_data_source.py``.
        """


__all__ = ["HAS_READ_LIMITS", "StreamArrowWriter", "find_arrow_udf"]

HAS_READ_LIMITS = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark gives a stream's reader the start of a batch and its limit, and asks it for the ends of its queues."""


def find_arrow_udf() -> Any:
    """The function ``pyspark.sql.functions.arrow_udf``. ``SparkVersionError`` before PySpark 4.1."""
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError as error:
        raise SparkVersionError(
            f"pyspark_commitlog.lookup needs PySpark 4.1 or newer; this is {pyspark.__version__}, which has no Arrow "
            "UDFs. Update PySpark, or join with a batch read of the topic."
        ) from error
    return arrow_udf
