"""Distinct values of arrays are those that numpy finds."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store.format.arrays import sorted_distinct


@pytest.mark.parametrize("values", [[], [3], [3, 3], [5, -1, 5, 2, -1], list(range(100)) * 2])
def test_distinct_values_are_sorted_and_none_is_left_out(values: list[int]) -> None:
    given = np.array(values, np.int64)
    assert sorted_distinct(given).tolist() == sorted(set(values))
    assert given.tolist() == values
