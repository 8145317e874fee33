"""Files cut at every length, and stretches of garbage over any part of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError
from tests.store.damage.filled_store import (
    BODIES,
    LOG_FILE_SIZE,
    QUEUE_FILE_UNITS,
    expected_bodies,
    fill,
    index_file,
    log_file,
    queue_file,
    read_everything,
)
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.stress)])
@pytest.mark.parametrize("which", [log_file, queue_file, index_file])
def test_files_cut_at_every_length_give_the_right_rows_or_an_error(
    builder: StoreBuilder, which: Callable[[StoreBuilder], Path], step: int
) -> None:
    path = which(builder)
    data = path.read_bytes()
    for length in range(0, len(data), step if which is queue_file else 7 * step):
        path.write_bytes(data[:length])
        try:
            for queue, bodies in read_everything(builder.path).items():
                whole = expected_bodies()[queue]
                # Only a queue that was cut may end earlier: its units are all there is to say how far it went.
                assert bodies == (whole[: len(bodies)] if which is queue_file else whole), queue
            with StoreReader.open(builder.path) as reader:
                for message in reader.query("a", "k0"):
                    assert message.body == BODIES[0]
                reader.index_files()
                reader.physical_bounds()
        except CommitLogError:
            continue


def _hundred_bytes(data: bytes, start: int) -> bytes:
    return data[start : start + 100]


@settings(max_examples=3 * settings().max_examples)
@given(st.data())
def test_garbage_over_any_part_of_any_file_gives_the_right_rows_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Stretches of garbage, zeros, or another part of the same file, as torn writes and bad disks leave them."""
    template = _template(tmp_path_factory)
    store = tmp_path_factory.mktemp("garbage") / "store"
    shutil.copytree(template, store)
    files = sorted(path for path in store.rglob("*") if path.is_file())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(files))
        old = bytearray(path.read_bytes())
        if not old:
            continue
        start = data.draw(st.integers(0, len(old) - 1))
        garbage = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=40),
                st.integers(1, 300).map(bytes),
                st.integers(0, len(old) - 1).map(partial(_hundred_bytes, bytes(old))),
            )
        )
        old[start : start + len(garbage)] = garbage
        path.write_bytes(old[: max(len(old), 1)])
    try:
        found = read_everything(store)
    except CommitLogError:
        found = {}
    whole = expected_bodies()
    for queue, bodies in found.items():
        if queue != ("packed", 0):  # nothing protects the bit that says whether a body is compressed
            assert set(bodies) <= set(whole[queue])
    with StoreReader.open(store) as reader:
        for number in (0, 15):
            try:
                messages = reader.query("b" if number == 15 else "a", f"k{number}")
            except CommitLogError:
                continue
            assert {m.body for m in messages} <= {BODIES[number]}
    shutil.rmtree(store.parent)


_templates: dict[str, Path] = {}


def _template(factory: pytest.TempPathFactory) -> Path:
    if "template" not in _templates:
        path = factory.mktemp("template") / "store"
        fill(StoreBuilder(path, log_file_size=LOG_FILE_SIZE, queue_file_units=QUEUE_FILE_UNITS))
        _templates["template"] = path
    return _templates["template"]
