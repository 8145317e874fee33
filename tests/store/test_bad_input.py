"""What is no store, and stores that are damaged: one clear error each, and never a wrong body."""

from __future__ import annotations

import os
import pickle
import random
import resource
import shutil
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog import ALL_COLUMNS, MessageExt, StoreReader, errors
from commitlog.errors import (
    CommitLogError,
    CorruptCheckpoint,
    CorruptConsumeQueue,
    CorruptIndex,
    CorruptRecord,
    CorruptStoreError,
    InvalidValue,
    MessageNotFound,
    NotAStore,
    StoreNotFound,
    StoreOpenError,
    TopicNotFound,
    UnsupportedStore,
)
from commitlog.format import compression, record_bodies
from commitlog.format.consume_queue_unit import UNIT_SIZE
from commitlog.format.index_file import HEADER_SIZE, entry_offset, slot_offset
from commitlog.format.java_hash import index_key_hash
from commitlog.format.sys_flag import CompressionType
from tests.support import golden
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []

LOG_FILE_SIZE = 2400
QUEUE_FILE_UNITS = 20


# -- no store ----------------------------------------------------------------------------------------------------------


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound, match="no such directory") as raised:
        StoreReader.open(tmp_path / "nothing")
    assert raised.value.path == str(tmp_path / "nothing")
    assert raised.value.path in str(raised.value)


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"?")
    with pytest.raises(NotAStore, match="is a file"):
        StoreReader.open(tmp_path / "file")
    with pytest.raises(StoreOpenError):
        StoreReader.open(tmp_path / "file" / "below")


def test_a_directory_of_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(NotAStore, match="holds neither 'commitlog'"):
        StoreReader.open(tmp_path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_path_that_no_file_system_has_is_not_found(path: str) -> None:
    with pytest.raises(StoreNotFound):
        StoreReader.open(path)


def test_a_link_that_leads_to_itself_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreOpenError):
        StoreReader.open(tmp_path / "loop")


def test_the_store_is_pointed_at_when_it_is_near(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").path
    with pytest.raises(NotAStore, match=f"Did you mean {store}"):
        StoreReader.open(tmp_path)
    (store / "commitlog" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(NotAStore, match=f"did you mean {store}"):
        StoreReader.open(store / "commitlog")


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_a_file_where_a_directory_of_the_store_should_be(tmp_path: Path, name: str) -> None:
    store = StoreBuilder(tmp_path / "store").path
    (store / name).rmdir()
    (store / name).write_bytes(b"?")
    with pytest.raises(NotAStore, match="should be a directory") as raised:
        StoreReader.open(store)
    assert raised.value.path == str(store / name)


# -- stores of another kind --------------------------------------------------------------------------------------------


def test_rocksdb_consume_queues_are_refused_by_name(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").path
    for name in ("CURRENT", "MANIFEST-000005", "000012.sst", "LOCK"):
        (store / "consumequeue" / name).write_bytes(b"")
    with pytest.raises(UnsupportedStore, match="RocksDB"):
        StoreReader.open(store)


def test_dledger_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "consumequeue").mkdir()
    with pytest.raises(UnsupportedStore, match="dledger-n0"):
        StoreReader.open(tmp_path)


@pytest.mark.parametrize(
    ("directory", "words"), [("batchconsumequeue", "batch"), ("compaction/compactionCq", "compaction topic")]
)
def test_topics_of_another_kind_are_refused_by_name_and_the_others_read(
    tmp_path: Path, directory: str, words: str
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("plain", 0, [b"x"])
    builder.append("special", 0, [b"y"])
    (builder.path / directory / "special" / "0").mkdir(parents=True)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(UnsupportedStore, match=words) as raised:
            reader.queues("special")
        assert "'special'" in str(raised.value)
        assert reader.queues("plain")[0].max_offset == 1
        assert reader.physical_bounds()[1] > 0


# -- things in the place of files --------------------------------------------------------------------------------------


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store", log_file_size=LOG_FILE_SIZE, queue_file_units=QUEUE_FILE_UNITS)
    fill(builder)
    return builder


def fill(builder: StoreBuilder) -> None:
    """Thirty messages of two topics, some compressed, over three log files, with an index."""
    entries: list[tuple[str, int, int]] = []
    for topic, start in (("a", 0), ("b", 10), ("a", 20)):
        numbers = range(start, start + 10)
        times = range(builder.now_ms, builder.now_ms + 10_000, 1000)
        places = builder.append(
            topic, [0, 1], [BODIES[n] for n in numbers], keys=[f"k{n}" for n in numbers], step_ms=1000
        )
        entries += [(f"{topic}#k{n}", int(p), t) for n, p, t in zip(numbers, places, times, strict=True)]
    packed = [compression.compress(PACKED[at], kind) for at, kind in enumerate(CompressionType)]
    for at, kind in enumerate(CompressionType):
        builder.append("packed", 0, [packed[at]], sys_flag=1 | kind.value)
    builder.write_index("20261121000000000", entries, slots=10)


BODIES = [f"body of message {n} ".encode() * (n % 7 + 1) for n in range(30)]
PACKED = [f"packed {n} ".encode() * 100 for n in range(3)]


def expected_bodies() -> dict[tuple[str, int], list[bytes]]:
    a = [*BODIES[0:10], *BODIES[20:30]]
    b = BODIES[10:20]
    return {("a", 0): a[::2], ("a", 1): a[1::2], ("b", 0): b[::2], ("b", 1): b[1::2], ("packed", 0): PACKED}


def log_file(builder: StoreBuilder, number: int = 0) -> Path:
    return sorted((builder.path / "commitlog").iterdir())[number]


def queue_file(builder: StoreBuilder) -> Path:
    return builder.path / "consumequeue" / "a" / "0" / f"{0:020d}"


def index_file(builder: StoreBuilder) -> Path:
    return builder.path / "index" / "20261121000000000"


def read_everything(store: Path) -> dict[tuple[str, int], list[bytes]]:
    """All bodies of all queues, through every column, with the CRC checked."""
    found = {}
    with StoreReader.open(store) as reader:
        for topic in reader.topics():
            for queue in reader.queues(topic):
                batches = reader.read(topic, queue.queue_id, queue.min_offset, columns=ALL_COLUMNS, verify_crc=True)
                found[topic, queue.queue_id] = [body for batch in batches for body in batch["body"].to_pylist()]
    return found


def test_the_undamaged_store_reads_whole(builder: StoreBuilder) -> None:
    """Else the tests below would show nothing."""
    assert read_everything(builder.path) == expected_bodies()
    assert len(list((builder.path / "commitlog").iterdir())) == 3
    with StoreReader.open(builder.path) as reader:
        for number in range(30):
            topic = "b" if 10 <= number < 20 else "a"
            assert [m.body for m in reader.query(topic, f"k{number}")] == [BODIES[number]]


def _a_pipe(path: Path) -> None:
    os.mkfifo(path)


def _a_directory(path: Path) -> None:
    path.mkdir()


def _a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _a_broken_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("which", [log_file, queue_file, index_file])
@pytest.mark.parametrize("put", [_a_pipe, _a_directory, _a_device])
def test_something_else_in_the_place_of_a_file_is_named_and_never_waited_for(
    builder: StoreBuilder, which: Callable[[StoreBuilder], Path], put: Callable[[Path], None]
) -> None:
    """Opening a pipe for reading blocks until somebody writes; a device has no end."""
    path = which(builder)
    path.unlink()
    put(path)
    with StoreReader.open(builder.path) as reader:
        looks: list[Callable[[], object]] = (
            [lambda: reader.query("a", "k0"), reader.index_files]
            if which is index_file
            else [lambda: list(reader.read("a", 0, 0)), lambda: list(reader.read("a", 0, 0))]
        )
        for look in looks:
            with pytest.raises(CommitLogError, match=str(path)):
                look()
        with pytest.raises(CommitLogError):
            reader.message_at(0) if which is log_file else looks[0]()


def test_a_link_to_nowhere_is_a_missing_file(builder: StoreBuilder) -> None:
    path = log_file(builder)
    path.unlink()
    _a_broken_link(path)
    with StoreReader.open(builder.path) as reader, pytest.raises(CommitLogError):
        list(reader.read("a", 0, 0))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("put", [_a_pipe, _a_directory])
def test_something_else_in_the_place_of_the_checkpoint(builder: StoreBuilder, put: Callable[[Path], None]) -> None:
    (builder.path / "checkpoint").unlink()
    put(builder.path / "checkpoint")
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CommitLogError, match="checkpoint"):
            reader.checkpoint()
        assert len(read_everything(builder.path)) == 5, "nothing else needs it"


@pytest.mark.parametrize("data", [b"", b"x", bytes(4095), bytes(4097), b"\xff" * 4096, b"\x7f" * 4096, bytes(1 << 20)])
def test_a_checkpoint_that_cannot_be(builder: StoreBuilder, data: bytes) -> None:
    path = builder.path / "checkpoint"
    path.write_bytes(data)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptCheckpoint) as raised:
        reader.checkpoint()
    assert raised.value.path == str(path)


def test_a_file_where_a_topic_or_a_queue_should_be(builder: StoreBuilder) -> None:
    queues = builder.path / "consumequeue"
    (queues / "file_topic").write_bytes(b"?")
    (queues / "a" / "7").write_bytes(b"?")
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(TopicNotFound):
            reader.queues("file_topic")
        for _ in range(2):
            with pytest.raises(CorruptConsumeQueue, match="expected a directory") as raised:
                reader.queue_info("a", 7)
            assert raised.value.path == str(queues / "a" / "7")
        assert reader.queue_info("a", 0).max_offset == 10


def test_a_queue_file_with_a_name_between_two_units(builder: StoreBuilder) -> None:
    (queue_file(builder).parent / f"{30:020d}").write_bytes(b"")
    with StoreReader.open(builder.path) as reader:
        for _ in range(2):
            with pytest.raises(CorruptConsumeQueue, match="a multiple of the unit size 20, found 30"):
                reader.queue_info("a", 0)
        assert reader.queue_info("a", 1).max_offset == 10


def test_what_is_wrong_with_one_queue_does_not_hide_the_others(builder: StoreBuilder) -> None:
    (queue_file(builder).parent / f"{30:020d}").write_bytes(b"")
    with StoreReader.open(builder.path) as reader:
        assert reader.topics() == ["a", "b", "packed"]
        assert reader.queue_info("b", 0).max_offset == 5
        assert reader.message_at(0).body == BODIES[0]


# -- permission --------------------------------------------------------------------------------------------------------


def _as_nobody(program: str) -> str:
    """Run a program as a user who may read only what all may."""
    text = "import os\n"
    if os.geteuid() == 0:
        # The interpreter itself may lie where only root can look: everything is imported first.
        text = "import os, commitlog.reader, commitlog.cli.app\nimport encodings.idna, pyarrow.compute\n"
        text += "os.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"
    text += "from commitlog import StoreReader\nfrom commitlog.errors import *\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text], cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_builder(builder: StoreBuilder) -> Iterator[StoreBuilder]:
    """A store that everybody may read: pytest's directories are private."""
    opened = []
    for directory in [builder.path, *builder.path.parents]:
        if directory == Path("/tmp") or directory == Path("/"):
            break
        opened.append((directory, directory.stat().st_mode))
        directory.chmod(0o755)
    for path in builder.path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield builder
    for path in [builder.path, *builder.path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for directory, mode in opened:
        directory.chmod(mode & 0o7777)


def test_everybody_reads_what_everybody_may(open_builder: StoreBuilder) -> None:
    """A store of another user is opened read-only, without a lock: that is enough."""
    said = _as_nobody(f"print(sum(b.num_rows for b in StoreReader.open({str(open_builder.path)!r}).read('a', 0, 0)))")
    assert said == "10"


@pytest.mark.parametrize(
    "closed",
    [
        ".", "commitlog", "consumequeue", "consumequeue/a", "consumequeue/a/0", f"consumequeue/a/0/{0:020d}",
        f"commitlog/{0:020d}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", [0o000, 0o200])
def test_no_permission_is_said_so_with_the_path(open_builder: StoreBuilder, closed: str, mode: int) -> None:
    """A mode that lets names be listed and nothing behind them be reached refuses directories in another place."""
    path = open_builder.path / closed
    path.chmod(mode | (0o444 if mode and path.is_dir() else 0))
    said = _as_nobody(
        f"""
        try:
            reader = StoreReader.open({str(open_builder.path)!r})
            print(sum(batch.num_rows for batch in reader.read("a", 0, 0)))
        except StoreAccessDenied as error:
            print(error.path)
            assert error.path in str(error) and "permission" in str(error).lower()
        """
    )
    assert said.startswith(str(path.resolve() if closed == "." else path)), said


def test_no_permission_for_one_topic_leaves_the_others(open_builder: StoreBuilder) -> None:
    (open_builder.path / "consumequeue" / "a").chmod(0)
    said = _as_nobody(
        f"""
        reader = StoreReader.open({str(open_builder.path)!r})
        print(reader.topics(), reader.queue_info("b", 0).max_offset)
        """
    )
    assert said == "['a', 'b', 'packed'] 5"


# -- errors ------------------------------------------------------------------------------------------------------------


def _every_error() -> list[CommitLogError]:
    made: list[CommitLogError] = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, CorruptStoreError):
            made.append(kind("What", path="/p", offset=7, expected="this", found="that", advice="Do so."))
        elif issubclass(kind, StoreOpenError | errors.FileChanged):
            made.append(kind("What happened", path="/p"))
        elif kind is errors.FileMissing:
            made.append(kind(path="/p", topic="t", queue_id=1, start=2, stop=3))
        elif kind is errors.OffsetOutOfRange:
            made.append(kind(topic="t", queue_id=1, start=2, stop=3, min_offset=4, max_offset=5))
        else:
            made.append(kind("What happened"))
    return made


@pytest.mark.parametrize("error", _every_error(), ids=lambda error: type(error).__name__)
def test_errors_come_through_pickle_with_all_they_say(error: CommitLogError) -> None:
    """Spark's workers send them to the driver so."""
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert isinstance(back, CommitLogError)


def test_corruption_says_where_what_was_expected_and_what_was_found(builder: StoreBuilder) -> None:
    path = log_file(builder)
    data = bytearray(path.read_bytes())
    data[89] ^= 1
    path.write_bytes(data)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CorruptRecord) as by_column:
            list(reader.read("a", 0, 0, verify_crc=True))
        with pytest.raises(CorruptRecord) as by_place:
            reader.message_at(0)
    crc = zlib.crc32(BODIES[0]) & 0x7FFFFFFF
    for error in (by_column.value, by_place.value):
        assert (error.path, str(crc) in str(error)) == (str(path), True)
        assert all(str(one) in str(error) for one in (error.path, error.offset, error.expected, error.found))
    assert "topic 'a', queue 0, offset 0" in str(by_column.value)
    assert pickle.loads(pickle.dumps(by_column.value)).offset == by_column.value.offset


def test_an_error_tree_is_drawn_as_it_is() -> None:
    drawn = errors.__doc__ or ""
    for name in errors.__all__:
        assert f"{name} " in drawn or f"{name}\n" in drawn
        assert getattr(errors, name).__doc__


# -- damage: every byte ------------------------------------------------------------------------------------------------


def _only_right(found: dict[tuple[str, int], list[bytes]]) -> None:
    """Bodies are the written ones in their order; what damage hides may only be the last of a queue.

    A queue's last units cannot be told from units that were never written, or whose messages never reached the log.
    """
    whole = expected_bodies()
    for queue, bodies in found.items():
        if queue in whole:
            assert bodies == whole[queue][: len(bodies)], queue


T = TypeVar("T")


def _outcome(look: Callable[[], T]) -> T | CommitLogError:
    """What a look gives, or the error it ends in; any other exception is a failure of the test."""
    try:
        return look()
    except CommitLogError as error:
        return error


def _damage(path: Path, at: int, value: int) -> Callable[[], None]:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([value]))

    def undo() -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(old)

    return undo


def _flips(byte: int) -> list[int]:
    return [value for value in dict.fromkeys((byte ^ 0xFF, byte ^ 0x01, 0, 0x80 ^ byte)) if value != byte]


# The system flag says that a body is compressed; no CRC covers it.
_SYS_FLAG_BYTES = range(36, 40)


def _records(reader: StoreReader) -> Iterator[tuple[str, int, int, int, int]]:
    """Topic, queue id, queue offset, physical offset and size of every message."""
    for topic in reader.topics():
        for queue in reader.queues(topic):
            for units in reader.units(topic, queue.queue_id, 0, queue.max_offset):
                for offset, (place, size, _) in enumerate(units.tolist()):
                    yield topic, queue.queue_id, offset, place, size


def _flag_positions(reader: StoreReader) -> set[int]:
    """Where the system flags of the log stand."""
    return {place + at for _, _, _, place, _ in _records(reader) for at in _SYS_FLAG_BYTES}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_byte_of_the_log_damaged_gives_the_right_bodies_or_an_error(builder: StoreBuilder, number: int) -> None:
    path = log_file(builder, number)
    base = int(path.name)
    whole = expected_bodies()
    data = path.read_bytes()
    with StoreReader.open(builder.path) as reader:
        flags = _flag_positions(reader)
        for topic, queue_id, offset, place, size in _records(reader):
            if not base <= place < base + LOG_FILE_SIZE:
                continue
            for at in range(place - base, place - base + size):
                for value in _flips(data[at])[: 4 if at < place - base + 90 else 1]:
                    undo = _damage(path, at, value)
                    try:
                        batches = reader.read(topic, queue_id, offset, columns=["body"], verify_crc=True)
                        bodies = [body for batch in batches for body in batch["body"].to_pylist()]
                    except CommitLogError:
                        pass
                    else:
                        assert bodies == whole[topic, queue_id][offset:] or base + at in flags, (at, value)
                    undo()
    assert read_everything(builder.path) == whole


def _both_ways(reader: StoreReader, number: int, place: int) -> list[MessageExt]:
    found = _outcome(lambda: reader.message_at(place))
    by_key = reader.query("a", f"k{number}")
    return by_key if isinstance(found, CommitLogError) else [found, *by_key]


def test_every_byte_of_the_log_damaged_gives_the_right_message_or_an_error(builder: StoreBuilder) -> None:
    """The same by place and by key."""
    path = log_file(builder)
    with StoreReader.open(builder.path) as reader:
        (units,) = reader.units("a", 0, 0, 3)
        places = units["physical_offset"].tolist()
        for at in range(int(places[2])):
            undo = _damage(path, at, path.read_bytes()[at] ^ (1 << at % 8))
            for number, place in zip((0, 2), places, strict=False):
                found = _outcome(partial(_both_ways, reader, number, place))
                if not isinstance(found, CommitLogError):
                    assert all(m.body == BODIES[number] or at - place in _SYS_FLAG_BYTES for m in found), at
            undo()


def test_every_byte_of_a_queue_damaged_gives_right_rows_or_an_error(builder: StoreBuilder) -> None:
    path = queue_file(builder)
    data = path.read_bytes()
    lost = set()
    for at in range(12 * UNIT_SIZE):
        for value in _flips(data[at]):
            undo = _damage(path, at, value)
            found = _outcome(lambda: read_everything(builder.path))
            if isinstance(found, CommitLogError):
                assert str(builder.path) in str(found) or "Topic 'a', queue 0" in str(found)
            else:
                _only_right(found)
                if found["a", 0] != expected_bodies()["a", 0]:
                    lost.add(at // UNIT_SIZE)
            undo()
    assert lost <= {9}, "only the last unit can vanish without a word: it looks as if it had never been written"


def test_every_byte_of_the_index_damaged_finds_the_right_messages_or_an_error(builder: StoreBuilder) -> None:
    path = index_file(builder)
    data = path.read_bytes()
    written = entry_offset(31, 10)
    with StoreReader.open(builder.path) as reader:
        for at in range(written + 40):
            for value in _flips(data[at]):
                undo = _damage(path, at, value)
                for number in (0, 7, 15, 29):
                    topic = "b" if 10 <= number < 20 else "a"
                    try:
                        found = reader.query(topic, f"k{number}")
                    except CommitLogError:
                        continue
                    assert [m.body for m in found] in ([], [BODIES[number]]), at
                files = _outcome(reader.index_files)
                if isinstance(files, CommitLogError):
                    assert isinstance(files, CorruptIndex)
                    assert (files.path, files.offset < HEADER_SIZE) == (str(path), True)
                undo()


def test_every_byte_of_the_checkpoint_damaged_is_a_time_or_an_error(builder: StoreBuilder) -> None:
    path = builder.path / "checkpoint"
    with StoreReader.open(builder.path) as reader:
        for at in range(60):
            undo = _damage(path, at, 0xFF)
            found = _outcome(reader.checkpoint)
            assert found is not None
            assert not isinstance(found, CommitLogError) or isinstance(found, CorruptCheckpoint)
            undo()


@pytest.mark.parametrize("which", [log_file, queue_file, index_file])
def test_files_cut_at_every_length(builder: StoreBuilder, which: Callable[[StoreBuilder], Path]) -> None:
    path = which(builder)
    data = path.read_bytes()
    step = 1 if which is queue_file else 7
    for length in range(0, len(data), step):
        path.write_bytes(data[:length])
        try:
            _only_right(read_everything(builder.path))
            with StoreReader.open(builder.path) as reader:
                for message in reader.query("a", "k0"):
                    assert message.body == BODIES[0]
                reader.index_files()
                reader.physical_bounds()
        except CommitLogError:
            continue


def _whole(builder: StoreBuilder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in builder.path.rglob("*") if path.is_file()}


def _hundred_bytes(data: bytes, start: int) -> bytes:
    return data[start : start + 100]


@settings(max_examples=3 * settings().max_examples)
@given(st.data())
def test_garbage_over_any_part_of_any_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
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


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_golden_stores_damaged_give_rocketmqs_bodies_or_an_error(name: str, tmp_path: Path) -> None:
    """Seeded samples: bytes of the log, of every queue and of the index, one at a time."""
    store = golden.copy_golden(name, tmp_path / "store")
    chance = random.Random(533)
    whole = _golden_bodies(store)
    with StoreReader.open(store) as reader:
        end = reader.physical_bounds()[1]
        flags = _flag_positions(reader)
    for _ in range(120):
        kind = chance.choice(("log", "log", "queue"))
        if kind == "log":
            place = chance.randrange(end)
            path, at = store / "commitlog" / f"{place - place % (1 << 18):020d}", place % (1 << 18)
        else:
            path = chance.choice(sorted((store / "consumequeue").glob("*/*/*")))
            place, at = -1, chance.randrange(20 * UNIT_SIZE)
        undo = _damage(path, at, path.read_bytes()[at] ^ chance.randrange(1, 256))
        try:
            found = _golden_bodies(store)
        except CommitLogError:
            pass
        else:
            for queue, bodies in found.items():
                expected = whole[queue]
                assert bodies == expected or place in flags or (kind == "queue" and bodies == expected[: len(bodies)])
        undo()


def _golden_bodies(store: Path) -> dict[tuple[str, int], list[bytes]]:
    found = {}
    with StoreReader.open(store) as reader:
        for topic in reader.topics():
            for queue in reader.queues(topic):
                batches = reader.read(topic, queue.queue_id, queue.min_offset, columns=["body"], verify_crc=True)
                found[topic, queue.queue_id] = [body for batch in batches for body in batch["body"].to_pylist()]
    return found


# -- damage: chosen values ---------------------------------------------------------------------------------------------


def _poke(path: Path, at: int, code: str, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(">" + code, value))


@pytest.mark.parametrize("value", [-(2**63), -1, 2**63 - 1, 10**15])
def test_a_unit_that_points_outside_the_log(builder: StoreBuilder, value: int) -> None:
    _poke(queue_file(builder), 3 * UNIT_SIZE, "q", value)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptConsumeQueue) as raised:
        list(reader.read("a", 0, 0))
    assert (raised.value.path, raised.value.offset) == (str(queue_file(builder)), 3 * UNIT_SIZE)


def test_a_unit_that_points_back_is_named_by_its_own_place(builder: StoreBuilder) -> None:
    _poke(queue_file(builder), 3 * UNIT_SIZE, "q", 0)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptConsumeQueue, match="behind") as raised:
        list(reader.read("a", 0, 0))
    assert (raised.value.path, raised.value.offset) == (str(queue_file(builder)), 3 * UNIT_SIZE)


@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1, 90, 0x7FFFFFFE])
def test_a_unit_of_a_size_that_cannot_be(builder: StoreBuilder, value: int) -> None:
    _poke(queue_file(builder), 3 * UNIT_SIZE + 8, "i", value)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptStoreError):
        list(reader.read("a", 0, 0))


def test_a_unit_of_another_queue_is_noticed(builder: StoreBuilder) -> None:
    """Units swapped between queues point to whole records, of another queue."""
    other = queue_file(builder).parents[1] / "1" / queue_file(builder).name
    data = bytearray(queue_file(builder).read_bytes())
    data[4 * UNIT_SIZE : 5 * UNIT_SIZE] = other.read_bytes()[4 * UNIT_SIZE : 5 * UNIT_SIZE]
    queue_file(builder).write_bytes(data)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord, match="QUEUEID"):
        list(reader.read("a", 0, 0))


def test_a_light_queue_with_a_wild_unit_is_an_error_too(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        (units,) = reader.units("a", 0, 0, 3)
    wild = np.zeros(3, [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    wild["physical_offset"], wild["size"] = units["physical_offset"], units["size"]
    wild["physical_offset"][1] += 1
    builder.write_units("%LMQ%x", 0, 0, wild)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord):
        list(reader.read("%LMQ%x", 0, 0))


def _chain(builder: StoreBuilder) -> tuple[int, int]:
    """The byte of the slot that holds ``k0`` of topic ``a``, and of the entry of it."""
    return slot_offset(index_key_hash("a#k0") % 10), entry_offset(1, 10)


@pytest.mark.parametrize("previous", [1, 2, 30, 0x7FFFFFFF, -1, -(2**31)])
def test_an_index_chain_that_does_not_descend(builder: StoreBuilder, previous: int) -> None:
    """A cycle would be followed for ever, a wild number would lead out of the file."""
    slot, entry = _chain(builder)
    _poke(index_file(builder), slot, "i", 1)
    _poke(index_file(builder), entry + 16, "i", previous)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptIndex, match="Chain of entry 1") as raised:
        reader.query("a", "k0")
    assert (raised.value.path, raised.value.offset) == (str(index_file(builder)), entry)


@pytest.mark.parametrize("number", [-1, -(2**31), 32, 39, 40, 41, 0x7FFFFFFF])
def test_an_index_slot_that_points_outside(builder: StoreBuilder, number: int) -> None:
    slot, _ = _chain(builder)
    _poke(index_file(builder), slot, "i", number)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CorruptIndex, match="Slot") as raised:
            reader.query("a", "k0")
        assert raised.value.offset == slot
        (builder.path / "abort").write_bytes(b"")
        assert reader.query("a", "k0") == [], "after a crash RocketMQ passes over such slots"


@pytest.mark.parametrize("count", [40, 41, 0x7FFFFFFF, -1, -(2**31)])
def test_an_index_count_that_the_file_has_no_room_for(builder: StoreBuilder, count: int) -> None:
    _poke(index_file(builder), 36, "i", count)
    slot, _ = _chain(builder)
    _poke(index_file(builder), slot, "i", 40)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptIndex):
        reader.query("a", "k0")


@pytest.mark.parametrize("place", [-1, -(2**63), 10**15, 2**63 - 1])
def test_an_index_entry_that_points_outside_the_log(builder: StoreBuilder, place: int) -> None:
    _, entry = _chain(builder)
    _poke(index_file(builder), entry + 4, "q", place)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptIndex) as raised:
        reader.query("a", "k0")
    assert (raised.value.offset, raised.value.found) == (entry, place)


def test_an_index_entry_that_points_into_a_record(builder: StoreBuilder) -> None:
    _, entry = _chain(builder)
    _poke(index_file(builder), entry + 4, "q", 5)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord):
        reader.query("a", "k0")


@pytest.mark.parametrize("size", [1, 39, 40, 41, 123, 125, 84_039])
def test_an_index_file_of_a_size_that_cannot_be_is_refused_at_every_look(builder: StoreBuilder, size: int) -> None:
    index_file(builder).write_bytes(bytes(size))
    with StoreReader.open(builder.path) as reader:
        for _ in range(3):
            with pytest.raises(CorruptIndex, match="expected a size of"):
                reader.query("a", "k0")
            with pytest.raises(CorruptIndex):
                reader.index_files()


def test_an_index_file_that_was_just_made_is_empty(builder: StoreBuilder) -> None:
    """A live owner makes the file first and gives it its size next."""
    data = index_file(builder).read_bytes()
    index_file(builder).write_bytes(b"")
    with StoreReader.open(builder.path) as reader:
        assert reader.query("a", "k0") == []
        index_file(builder).write_bytes(bytes(len(data)))
        assert reader.query("a", "k0") == []
        index_file(builder).write_bytes(data)
        assert len(reader.query("a", "k0")) == 1


# -- sizes that would take all memory ----------------------------------------------------------------------------------


def _peak(look: Callable[[], object]) -> int:
    """Bytes that Python and numpy allocate at most while ``look`` fails, or Arrow beyond its highest mark so far."""
    pool = pa.default_memory_pool()
    mark = pool.max_memory() or 0
    tracemalloc.start()
    try:
        with pytest.raises(CommitLogError):
            look()
        return max(tracemalloc.get_traced_memory()[1], (pool.max_memory() or 0) - mark)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("where", "at", "code"), [("log", 0, "i"), ("log", 84, "i"), ("queue", 8, "i"), ("both", 0, "i")]
)
@pytest.mark.parametrize("value", [0x7FFFFFFE, 0x7FFFFFFF - 91, 1 << 30])
def test_a_huge_size_allocates_nothing(builder: StoreBuilder, where: str, at: int, code: str, value: int) -> None:
    """A length is compared with the file before anything is made of it."""
    if where in {"log", "both"}:
        _poke(log_file(builder), at, code, value)
    if where in {"queue", "both"}:
        _poke(queue_file(builder), 8, code, value)
    with StoreReader.open(builder.path) as reader:
        assert _peak(lambda: list(reader.read("a", 0, 0))) < 4 << 20
        if where != "queue":
            assert _peak(lambda: reader.message_at(0)) < 4 << 20


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: CompressionType
) -> None:
    """A few kilobytes of stream can hold gigabytes of zeros."""
    monkeypatch.setattr(record_bodies, "MAX_DECOMPRESSED_SIZE", 1 << 20)
    builder = StoreBuilder(tmp_path / "store")
    bomb = compression.compress(bytes(64 << 20), kind)
    assert len(bomb) < 1 << 19
    builder.append("t", 0, [b"before"])
    builder.append("t", 0, [bomb], sys_flag=1 | kind.value)
    with StoreReader.open(builder.path) as reader:
        (unit,) = next(reader.units("t", 0, 1, 2))
        with pytest.raises(CorruptRecord, match="unpacks to more than the allowed 1048576") as by_column:
            list(reader.read("t", 0, 0))
        with pytest.raises(CorruptRecord, match="unpacks to more than the allowed 1048576") as by_place:
            reader.message_at(int(unit["physical_offset"]))
        assert str(log_file(builder)) == by_column.value.path == by_place.value.path
        assert _peak(lambda: reader.message_at(int(unit["physical_offset"]))) < 16 << 20


@pytest.mark.parametrize("bits", [0x400, 0x700])
def test_a_body_of_an_unknown_compression_type(tmp_path: Path, bits: int) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"what is this"], sys_flag=1 | bits)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CorruptRecord, match="compression type"):
            list(reader.read("t", 0, 0))
        with pytest.raises(CorruptRecord, match="compression type"):
            reader.message_at(0)
        assert [b["sysFlag"].to_pylist() for b in reader.read("t", 0, 0, columns=["sysFlag"])] == [[1 | bits]]


def test_a_sparse_file_of_terabytes_is_no_more_than_its_messages(tmp_path: Path) -> None:
    """Files are allocated ahead; their size says nothing about what there is to read."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"] * 10)
    os.truncate(log_file(builder), 1 << 31)
    os.truncate(builder.path / "consumequeue" / "t" / "0" / f"{0:020d}", 20 * (1 << 36))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with StoreReader.open(builder.path) as reader:
        assert reader.queue_info("t", 0).max_offset == 10
        assert sum(batch.num_rows for batch in reader.read("t", 0, 0)) == 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, -(2**63), 1, 87, 2**63 - 1, 2**64, 10**30])
def test_no_message_at_such_a_place(builder: StoreBuilder, offset: int) -> None:
    with StoreReader.open(builder.path) as reader, pytest.raises((MessageNotFound, CorruptRecord)):
        reader.message_at(offset)


def test_no_message_in_a_files_blank_end(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        end = max(place + size for *_, place, size in _records(reader) if place < LOG_FILE_SIZE)
        with pytest.raises(MessageNotFound, match="blank end"):
            reader.message_at(end)


@pytest.mark.parametrize("text", ["", "0", "G" * 32, "0" * 31, "0" * 33, "F" * 32, "é" * 32, "0" * 56, "F" * 56])
def test_ids_that_no_message_has(builder: StoreBuilder, text: str) -> None:
    with StoreReader.open(builder.path) as reader, pytest.raises((InvalidValue, MessageNotFound)):
        reader.message_by_id(text)


def test_an_id_of_another_host_is_not_found(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        message_id = reader.message_at(0).message_id
        assert reader.message_by_id(message_id).physical_offset == 0
        with pytest.raises(MessageNotFound, match=r"stored by 10\.1\.2\.3:10911, the id names 11\.1\.2\.3:10911"):
            reader.message_by_id("0B" + message_id[2:])
