"""Properties of many records at once."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commitlog_store.columnar.properties import PropertyRows
from commitlog_store.format.properties import decode_properties
from tests.store.columnar.record_blocks import properties_of_many


@settings(max_examples=6 * settings().max_examples)
@given(properties_of_many)
@example([b""])
@example([b"", b"TAGS\x01a\x02", b""])
@example([b"TAGS\x01a", b"TAGS\x01b\x02"])
@example([b"TAGS\x01a\x02TAGS\x01b\x02"])
@example([b"TAGS\x01a\x02TAGS\x01\x02"])
@example([b"TAGS\x01\x02", b"TAGS\x01b\x02"])
@example([b"TAGS\x01a\x01b\x02"])
@example([b"\x01a\x02", b"\x02\x02", b"\x01\x02"])
@example([b"TAGS\x01", b"x\x02"])
@example([b"TAGS\x01a", b"x\x02TAGS\x01b"])
@example([b"TAGS\x01\0a\0\x02", b"TA\0GS\x01a\x02"])
@example([b"\xff\x01a\x02\xfe\x01b\x02"])
@example([b"KEYS\x01a\x02TAGS\x01b\x02", b"TAGS\x01b\x02KEYS\x01a\x02"])
@example([b"TAGS\x01" + b"\xff" * 13, b"TAGS\x01" + b"x" * 13])
def test_property_columns_equal_decode_properties(rows: list[bytes]) -> None:
    expected = [decode_properties(row) for row in rows]
    found = PropertyRows(pa.array(rows, pa.binary()))
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "é", "a name", "a name that no row has"):
        assert found.text(name).to_pylist() == [row.get(name) for row in expected], name
    as_map = found.map()
    as_map.validate(full=True)
    assert [dict(row) for row in as_map.to_pylist()] == expected
    assert all(len(row) == len(dict(row)) for row in as_map.to_pylist()), "a map holds every name once"


@given(properties_of_many, st.integers(0, 3), st.integers(0, 3))
def test_property_columns_of_a_slice_equal_those_of_its_rows(rows: list[bytes], skip: int, cut: int) -> None:
    whole = pa.array([b"junk\x01junk\x02"] * skip + rows + [b"\x01\x02"] * cut, pa.binary())
    found = PropertyRows(whole.slice(skip, len(rows)))
    assert found.text("TAGS").to_pylist() == [decode_properties(row).get("TAGS") for row in rows]
    assert [dict(row) for row in found.map().to_pylist()] == [decode_properties(row) for row in rows]


def test_no_rows_have_no_properties() -> None:
    found = PropertyRows(pa.array([], pa.binary()))
    assert found.text("TAGS").to_pylist() == []
    assert found.map().to_pylist() == []
