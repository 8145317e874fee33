"""A store that is read with its archive answers as the store did before retention deleted its head."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from commitlog_store import MessageFilter, MessageStore, MessageStoreConfig, StoreReader, export_store
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.cli.app import app
from commitlog_store.errors import (
    ArchiveDamaged,
    ArchiveMismatch,
    HistoryGap,
    InvalidValue,
    MessageNotFound,
    TopicNotFound,
)
from commitlog_store.history.reader import HistoryReader
from commitlog_store.message import MessageExt
from commitlog_store.queries.find_message import find_message
from tests.store.archive_reader.test_archive_equals_directory import add, filled_store
from tests.store.serve.servers import served
from tests.support.between_calls import change_before, spread
from tests.support.same_answers import rows_of, same_answers
from tests.support.store_builder import StoreBuilder


class Aged(NamedTuple):
    """A store whole, the same one after retention, and its archive."""

    whole: Path
    store: Path
    archive: str
    builder: StoreBuilder


def aged_store(root: Path, *, archived: int = 160, deleted: int = 5) -> Aged:
    """A store of small files with two topics, whose oldest log files, and the queue files before them, are deleted."""
    builder = filled_store(root / "store", [("orders", 3, archived, 400), ("audit", 1, 20, 100)])
    archive_store(root / "store", f"file://{root}/past", with_last=True)
    add(builder, "orders", 3, 60, 400)
    add(builder, "audit", 1, 20, 100)
    add(builder, "new", 1, 5, 100)
    shutil.copytree(root / "store", root / "whole")
    delete_head(root / "store", deleted)
    return Aged(root / "whole", root / "store", f"archive+file://{root}/past", builder)


def delete_head(store: Path, count: int) -> None:
    """Delete the oldest log files, as retention does: queue files that lead only to them go after these."""
    for file in sorted((store / "commitlog").iterdir())[:count]:
        file.unlink()
    with StoreReader.open(store) as reader:
        lows = {
            (info.topic, info.queue_id): info.min_offset for topic in reader.topics() for info in reader.queues(topic)
        }
    for (topic, queue_id), low in lows.items():
        for file in sorted((store / "consumequeue" / topic / str(queue_id)).iterdir())[:-1]:
            if int(file.name) + file.stat().st_size <= low * 20:
                file.unlink()


def _rows(reader: StoreReader) -> list[Any]:
    batches = reader.read("orders", 1, 0, columns=["queueOffset", "physicalOffset"], max_batch_rows=9)
    return [row for batch in batches for row in batch.to_pylist()]


ASKS: list[Callable[[StoreReader], Any]] = [
    _rows,
    lambda reader: reader.queues("orders"),
    lambda reader: b"".join(part.tobytes() for part in reader.units("orders", 0, 0, 70, chunk=9)),
    lambda reader: [reader.offset_by_time("orders", 2, 1_700_000_000_000 + step) for step in range(0, 300, 60)],
    lambda reader: reader.fences([("orders", 0, at) for at in range(0, 60, 6)]),
    lambda reader: reader.scan("*", columns=["physicalOffset", "body"]).read_all(),
    lambda reader: [one.queue_offset for one in reader.get_message("orders", 0, 5, 4).messages],
]


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Aged:
    return aged_store(tmp_path_factory.mktemp("aged"))


@pytest.fixture(scope="module")
def history(aged: Aged) -> Iterator[StoreReader]:
    with StoreReader.open(aged.store, archive=aged.archive) as reader:
        yield reader


def test_both_together_answer_as_the_whole_store(aged: Aged, history: StoreReader) -> None:
    with StoreReader.open(aged.store) as live:
        assert live.queue_info("orders", 0).min_offset > 0
    with StoreReader.open(aged.whole) as whole:
        assert same_answers(whole, history) == 265
        assert history.physical_bounds() == whole.physical_bounds()
        assert history.log_start() == 0
        ranges = [("orders", queue, 2, 60) for queue in range(3)]
        together = [reader.read_together(ranges, columns=["queueId", "queueOffset"]) for reader in (whole, history)]
        assert together[0] == together[1]


def test_a_served_store_and_its_archive_answer_as_the_whole_store(aged: Aged) -> None:
    with (
        served(aged.store) as url,
        StoreReader.open(url, archive=aged.archive) as history,
        StoreReader.open(aged.whole) as whole,
    ):
        assert history.topics() == whole.topics()
        for ask in ASKS:
            assert ask(history) == ask(whole)
        message = whole.get_message("orders", 1, 0, 1).messages[0]
        assert history.message_at(message.physical_offset) == message
        ranges = [("orders", queue, 0, 70) for queue in range(3)]
        positions = []
        for reader in (whole, history):
            batches = reader.read_side_by_side(
                ranges, columns=["queueId", "body"], filter=MessageFilter.parse(tags="b")
            )
            positions.append((pa.Table.from_batches(list(batches)), batches.positions))
        assert positions[0] == positions[1]


def test_every_answer_is_whole_while_retention_deletes_between_any_two_calls(tmp_path: Path) -> None:
    """Files are deleted before some of the calls to the operating system that a question makes, and are archived."""
    aged = aged_store(tmp_path, archived=220, deleted=1)
    with StoreReader.open(aged.whole) as whole:
        expected = [ask(whole) for ask in ASKS]
    for number, ask in enumerate(ASKS):
        with StoreReader.open(aged.store, archive=aged.archive) as history, change_before({}) as calls:
            ask(history)
        for call in spread(calls.made, 4):
            shutil.rmtree(aged.store)
            shutil.copytree(aged.whole, aged.store)
            with StoreReader.open(aged.store, archive=aged.archive) as history:
                with change_before({call: lambda: delete_head(aged.store, 8)}):
                    found = ask(history)
                assert found == expected[number], (number, call)
                assert ask(history) == expected[number]


def test_retention_that_deletes_files_while_both_are_opened_makes_no_mismatch(tmp_path: Path) -> None:
    aged = aged_store(tmp_path, archived=60, deleted=1)
    with change_before({}) as calls, StoreReader.open(aged.store, archive=aged.archive):
        opening = calls.made
    shutil.copytree(aged.store, tmp_path / "before")
    for call in spread(opening, 24):
        shutil.rmtree(aged.store)
        shutil.copytree(tmp_path / "before", aged.store)
        files = sorted((aged.store / "commitlog").iterdir())
        with (
            change_before({call: lambda files=files: [file.unlink() for file in files[:3]]}),  # type: ignore[misc]
            StoreReader.open(aged.store, archive=aged.archive) as history,
        ):
            assert history.queue_info("orders", 1).min_offset == 0, call


def test_a_pickled_reader_opens_both_again(history: StoreReader) -> None:
    with pickle.loads(pickle.dumps(history)) as again:
        assert again.scan("orders").read_all().equals(history.scan("orders").read_all())


def test_a_file_that_goes_during_a_read_is_read_in_the_archive(tmp_path: Path) -> None:
    """Between two batches of a read, retention deletes the files that come next; they were archived just before."""
    aged = aged_store(tmp_path)
    columns = ["queueOffset", "physicalOffset"]
    with StoreReader.open(aged.whole) as whole, StoreReader.open(aged.store, archive=aged.archive) as history:
        info = whole.queue_info("orders", 1)
        expected = rows_of(whole, info, {}, columns).to_pylist()
        batches = history.read("orders", 1, 0, columns=columns, max_batch_rows=4)
        found = []
        for number, batch in enumerate(batches):
            found += batch.to_pylist()
            if number == 2:
                delete_head(aged.store, 4)
                assert history.queue_info("orders", 1) == info
        assert found == expected
        # The same between two arrays of units.
        ranges = [("orders", queue, 0, whole.queue_info("orders", queue).max_offset) for queue in range(3)]
        parts = history.units_of(ranges, chunk=3)
        units = [next(parts)[1].tobytes() for _ in range(10)]
        delete_head(aged.store, 2)
        archive_store(aged.whole, aged.archive.removeprefix("archive+"), with_last=True)
        units += [part.tobytes() for _, part in parts]
        assert b"".join(units) == b"".join(part.tobytes() for _, part in whole.units_of(ranges))


def test_a_lost_file_of_the_live_store_is_bridged_by_the_archive(tmp_path: Path) -> None:
    aged = aged_store(tmp_path, deleted=2)
    sorted((aged.store / "commitlog").iterdir())[2].unlink()
    with StoreReader.open(aged.whole) as whole, StoreReader.open(aged.store, archive=aged.archive) as history:
        info = whole.queue_info("orders", 2)
        assert rows_of(history, info, {}).equals(rows_of(whole, info, {}))
        assert history.scan("orders").read_all().num_rows == 220


def test_a_gap_is_reported_with_its_bounds(tmp_path: Path) -> None:
    aged = aged_store(tmp_path, archived=40, deleted=9)
    with StoreReader.open(aged.archive) as archive, StoreReader.open(aged.store) as live:
        gap = archive.queue_info("orders", 0).max_offset, live.queue_info("orders", 0).min_offset
        end = live.queue_info("orders", 0).max_offset
    assert gap[0] < gap[1]
    with StoreReader.open(aged.store, archive=aged.archive) as history:
        with pytest.raises(HistoryGap, match="which ends before them") as raised:
            list(history.read("orders", 0, 0))
        assert (raised.value.start, raised.value.stop) == gap
        with pytest.raises(HistoryGap):
            list(history.units("orders", 0, 0, end))
        rows = [
            row["queueOffset"] for batch in history.read("orders", 0, 0, on_damage="skip") for row in batch.to_pylist()
        ]
        assert rows == [*range(gap[0]), *range(gap[1], end)]
        assert [(one.start, one.stop) for one in history.skipped] == [gap]


def test_an_archive_of_another_store_is_refused(aged: Aged, tmp_path: Path) -> None:
    other = filled_store(tmp_path / "other", [("pay", 2, 150, 400)])
    with pytest.raises(ArchiveMismatch) as refused:
        StoreReader.open(other.path, archive=aged.archive)
    assert str(other.path) in str(refused.value)
    assert aged.archive in str(refused.value)


def test_an_archive_of_an_end_that_the_store_lost_is_refused(tmp_path: Path) -> None:
    """The log has grown again since: the oldest file is the same."""
    for name, body in (("store", 400), ("other", 390)):
        builder = filled_store(tmp_path / name, [("orders", 3, 40, 400)])
        add(builder, "orders", 3, 100, body)
    archive_store(tmp_path / "other", f"file://{tmp_path}/past")
    with pytest.raises(ArchiveMismatch, match="lost its end and grown again"):
        StoreReader.open(tmp_path / "store", archive=f"archive+file://{tmp_path}/past")


def test_a_log_that_parted_from_its_archive_within_the_newest_shared_file_is_noticed(tmp_path: Path) -> None:
    """It lost its end and has grown again since, by records at other places or at the same ones, or by few. One that
    ends before its archive, or after it, has not."""

    def grown(name: str, *bodies: bytes) -> None:
        builder = filled_store(tmp_path / name, [("orders", 3, 20, 400)], log_file_size=64 << 10)
        for body in bodies:
            builder.append("orders", [0, 1, 2], [body])

    kept = [b"%d" % one * 100 for one in range(9)]
    grown("archived", *kept)
    past = f"archive+file://{tmp_path}/past"
    archive_store(tmp_path / "archived", f"file://{tmp_path}/past", with_last=True)
    for name, bodies in (("behind", kept[:5]), ("same", kept), ("ahead", [*kept, b"more"])):
        grown(name, *bodies)
        with StoreReader.open(tmp_path / name, archive=past) as history:
            assert history.queue_info("orders", 0).max_offset == 7 + len(bodies), name
    other = [body + b"z" for body in kept]
    for name, bodies in (
        ("same places", [*kept[:8], b"x" * 100]),
        ("longer", [*kept[:3], b"y" * 333, *kept[4:]]),
        ("few", [*kept[:3], b"y" * 333]),
        ("more", [*other, *other]),
    ):
        grown(name, *bodies)
        with pytest.raises(ArchiveMismatch, match="lost its end and grown again") as refused:
            StoreReader.open(tmp_path / name, archive=past)
        assert refused.value.offset > 0, name
    with (
        served(tmp_path / "longer") as server,
        pytest.raises(ArchiveMismatch, match="lost its end and grown again"),
    ):
        StoreReader.open(server, archive=past)


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "missing": bytes,
    "cut": lambda data: data[:100],
    "size": lambda data: b"\x41" + data[1:],
    "store timestamp": lambda data: data[:63] + bytes([data[63] ^ 1]) + data[64:],
    "queue offset": lambda data: data[:27] + bytes([data[27] ^ 1]) + data[28:],
    "body": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("number", [5, -1])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_log_object_that_both_have_is_not_taken_for_another_store(
    aged: Aged, tmp_path: Path, damage: str, number: int
) -> None:
    """The oldest one is named, as nothing shows then that both are one store; the newest one is not needed for that."""
    shutil.copytree(Path(aged.archive.removeprefix("archive+file://")), tmp_path / "past")
    objects = sorted(path for path in (tmp_path / "past" / "commitlog").rglob("*") if path.is_file())
    path = objects[number]
    bad = DAMAGED[damage](path.read_bytes())
    path.write_bytes(bad) if damage != "missing" else path.unlink()
    past = f"archive+file://{tmp_path}/past"
    if number == -1:
        with StoreReader.open(aged.store, archive=past) as history:
            assert history.topics() == ["audit", "new", "orders"]
        return
    with pytest.raises(ArchiveDamaged, match=rf"{path.name} .*check --deep {re.escape(past)}.*Restore the object"):
        StoreReader.open(aged.store, archive=past)


def test_a_mismatch_names_the_commands_that_find_a_damaged_header(aged: Aged, tmp_path: Path) -> None:
    """No checksum is about a header in the store, so that it may be another store's."""
    shutil.copytree(aged.store, tmp_path / "store")
    oldest = min((tmp_path / "store" / "commitlog").iterdir())
    oldest.write_bytes(DAMAGED["store timestamp"](oldest.read_bytes()))
    with pytest.raises(ArchiveMismatch, match=r"'commitlog verify'.*'commitlog archive --check --deep'"):
        StoreReader.open(tmp_path / "store", archive=aged.archive)


def test_a_message_that_retention_deletes_while_it_is_compared_makes_a_mismatch(
    aged: Aged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = filled_store(tmp_path / "other", [("pay", 2, 150, 400)])
    look = StoreReader.message_at

    def deleted(reader: StoreReader, offset: int, *, verify_crc: bool = True) -> MessageExt:
        if verify_crc and not isinstance(reader, ArchiveReader):  # the second look
            raise MessageNotFound("deleted")
        return look(reader, offset, verify_crc=verify_crc)

    monkeypatch.setattr(StoreReader, "message_at", deleted)
    with pytest.raises(ArchiveMismatch):
        StoreReader.open(other.path, archive=aged.archive)


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_newest_log_object_refuses_no_store_that_has_its_messages(damage: str, tmp_path: Path) -> None:
    filled_store(tmp_path / "store", [("orders", 3, 60, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    objects = sorted(path for path in (tmp_path / "past" / "commitlog").rglob("*") if path.is_file())
    assert len(objects) > 2
    if damage == "cut":
        objects[-1].write_bytes(objects[-1].read_bytes()[:100])
    else:
        objects[-1].unlink()
    with (
        StoreReader.open(tmp_path / "store", archive=f"archive+file://{tmp_path}/past") as history,
        StoreReader.open(tmp_path / "store") as store,
    ):
        assert _rows(history) == _rows(store)


def test_places_of_a_history_may_come_from_an_iterator(history: StoreReader) -> None:
    info = history.queue_info("orders", 0)
    places = [("orders", 0, at) for at in range(info.min_offset, info.max_offset, 9)]
    searches = [(*place, info.min_offset, info.max_offset) for place in places]
    assert history.fences(iter(places)) == history.fences(places)  # type: ignore[arg-type]
    assert history.store_timestamps(iter(places)) == history.store_timestamps(places)  # type: ignore[arg-type]
    found = history.first_offsets_from(iter(searches))  # type: ignore[arg-type]
    assert found == history.first_offsets_from(searches)


def test_keys_are_looked_up_in_the_live_store_and_then_in_the_archive(tmp_path: Path) -> None:
    config = MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 10)
    columns = ["queueOffset", "keys", "queueOffset"]
    with MessageStore.open(tmp_path / "whole", config) as store:
        for number in range(120):
            store.put("orders", b"x" * 200, keys=["all", f"k{number // 2}"], queue_id=0)
    shutil.copytree(tmp_path / "whole", tmp_path / "store")
    archive_store(tmp_path / "whole", f"file://{tmp_path}/past")
    files = len(list((tmp_path / "store" / "commitlog").iterdir()))
    for file in sorted((tmp_path / "store" / "commitlog").iterdir())[: files // 2]:
        file.unlink()
    with (
        StoreReader.open(tmp_path / "whole") as whole,
        StoreReader.open(tmp_path / "store") as live,
        StoreReader.open(tmp_path / "store", archive=f"archive+file://{tmp_path}/past") as history,
    ):
        assert 20 < len(live.query("orders", "all", limit=1000)) < 100
        for key, limit in (("all", 1000), ("all", 100), ("all", 3), ("k3", 9), ("k59", 9), ("no", 9)):
            assert history.query("orders", key, limit=limit) == whole.query("orders", key, limit=limit)
        # The index of the directory is whole: a message that both have is counted once.
        assert history.index_files() == live.index_files()
        keys = ["k59", "k3", None, "no", "k4", "k50", "k30", "k3"]
        tables: list[pa.Table] = []
        for rows in (1000, 3):
            tables = [
                pa.Table.from_batches(reader.query_keys("orders", keys, columns=columns, max_batch_rows=rows))
                for reader in (whole, history)
            ]
            assert tables[0].equals(tables[1])
        assert tables[0].column(0).to_pylist() == [119, 7, None, None, 9, 101, 61, 7]
        # Keys that the directory does not have make no larger batches than others.
        many = [f"k{number}" for number in range(60)] * 2
        batches = list(history.query_keys("orders", many, columns=["keys", "body"], max_batch_bytes=1000))
        assert pa.Table.from_batches(batches)["keys"].to_pylist() == [f"all {key}" for key in many]
        assert max(batch.num_rows for batch in batches) < 10
        message = whole.query("orders", "k3")[0]
        assert find_message(history, message.message_id, None, verify_crc=True) == message


def test_what_is_refused_says_so(aged: Aged, history: StoreReader) -> None:
    with pytest.raises(InvalidValue, match=r"not '/past'\. For an archive in a directory: archive\+file:///past\."):
        StoreReader.open(aged.store, archive="/past")
    with pytest.raises(InvalidValue, match="is an archive itself"):
        StoreReader.open(aged.archive, archive=aged.archive)
    with pytest.raises(InvalidValue, match="from_log shows the log of a store alone"):
        StoreReader.open(aged.store, archive=aged.archive, from_log=True)


@pytest.mark.parametrize("url", ["https://key:s3cr3t@host/x", "https://host/x?sig=s3cr3t", "S3://key:s3cr3t@bucket/x"])
def test_no_refused_address_shows_its_secret(url: str, aged: Aged) -> None:
    calls: list[Callable[[], object]] = [
        lambda: StoreReader.open(aged.store, archive=url),
        lambda: export_store(aged.store, f"parquet:{url}"),
        lambda: archive_store(aged.store, url.removeprefix("https:").replace("//", "/")),
    ]
    for call in calls:
        with pytest.raises(InvalidValue) as refused:
            call()
        assert "s3cr3t" not in str(refused.value)


def test_commands_print_what_they_print_of_the_whole_store(aged: Aged, tmp_path: Path) -> None:
    """``cat`` and ``offset-at`` do. ``info`` has the bounds of both, and an export, also a resumed one, all rows."""
    for command, *rest in (["cat", "orders", "--tag", "a"], ["offset-at", "2023-11-14T22:13:20.100", "orders"]):
        printed = [
            CliRunner().invoke(app, [command, str(path), *rest, *more])
            for path, more in ((aged.whole, []), (aged.store, ["--archive", aged.archive]))
        ]
        assert [one.exit_code for one in printed] == [0, 0]
        assert printed[0].stdout == printed[1].stdout
        assert printed[0].stdout
    info = CliRunner().invoke(app, ["info", str(aged.store), "--archive", aged.archive, "--json"])
    assert json.loads(info.stdout)["minPhysicalOffset"] == 0
    arguments = ["export", str(aged.store), "--to", f"parquet:{tmp_path}/rows", "--archive", aged.archive]
    exported = [CliRunner().invoke(app, [*arguments, *more, "--json"]) for more in ([], ["--resume"])]
    assert [json.loads(one.stdout)["rows"] for one in exported] == [265, 0]


def test_a_topic_that_the_live_store_has_no_more_is_the_archives(tmp_path: Path) -> None:
    aged = aged_store(tmp_path)
    shutil.rmtree(aged.store / "consumequeue" / "audit")
    with StoreReader.open(aged.store, archive=aged.archive) as history, StoreReader.open(aged.archive) as archive:
        assert history.topics() == ["audit", "new", "orders"]
        info = history.queue_info("audit", 0)
        assert info == archive.queue_info("audit", 0)
        assert rows_of(history, info, {}).equals(rows_of(archive, info, {}))
        assert [one.queue_offset for one in history.get_message("audit", 0, 5, 2).messages] == [5, 6]
        assert history.get_message("audit", 0, info.max_offset).next_begin_offset == info.max_offset
        assert history.offset_by_time("audit", 0, 0) == 0
        assert history.wait_for_any({("audit", 0): 3}, timeout_s=0)
        for place in (("audit", 0, -1), ("audit", 0, "3"), ("audit", "0", 3)):
            with pytest.raises(InvalidValue):
                history.wait_for_any({place[:2]: place[2]}, timeout_s=0)  # type: ignore[dict-item]


def test_a_queue_that_was_archived_and_deleted_since_the_archive_was_opened_is_read(tmp_path: Path) -> None:
    aged = aged_store(tmp_path)
    with StoreReader.open(aged.store, archive=aged.archive) as history:
        add(aged.builder, "new", 1, 60, 400)
        archive_store(aged.store, aged.archive.removeprefix("archive+"), with_last=True)
        delete_head(aged.store, len(list((aged.store / "commitlog").iterdir())) - 1)
        with StoreReader.open(aged.store) as live:
            assert live.queue_info("new", 0).min_offset > 5
        assert history.queue_info("new", 0).min_offset == 0
        assert sum(batch.num_rows for batch in history.read("new", 0, 0)) == 65


def test_a_queue_that_is_not_archived_is_sought_once_after_each_move_of_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look_again = ArchiveReader.look_again

    def counted(reader: ArchiveReader) -> None:
        looks.append(reader.path)
        look_again(reader)

    monkeypatch.setattr(ArchiveReader, "look_again", counted)
    aged = aged_store(tmp_path)
    add(aged.builder, "new", 1, 60, 400)
    files = len(list((aged.store / "commitlog").iterdir()))
    with StoreReader.open(aged.store, archive=aged.archive) as history:
        assert history.queue_info("new", 0).min_offset == 0
        assert not looks
        for number, deleted in enumerate((files - 3, 1), 1):
            delete_head(aged.store, deleted)
            low = history.queue_info("new", 0).min_offset
            assert history.queue_info("new", 0).min_offset == low > 0
            assert len(looks) == number
        for _ in range(2):
            with pytest.raises(TopicNotFound):
                history.queue_info("unknown", 0)
        assert len(looks) == 3


def test_what_a_served_store_deletes_after_its_bounds_were_asked_for_is_in_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged = aged_store(tmp_path, archived=220, deleted=1)
    with StoreReader.open(aged.whole) as whole:
        expected = [ask(whole) for ask in ASKS]
    for number, ask in enumerate(ASKS):
        shutil.rmtree(aged.store)
        shutil.copytree(aged.whole, aged.store)
        with served(aged.store) as url, StoreReader.open(url, archive=aged.archive) as history:
            assert isinstance(history, HistoryReader)
            both, looked = history._both, history._both.of

            def look_and_delete(*given: Any, both: Any = both, looked: Any = looked) -> Any:
                found = looked(*given)
                both.of = looked
                delete_head(aged.store, 8)
                return found

            monkeypatch.setattr(both, "of", look_and_delete)
            assert ask(history) == expected[number], number
