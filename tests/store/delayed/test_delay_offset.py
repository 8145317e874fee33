"""delayOffset.json: read as brokers write it, from its .bak where it is damaged, and changed with the rest kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.errors import CorruptConfig

GOOD = b'{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":1700000000000},"offsetTable":{1:12,3:7},"later":[1]}'


def _config(store: Path, content: bytes | None, backup: bytes | None) -> Path:
    path = store / "config" / "delayOffset.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is not None:
        path.write_bytes(content)
    if backup is not None:
        path.with_name("delayOffset.json.bak").write_bytes(backup)
    return path


def test_levels_are_changed_and_the_rest_stays(tmp_path: Path) -> None:
    path = _config(tmp_path, GOOD, None)
    file = DelayOffsetFile(str(tmp_path))
    assert file.read() == {1: 12, 3: 7}
    file.write({3: 8, 18: 1})
    assert file.read() == {1: 12, 3: 8, 18: 1}
    text = path.read_text()
    assert '"offsetTable":{\n\t\t1:12,\n\t\t3:8,\n\t\t18:1\n\t}' in text
    assert '"counter":5' in text
    assert '"later":[' in text
    assert path.with_name("delayOffset.json.bak").read_bytes() == GOOD


@pytest.mark.parametrize(
    "damage", [None, b"", b"{", b"\0" * 64, b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{1:-1}}']
)
def test_a_file_that_no_broker_writes_is_read_from_its_bak(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    _config(tmp_path, damage, GOOD)
    file = DelayOffsetFile(str(tmp_path))
    assert file.read() == {1: 12, 3: 7}
    assert "delayOffset.json.bak is read instead of" in caplog.text
    file.write({1: 13})
    assert file.read() == {1: 13, 3: 7}
    assert Path(f"{file.path}.bak").read_bytes() == GOOD, "damage must not replace a good .bak"


_ANY = st.one_of(
    st.binary(max_size=60),
    st.text(alphabet='{}[]":,0123456789-.eE \\\n', max_size=60).map(str.encode),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps({"offsetTable": value, "dataVersion": value}).encode()),
    st.dictionaries(st.integers(0, 20).map(str), st.integers(), max_size=3).map(
        lambda table: json.dumps({"offsetTable": table}).encode()
    ),
)


@given(content=st.none() | _ANY, backup=st.none() | _ANY | st.just(GOOD))
def test_whatever_the_bytes_are_offsets_are_right_or_the_error_is_named(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | None, backup: bytes | None
) -> None:
    store = tmp_path_factory.mktemp("store", numbered=True)
    path = _config(store, content, backup)
    file = DelayOffsetFile(str(store))
    try:
        before = file.read()
    except CorruptConfig:
        assert backup != GOOD, "a good .bak was not read"
        return
    assert all(0 <= offset < 2**63 for offset in before.values())
    try:
        file.write({2: 5})
    except CorruptConfig:
        assert (path.read_bytes() if path.exists() else None) == content
        return
    assert DelayOffsetFile(str(store)).read() == {**before, 2: 5}
