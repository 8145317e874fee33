"""Positions of consumer groups: read as brokers write them, changed in memory, written whole."""

from __future__ import annotations

import errno
import json
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.config_files.json_file import decode_config
from commitlog_store.errors import CorruptConfig, InvalidValue, NotAStore, StoreIOError
from commitlog_store.files import disk
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from tests.crash.simulated_disk import CrashImages, RecordingDisk

# As 4.9.8 writes it, with a member of the future, and with names that brokers pass over.
OLD = """{
	"later":[1,{"2":3}],
	"offsetTable":{
		"orders@billing":{0:12,1:9},
		"%RETRY%billing@billing":{0:3
		},
		"orders@audit":{0:-1},
		"no group":{7:7},"a@b@c":{1:1}
	}
}"""


def _config(store: Path, text: str | bytes) -> Path:
    path = store / "config" / "consumerOffset.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_brokers_positions_are_read(tmp_path: Path) -> None:
    _config(tmp_path, OLD)
    offsets = ConsumerOffsets(str(tmp_path))
    assert offsets.groups() == ["billing"], "a negative position is none"
    assert offsets.topics("billing") == ["%RETRY%billing", "orders"]
    assert offsets.get("billing", "orders") == {0: 12, 1: 9}
    assert offsets.get("billing", "%RETRY%billing") == {0: 3}
    assert offsets.get("audit", "orders") == offsets.get("nobody", "orders") == {}


def test_a_store_without_the_file_has_no_groups(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(str(tmp_path))
    assert offsets.groups() == offsets.topics("billing") == []
    assert not offsets.flush()
    assert not list(tmp_path.iterdir()), "looking wrote something"


def test_the_file_of_a_real_broker_comes_back_with_its_version_counted(
    tmp_path: Path, golden_broker_config: Path
) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    shutil.copyfile(golden_broker_config / "consumerOffset.json", path)
    old = path.read_text()
    offsets = ConsumerOffsets(str(tmp_path))
    offsets.commit("billing", {("orders", 1): 9, ("orders", 0): 12, ("%RETRY%billing", 0): 3})
    assert offsets.flush()
    timestamp = int(path.read_text().split('"timestamp":')[1].split("\n")[0])
    assert timestamp > json.loads(old)["dataVersion"]["timestamp"] - 10**12
    assert path.read_text() == (
        "{\n"
        f'\t"dataVersion":{{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":{timestamp}\n\t}},\n'
        '\t"groupTopicMap":{\n\t\t"billing":[\n\t\t\t"%RETRY%billing",\n\t\t\t"orders"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n'
        '\t\t"orders@billing":{\n\t\t\t1:9,\n\t\t\t0:12\n\t\t},\n'
        '\t\t"%RETRY%billing@billing":{\n\t\t\t0:3\n\t\t}\n'
        "\t}\n}"
    )
    assert path.with_name("consumerOffset.json.bak").read_text() == old
    assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {0: 12, 1: 9}


def test_what_brokers_pass_over_and_unknown_members_stay(tmp_path: Path) -> None:
    path = _config(tmp_path, OLD)
    offsets = ConsumerOffsets(str(tmp_path))
    offsets.commit("billing", {("orders", 1): 10})
    offsets.flush()
    text = path.read_text()
    assert "\t\t\t1:10\n" in text, "an integer name stands without quotes"
    assert decode_config(text.encode(), str(path), "") == {
        "later": [1, {"2": 3}],
        "offsetTable": {
            "orders@billing": {"0": 12, "1": 10},
            "%RETRY%billing@billing": {"0": 3},
            "orders@audit": {"0": -1},
            "no group": {"7": 7},
            "a@b@c": {"1": 1},
        },
    }, "a file of 4.9.8 gets no dataVersion"


def test_many_commits_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, create = ConsumerOffsets(str(tmp_path)), disk.create_file
    writes: list[str] = []

    def noted(path: str) -> int:
        writes.append(path)
        return create(path)

    monkeypatch.setattr(disk, "create_file", noted)
    for position in range(1_000):
        offsets.commit("billing", {("orders", position % 4): position})
    assert offsets.flush()
    assert not offsets.flush(), "nothing has changed since"
    offsets.commit("billing", {})
    assert not offsets.flush(), "nothing was committed"
    assert writes == [offsets.path + ".tmp"]
    assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {0: 996, 1: 997, 2: 998, 3: 999}


def test_a_smaller_position_is_taken(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(str(tmp_path))
    offsets.commit("billing", {("orders", 0): 9})
    offsets.commit("billing", {("orders", 0): 4})
    assert offsets.get("billing", "orders") == {0: 4}


def test_a_reset_leaves_no_other_position_of_the_topic(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(str(tmp_path))
    offsets.commit("billing", {("orders", 0): 9, ("orders", 5): 9, ("returns", 1): 2})
    offsets.reset("billing", "orders", {0: 1, 1: 0})
    offsets.flush()
    offsets = ConsumerOffsets(str(tmp_path))
    assert offsets.get("billing", "orders") == {0: 1, 1: 0}
    assert offsets.get("billing", "returns") == {1: 2}


def test_a_removed_group_is_gone_and_others_stay(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(str(tmp_path))
    for group in ("billing", "audit"):
        offsets.commit(group, {("orders", 0): 9, ("returns", 1): 2})
    offsets.flush()
    assert offsets.remove("billing") == ["orders", "returns"]
    assert offsets.remove("audit", ["orders", "unknown"]) == ["orders"]
    assert offsets.remove("nobody") == []
    offsets.flush()
    offsets = ConsumerOffsets(str(tmp_path))
    assert (offsets.groups(), offsets.topics("audit")) == (["audit"], ["returns"])


@pytest.mark.parametrize(("topic", "group"), [("a", "b@c"), ("a@b", "c"), ("no group", "x"), ("orders", "bill ing")])
def test_a_name_that_the_table_has_is_not_for_that_a_possible_one(tmp_path: Path, topic: str, group: str) -> None:
    _config(tmp_path, json.dumps({"offsetTable": {f"{topic}@{group}": {"0": 1}}}))
    offsets = ConsumerOffsets(str(tmp_path))
    for _ in range(2):
        with pytest.raises(InvalidValue):
            offsets.commit(group, {(topic, 0): 7})
    assert not offsets.flush()


def test_all_positions_are_given_at_once(tmp_path: Path) -> None:
    _config(tmp_path, OLD)
    assert ConsumerOffsets(str(tmp_path)).all() == {
        ("billing", "%RETRY%billing"): {0: 3},
        ("billing", "orders"): {0: 12, 1: 9},
    }


def test_numbers_of_numpy_become_plain_ones(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(str(tmp_path))
    offsets.commit("billing", {("orders", np.int32(3)): np.int64(4)})  # type: ignore[dict-item]
    offsets.flush()
    assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {3: 4}


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset"),
    [
        ("", "orders", 0, 0),
        ("bill@ing", "orders", 0, 0),
        ("g" * 256, "orders", 0, 0),
        ("billing", "../orders", 0, 0),
        ("billing", "", 0, 0),
        ("billing", "orders", -1, 0),
        ("billing", "orders", 2**31, 0),
        ("billing", "orders", 0, -1),
        ("billing", "orders", 0, 2**63),
    ],
)
def test_an_impossible_position_is_refused_with_all_others(
    tmp_path: Path, group: str, topic: str, queue_id: int, offset: int
) -> None:
    offsets = ConsumerOffsets(str(tmp_path))
    with pytest.raises(InvalidValue):
        offsets.commit(group, {("good", 0): 1, (topic, queue_id): offset})
    with pytest.raises(InvalidValue):
        offsets.reset(group, topic, {queue_id: offset})
    assert offsets.groups() == []
    assert not offsets.flush()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"offsetTable":{"orders@billing":{0:1', b"\0" * 512, b"[]", b'{"offsetTable":[]}']
)
def test_a_damaged_file_is_read_from_its_bak_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    path = _config(tmp_path, damage)
    path.with_name("consumerOffset.json.bak").write_text(OLD)
    offsets = ConsumerOffsets(str(tmp_path))
    assert offsets.get("billing", "orders") == {0: 12, 1: 9}
    assert "consumerOffset.json.bak is read instead of" in caplog.text
    offsets.commit("billing", {("orders", 0): 13})
    offsets.flush()
    assert path.with_name("consumerOffset.json.bak").read_text() == OLD, "damage must not replace a good .bak"
    assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {0: 13, 1: 9}


IMPOSSIBLE = [
    '{"offsetTable":[]}',
    '{"offsetTable":{"orders@billing":7}}',
    '{"offsetTable":{"orders@billing":{0:"7"}}}',
    '{"offsetTable":{"orders@billing":{0:1.5}}}',
    '{"offsetTable":{"orders@billing":{0:true}}}',
    '{"offsetTable":{"orders@billing":{0:9223372036854775808}}}',
    '{"offsetTable":{"orders@billing":{-1:1}}}',
    '{"offsetTable":{"orders@billing":{"first":1}}}',
    '{"offsetTable":{"orders@billing":{2147483648:1}}}',
]


@pytest.mark.parametrize("text", IMPOSSIBLE)
def test_positions_that_no_broker_writes_are_damage(tmp_path: Path, text: str) -> None:
    path = _config(tmp_path, text)
    with pytest.raises(CorruptConfig, match=r"consumer offsets in .*consumerOffset\.json"):
        ConsumerOffsets(str(tmp_path))
    assert path.read_text() == text


_JSON_LIKE = st.one_of(
    st.binary(max_size=60),
    st.text(alphabet='{}[]":,0123456789-.eE @abctrue\\\n', max_size=60).map(str.encode),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps({"offsetTable": {"orders@billing": value}}).encode()),
)


@given(content=_JSON_LIKE, backup=st.none() | _JSON_LIKE | st.just(OLD.encode()))
def test_whatever_the_bytes_are_positions_are_right_or_the_error_is_named(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, backup: bytes | None
) -> None:
    store = tmp_path_factory.mktemp("store", numbered=True)
    path = _config(store, content)
    if backup is not None:
        path.with_name("consumerOffset.json.bak").write_bytes(backup)
    try:
        offsets = ConsumerOffsets(str(store))
    except CorruptConfig:
        assert backup != OLD.encode(), "a good .bak was not read"
        return
    before = {
        (group, topic): offsets.get(group, topic) for group in offsets.groups() for topic in offsets.topics(group)
    }
    assert all(0 <= offset < 2**63 for positions in before.values() for offset in positions.values())
    try:
        offsets.commit("new", {("orders", 0): 1})
        offsets.flush()
    except CorruptConfig:
        assert path.read_bytes() == content
        return
    again = ConsumerOffsets(str(store))
    assert again.get("new", "orders") == {0: 1}
    assert {(group, topic): again.get(group, topic) for group, topic in before} == before


def test_a_disk_that_fails_keeps_the_positions_for_the_next_write(tmp_path: Path) -> None:
    for call in ("create_file", "write_at", "sync", "rename", "sync_directory"):
        offsets = ConsumerOffsets(str(tmp_path))
        offsets.commit("billing", {("orders", 0): len(call)})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, call, _failing)
            with pytest.raises(StoreIOError):
                offsets.flush()
        assert offsets.flush(), call
        assert ConsumerOffsets(str(tmp_path)).get("billing", "orders") == {0: len(call)}


def _failing(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "injected")


def test_a_link_in_place_of_the_file_is_not_written(tmp_path: Path) -> None:
    """Invariant 10."""
    path = _config(tmp_path / "store", OLD)
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    offsets = ConsumerOffsets(str(tmp_path / "store"))
    offsets.commit("billing", {("orders", 0): 1})
    with pytest.raises(NotAStore, match="symbolic link"):
        offsets.flush()
    assert (tmp_path / "outside").read_text() == OLD


def test_after_a_crash_anywhere_positions_are_those_of_a_flush(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _config(store, OLD)
    recorded = RecordingDisk(store)
    with recorded.recording():
        offsets = ConsumerOffsets(str(store))
        for position in (100, 200):
            offsets.commit("billing", {("orders", 0): position})
            offsets.flush()
    images, chance, found = CrashImages(recorded), random.Random(7), set()
    for point in range(recorded.now + 1):
        images.advance(point)
        for _ in range(20):
            images.write(tmp_path / "crashed", chance)
            found.add(ConsumerOffsets(str(tmp_path / "crashed")).get("billing", "orders")[0])
    assert found == {12, 100, 200}
    images.write(tmp_path / "crashed", chance)
    assert ConsumerOffsets(str(tmp_path / "crashed")).get("billing", "orders")[0] == 200, "it was synced in the end"


def test_commits_of_several_threads_all_reach_the_file(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(str(tmp_path))

    def consume(number: int) -> None:
        for position in range(1, 51):
            offsets.commit(f"group{number}", {("orders", 0): position})
            if position % 10 == number:
                offsets.flush()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    offsets.flush()
    read = ConsumerOffsets(str(tmp_path))
    assert [read.get(group, "orders") for group in read.groups()] == [{0: 50}] * 6
