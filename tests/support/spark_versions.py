"""Marks for tests of what only some versions of Spark have; ``make versions`` runs the tests in each of them."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas import functions

from pyspark_commitlog.spark_versions import HAS_READ_LIMITS

with_read_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="PySpark 4.2 and newer: limits in every batch")
before_read_limits = pytest.mark.skipif(HAS_READ_LIMITS, reason="PySpark 4.0 and 4.1: Spark gives no limits")
with_arrow_udf = pytest.mark.skipif(not hasattr(functions, "arrow_udf"), reason="PySpark 4.1 and newer: Arrow UDFs")
