"""Properties of many mixed records at once are those of each one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlog_store.columnar.properties import PropertyGroups
from commitlog_store.format.properties import decode_properties
from tests.store.columnar.record_blocks import properties_of_many

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "é", "no such name")


def assert_agrees(rows: list[bytes], cut: int = 0) -> None:
    found = PropertyGroups(pa.array(rows, pa.binary()).slice(cut))
    expected = [decode_properties(row) for row in rows[cut:]]
    for name in NAMES:
        values = found.text(name)
        assert isinstance(values, pa.StringArray)
        assert values.to_pylist() == [row.get(name) for row in expected]


@given(properties_of_many, properties_of_many, st.integers(0, 3))
@example([b""], [b""], 0)
@example([b"", b"TAGS\x01a\x02"], [b"TAGS\x01a\x02TAGS\x01b\x02"], 2)
def test_each_row_has_its_own_value(some: list[bytes], others: list[bytes], cut: int) -> None:
    """Few rows stay together; enough of them are parted by shape and put back in order."""
    assert_agrees(some + others)
    assert_agrees((some + others) * 150, cut)


@pytest.mark.parametrize("shapes", [1, 2, 60, 64, 65, 300])
def test_rows_of_many_shapes_have_their_own_values(shapes: int) -> None:
    """Beyond some number of shapes, the rows stay together."""
    assert_agrees(
        [b"n%d\x01%d\x02" % (index, index) * (index % shapes) + b"TAGS\x01t%d" % index for index in range(600)]
    )


def test_one_odd_row_among_even_ones_has_its_own_value() -> None:
    """Totals that happen to agree do not make rows even."""
    even = [b"TAGS\x01t%d\x02KEYS\x01k\x02" % index for index in range(400)]
    assert_agrees([*even, b"KEYS\x01k\x02TAGS\x01t\x02"])
    assert_agrees([*even, b"TAGS\x01a\x02", b"TAGS\x01a\x02KEYS\x01k\x02WAIT\x01true\x02"])
