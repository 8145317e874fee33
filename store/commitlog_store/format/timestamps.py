"""Range of timestamps: the milliseconds that programs which read a store (Spark, Python, SQL) can hold as a time.

A record's born and store timestamps are 64 bits, so a client of a broker can store any number in the first. Here
the writer refuses what lies outside this range, the reader's timestamp columns are null there, and ``verify`` notes it.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import numpy.typing as npt

# The years 1 to 9999, in UTC: those of SQL's and Python's times.
MIN_TIMESTAMP_MS = -62_135_596_800_000
MAX_TIMESTAMP_MS = 253_402_300_799_999


@overload
def is_timestamp(milliseconds: int) -> bool: ...
@overload
def is_timestamp(milliseconds: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]: ...
def is_timestamp(milliseconds: int | npt.NDArray[np.integer[Any]]) -> bool | npt.NDArray[np.bool_]:
    """Whether a time, or each of an array of times, is in the range."""
    return (milliseconds >= MIN_TIMESTAMP_MS) & (milliseconds <= MAX_TIMESTAMP_MS)
