"""The errors themselves: their fields and texts, and that both survive pickling."""

from __future__ import annotations

import os
import pickle
import re
import zlib
from pathlib import Path

import pytest

from commitlog_store import PutMessageStatus, StoreReader, errors
from commitlog_store.errors import CommitLogError, CorruptRecord, CorruptStoreError, StoreOpenError
from commitlog_store.format import compression
from commitlog_store.format.sys_flag import CompressionType
from tests.store.damage.filled_store import BODIES, log_file
from tests.support.store_builder import StoreBuilder

SYSTEM_FAILURES = (
    errors.StoreIOError,
    errors.FileCreationFailed,
    errors.ReadFailed,
    errors.StagingFailed,
    errors.TargetFailed,
    errors.ListenFailed,
)


def _kinds() -> list[type[CommitLogError]]:
    return [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]


def test_every_error_of_the_tree_is_a_public_name() -> None:
    tree = re.findall(r"(?:├──|└──) (\w+)", errors.__doc__ or "")
    assert {"CommitLogError", *tree, "put_error"} == set(errors.__all__)


def _every_error() -> list[CommitLogError]:
    made: list[CommitLogError] = []
    for kind in _kinds():
        if kind is errors.DamagedLog:
            made.append(kind("What", path="/p", offset=7, expected="this", found="that", advice="Do so.", cut_at=8))
        elif issubclass(kind, CorruptStoreError):
            made.append(kind("What", path="/p", offset=7, expected="this", found="that", advice="Do so."))
        elif issubclass(kind, StoreOpenError | errors.FileChanged | errors.LogLost | errors.StagingLost):
            made.append(kind("What happened", path="/p"))
        elif kind is errors.FileMissing:
            made.append(kind(path="/p", topic="t", queue_id=1, start=2, stop=3))
        elif kind is errors.HistoryGap:
            made.append(kind(topic="t", queue_id=1, start=2, stop=3, archive="s3://past", store="/p"))
        elif kind is errors.OffsetOutOfRange:
            made.append(kind(topic="t", queue_id=1, start=2, stop=3, min_offset=4, max_offset=5))
        elif issubclass(kind, SYSTEM_FAILURES):
            made.append(kind("sync", path="/p", cause=OSError(5, "Input/output error"), advice="Do so."))
        elif kind is errors.TooManyOpenFiles:
            made.append(kind(path="/p", cause=OSError(24, "Too many open files"), limit=1024))
        elif kind is errors.TailLost:
            made.append(kind("What happened", topic="t", queue_id=1, position=2, available=(0, 1)))
        elif kind is errors.LogDiverged:
            made.append(kind("What happened", path="/p", offset=7))
        elif issubclass(kind, errors.ArchiveDamaged | errors.ArchiveFailed):
            made.append(kind("What happened", name="manifest/1"))
        elif kind is errors.ArchiveMismatch:
            made.append(kind("What happened", offset=7))
        elif kind is errors.ArchiveGap:
            made.append(kind("What happened", start=7, stop=9))
        elif kind is errors.LogShort:
            made.append(
                kind(
                    path="/p",
                    log_path="/p/commitlog",
                    for_shell="/p",
                    found_end=10,
                    flushed_offset=30,
                    missing_messages=2,
                )
            )
        elif kind is errors.CutRefused:
            made.append(kind(path="/p", for_shell="/p", cut_at=10, size=20, messages=2))
        elif kind is errors.BatchConflict:
            made.append(kind("What happened", app_id="a", version=1, committed=2))
        elif kind is errors.HalfMessageNotFound:
            made.append(kind("1:0:group:key", expected="a half message", found="nothing", advice="Do so."))
        elif kind is errors.HalfMessageEnded:
            made += [kind("1:0:group:key", committed=committed) for committed in (True, False, None)]
        elif kind is errors.FilterError:
            made.append(kind("a >", 3, expected="a number", found="the end"))
        elif kind is errors.InvalidValue:
            made.append(kind("What happened", settings=("a_setting",), expected="1 to 2"))
        elif kind in (errors.PutRefused, errors.PutNotConfirmed):
            made.append(kind(PutMessageStatus.MESSAGE_ILLEGAL, "The body is too large."))
        else:
            made.append(kind("What happened"))
    return made


@pytest.mark.parametrize("error", _every_error(), ids=lambda error: type(error).__name__)
def test_errors_keep_all_their_fields_through_pickle(error: CommitLogError) -> None:
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


def test_a_body_that_an_application_packed_itself_is_given_in_every_way(tmp_path: Path) -> None:
    """RocketMQ's producers pack with the same level, and their records say so: only a record with type bits can tell
    that its compressed bit was lost."""
    body = compression.compress(BODIES[0], CompressionType.ZLIB)
    builder = StoreBuilder(tmp_path / "store")
    (place,) = builder.append("t", 0, [body])
    with StoreReader.open(builder.path) as reader:
        assert [batch["body"].to_pylist() for batch in reader.read("t", 0, 0)] == [[body]]
        assert reader.get_message("t", 0, 0).messages[0].body == body
        assert reader.message_at(int(place)).body == body


def test_an_error_tree_is_drawn_as_it_is() -> None:
    drawn = errors.__doc__ or ""
    for name in (kind.__name__ for kind in _kinds()):
        assert f"{name} " in drawn or f"{name}\n" in drawn
        assert getattr(errors, name).__doc__


THREE_KINDS = (errors.Refused, errors.OutcomeUnknown, errors.Damaged)


@pytest.mark.parametrize("kind", [kind for kind in _kinds() if kind is not CommitLogError])
def test_every_error_is_of_one_kind_that_a_caller_can_tell_by_type(kind: type[CommitLogError]) -> None:
    assert sum(issubclass(kind, one) for one in THREE_KINDS) == 1


def test_a_full_disk_and_failed_staging_are_refusals() -> None:
    assert issubclass(errors.DiskFull, errors.Refused)
    assert issubclass(errors.StagingFailed, errors.Refused)


@pytest.mark.parametrize("status", [status for status in PutMessageStatus if status is not PutMessageStatus.PUT_OK])
def test_the_error_of_a_put_says_whether_the_message_may_be_stored(status: PutMessageStatus) -> None:
    error = errors.put_error(status, "why")
    assert isinstance(error, errors.Refused) == status.is_refusal
    assert isinstance(error, errors.OutcomeUnknown) != status.is_refusal


def test_a_file_that_was_cut_short_is_named_and_no_file_that_never_was(tmp_path: Path) -> None:
    StoreBuilder(tmp_path, log_file_size=64 << 10).append("orders", 0, [b"x" * 100] * 1500)
    cut = sorted((tmp_path / "commitlog").iterdir())[1]
    os.truncate(cut, 30_000)
    with StoreReader.open(tmp_path) as reader:
        places = [int(place) for units in reader.units("orders", 0, 0, 1500) for place in units["physical_offset"]]
        behind_the_cut = next(at for at, place in enumerate(places) if place > int(cut.name) + 40_000)
        with pytest.raises(errors.FileMissing, match=f"{cut} is cut short although files before and after it exist"):
            list(reader.read("orders", 0, behind_the_cut))
