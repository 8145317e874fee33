"""What an archive of a store gives equals what the store's directory gives, for golden stores and generated ones."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from commitlog_store import MessageStore, StoreReader, export_store
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import newest
from commitlog_store.archive.layout import manifest_name
from commitlog_store.archive_reader import reader as reader_module
from commitlog_store.archive_reader.reader import ArchiveAccess
from commitlog_store.cli.app import app
from commitlog_store.errors import CommitLogError, CorruptRecord, FileMissing, InvalidValue, NotAStore, UnsupportedStore
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.object_storage.pages import ObjectPages, PageLimits
from tests.store.cli.commands import ended
from tests.support import golden
from tests.support.same_answers import same_answers
from tests.support.store_builder import StoreBuilder

TOPICS = ("orders", "audit", "pay")
# Topic, queues, messages, bytes of a body.
Append: TypeAlias = tuple[str, int, int, int]
APPENDS = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(1, 3), st.integers(1, 40), st.integers(0, 900)),
    min_size=1,
    max_size=4,
)


def filled_store(path: Path, appends: list[Append], log_file_size: int = 4 << 10) -> StoreBuilder:
    """A store of small log files."""
    builder = StoreBuilder(path, log_file_size=log_file_size, queue_file_units=25)
    for append in appends:
        add(builder, *append)
    return builder


def add(builder: StoreBuilder, topic: str, queues: int, count: int, size: int) -> None:
    """Append messages that differ, with tags, keys and a property."""
    number = sum(builder.next_offsets.values())
    numbers = range(number, number + count)
    builder.append(
        topic,
        list(range(queues)),
        [b"%d" % one * (size // 4) for one in numbers],
        tags=["abc"[one % 3] for one in numbers],
        keys=[f"k{one % 6}" for one in numbers],
        more=[f"amount\x01{one % 9}\x02" if one % 5 else "" for one in numbers],
    )


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_an_archived_golden_store_answers_as_its_directory(name: str, tmp_path: Path) -> None:
    store = golden.copy_golden(name, tmp_path / "store")
    # Beside an owner, the last record would be left for the next generation.
    (store / "abort").unlink(missing_ok=True)
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    with StoreReader.open(store) as directory, StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        assert same_answers(directory, archive) > 0


# Without the explanation of failures, which traces every line: with it an example takes minutes.
@given(appends=APPENDS, later=APPENDS)
@settings(max_examples=4, phases=set(Phase) - {Phase.explain})
def test_any_archived_store_answers_as_its_directory(
    appends: list[Append],
    later: list[Append],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("any")
    builder = filled_store(root / "store", appends)
    archive_store(root / "store", f"file://{root}/past", with_last=True)
    for append in later:
        add(builder, *append)
    archive_store(root / "store", f"file://{root}/past", with_last=True)
    with StoreReader.open(root / "store") as directory, StoreReader.open(f"archive+file://{root}/past") as archive:
        same_answers(directory, archive)


def test_queues_that_come_late_are_found_across_groups_of_segments(tmp_path: Path) -> None:
    """More than 64 segments: two groups, and spans of the catalog; a queue that is in the first of them alone."""
    builder = filled_store(tmp_path / "store", [("audit", 1, 3, 40)])
    for step in range(70):
        add(builder, "orders", 1 + step // 10, 8, 600)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    with (
        StoreReader.open(tmp_path / "store") as directory,
        StoreReader.open(f"archive+file://{tmp_path}/past") as archive,
    ):
        assert len(archive._commit_log.bases) > 70
        assert same_answers(directory, archive) == 563


def test_a_reader_finds_what_the_next_generation_brings(tmp_path: Path) -> None:
    builder = filled_store(tmp_path / "store", [("orders", 2, 40, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        before = archive.queue_info("orders", 0)
        assert archive.settled_state() == archive.settled_state()
        assert not archive.wait_for_any({("orders", 0): before.max_offset}, timeout_s=0)
        add(builder, "orders", 2, 40, 400)
        archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
        assert archive.wait_for_any({("orders", 0): before.max_offset}, timeout_s=60)
        assert archive.queue_info("orders", 0).max_offset == before.max_offset + 20
        assert sum(batch.num_rows for batch in archive.read("orders", 0, 0)) == 40


def test_segments_that_retention_took_are_a_named_loss(tmp_path: Path) -> None:
    builder = filled_store(tmp_path / "store", [("orders", 1, 40, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past")
    first = archive_store(tmp_path / "store", f"file://{tmp_path}/past").stop
    add(builder, "orders", 1, 60, 400)
    for name in sorted((tmp_path / "store" / "commitlog").iterdir()):
        if int(name.name) <= first + (8 << 10):
            name.unlink()
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True, allow_gap=True)
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        with pytest.raises(FileMissing, match="retention deleted it before it was archived") as missing:
            list(archive.read("orders", 0, 0))
        lost = missing.value
        given: list[int] = []
        with pytest.raises(FileMissing) as by_units:
            given.extend(len(units) for units in archive.units("orders", 0, 0, 100))
        assert str(by_units.value) == str(lost)
        assert sum(given) == lost.start
        assert [len(units) for units in archive.units("orders", 0, lost.stop, 100)] == [100 - lost.stop]
        with pytest.raises(FileMissing, match=rf"offsets \[{lost.start + 1}, {lost.stop}\)"):
            list(archive.read("orders", 0, lost.start + 1, lost.stop))
        assert archive.get_message("orders", 0, lost.start).next_begin_offset == lost.stop
        read = archive.read("orders", 0, 0, on_damage="skip", columns=["queueOffset"])
        offsets = [offset for batch in read for offset in batch.column(0).to_pylist()]
        skipped = [at for gap in archive.skipped for at in range(gap.start, gap.stop)]
        assert skipped == list(range(lost.start, lost.stop))
        assert sorted(offsets + skipped) == list(range(100))
        ranges = [("orders", 0, 0, 100)]
        assert archive.read_together(ranges) is None
        assert archive.read_side_by_side(ranges).positions == [0]
    said = ended("cat", f"archive+file://{tmp_path}/past", "orders")
    assert str(lost) in " ".join(said.stderr.split())


def test_a_reader_that_did_not_look_for_long_finds_the_newest_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation after its own is deleted by then. And a file of others among the manifests is not one."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=64 << 10)
    builder.append("orders", 0, [b"1" * 100] * 10)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    (tmp_path / "past" / "manifest" / ".notes").write_bytes(b"not a manifest")
    monkeypatch.setattr(reader_module, "_LOOK_AGAIN_S", 0.0)
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        seen = archive.topics()
        for number in range(2):
            builder.append(f"more-{number}", 0, [b"2" * 100] * 10)
            archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
        (tmp_path / "past" / manifest_name(2)).unlink()
        assert archive.topics() == seen
        monkeypatch.setattr(reader_module, "_LATE_S", 0.0)
        assert archive.topics() == ["more-0", "more-1", "orders"]
        assert archive.queues("more-1")[0].max_offset == 10


def test_an_archive_says_what_it_does_not_have(tmp_path: Path) -> None:
    filled_store(tmp_path / "store", [("orders", 2, 40, 400)])
    url = f"archive+file://{tmp_path}/past"
    archive_store(tmp_path / "store", f"file://{tmp_path}/past")
    with StoreReader.open(url) as archive:
        with pytest.raises(UnsupportedStore, match="which timer messages were delivered"):
            archive.waiting_timers()
        with pytest.raises(UnsupportedStore, match="commitlog restore"):
            _ = archive.paths
        assert archive.facts().log_files > 2
    with pytest.raises(InvalidValue, match="not for an archive"):
        StoreReader.open(url, from_log=True)
    with pytest.raises(InvalidValue, match="are for an archive"):
        StoreReader.open(tmp_path / "store", cache_dir=tmp_path)


def test_a_reader_is_pickled_and_opens_the_archive_again(tmp_path: Path) -> None:
    filled_store(tmp_path / "store", [("orders", 2, 40, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past")
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        data = pickle.dumps(archive)
        expected = archive.scan("orders").read_all()
    with pickle.loads(data) as again:
        assert again.scan("orders").read_all().equals(expected)


def test_commands_that_look_print_what_they_print_of_the_directory(tmp_path: Path) -> None:
    filled_store(tmp_path / "store", [("orders", 2, 40, 400), ("audit", 1, 10, 100)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    url = f"archive+file://{tmp_path}/past"
    runner = CliRunner()
    for command, *rest in (
        ["cat", "orders"],
        ["cat", "orders", "--tag", "a"],
        ["offset-at", "2023-11-14T22:13:20", "orders"],
    ):
        printed = [runner.invoke(app, [command, path, *rest]) for path in (str(tmp_path / "store"), url)]
        assert printed[0].exit_code == printed[1].exit_code == 0
        assert printed[0].stdout == printed[1].stdout
        assert printed[0].stdout
    info = runner.invoke(app, ["info", url])
    assert info.exit_code == 0
    assert "orders" in info.stdout
    refused = runner.invoke(app, ["verify", url])
    assert refused.exit_code == 2


def test_an_archive_is_exported_as_its_directory(tmp_path: Path) -> None:
    filled_store(tmp_path / "store", [("orders", 2, 40, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    report = export_store(f"archive+file://{tmp_path}/past", f"parquet:{tmp_path}/rows", topics=["orders"])
    assert report.rows == 40


def test_an_export_fetches_what_the_queues_of_a_topic_share_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_store(tmp_path / "store", [("orders", 4, 2000, 4000)], log_file_size=16 << 20)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    # Less than the topic has, as of a larger archive.
    limits = PageLimits(memory=1 << 20, ahead=1 << 20)
    monkeypatch.setattr(ArchiveAccess, "pages", lambda _, objects: ObjectPages(objects, None, limits))

    report = export_store(f"archive+file://{tmp_path}/past", f"ndjson:{tmp_path}/rows", topics=["orders"])

    with StoreReader.open(tmp_path / "store") as reader:
        start, stop = reader.physical_bounds()
    assert report.storage.bytes_fetched < 1.2 * (stop - start)
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    places = [row["physicalOffset"] for row in rows]
    assert places == sorted(set(places))
    assert Counter(row["queueId"] for row in rows) == dict.fromkeys(range(4), 500)


def test_an_export_of_an_archive_passes_a_damaged_record(tmp_path: Path) -> None:
    filled_store(tmp_path / "store", [("orders", 2, 40, 400)], log_file_size=1 << 20)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    [log] = (tmp_path / "past/commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    source, target = f"archive+file://{tmp_path}/past", f"parquet:{tmp_path}/rows"

    with pytest.raises(CorruptRecord, match="resume the export with on_damage='skip'"):
        export_store(source, target, topics=["orders"])
    report = export_store(source, target, topics=["orders"], resume=True, on_damage="skip")

    assert (report.total_rows, report.total_skipped) == (39, {"orders": 1})


@pytest.mark.parametrize("is_archived", [True, False])
def test_an_export_of_an_archive_reads_queues_together_again_after_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_archived: bool
) -> None:
    """After bodies that were damaged in the archive, and after a record that was damaged before it was archived."""
    builder = filled_store(tmp_path / "store", [("orders", 4, 5000, 4000)], log_file_size=16 << 20)
    with StoreReader.open(builder.path) as reader:
        begins = np.sort(reader.scan("orders", columns=["physicalOffset"]).read_all()["physicalOffset"].to_numpy())
    if is_archived:
        archive_store(builder.path, f"file://{tmp_path}/past", with_last=True)
        log = min((tmp_path / "past/commitlog").iterdir())
        places = begins[[500, 1500, 2500]] + 1000
    else:
        log = min((builder.path / "commitlog").iterdir())
        places = begins[[500]] + 4  # its magic code, so that no unit is made of it
    with log.open("r+b") as file:
        for place in places.tolist():
            file.seek(place)
            file.write(b"\xff" * 4)
    if not is_archived:
        archive_store(builder.path, f"file://{tmp_path}/past", with_last=True)
    # Less than the topic has, as of a larger archive, and more than a block and what is fetched ahead, as always.
    limits = PageLimits(memory=6 << 20, ahead=1 << 20)
    monkeypatch.setattr("commitlog_store.object_storage.pages._PAGES_OF_A_REQUEST", 4)
    monkeypatch.setattr(ArchiveAccess, "pages", lambda _, objects: ObjectPages(objects, None, limits))

    source, target = f"archive+file://{tmp_path}/past", tmp_path / "rows"
    report = export_store(source, f"ndjson:{target}", topics=["orders"], on_damage="skip")

    assert (report.rows, report.skipped) == (5000 - len(places), {"orders": len(places)})
    assert sum("skipped the offsets" in one for one in caplog.messages) == len(places)
    assert report.storage.bytes_fetched < 1.2 * builder.position
    rows = [json.loads(line)["physicalOffset"] for line in target.read_text().splitlines()]
    assert len(set(rows)) == len(rows) == report.rows
    # What follows all damage is in the order of the log: it was read together.
    assert rows[-2000:] == sorted(rows)[-2000:]


def test_an_archive_is_not_opened_for_writing(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="Object storage has archives, which are read alone"):
        MessageStore.open(f"archive+file://{tmp_path}/past")


def test_a_reader_that_looks_a_day_later_finds_what_is_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation that followed is deleted by then, and what the reader's own one names."""
    builder = filled_store(tmp_path / "store", [("orders", 1, 40, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        for _ in range(2):
            add(builder, "orders", 1, 40, 400)
            archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
        gc_archive(f"file://{tmp_path}/past", older_than_s=0)
        for name in ("_LOOK_AGAIN_S", "_LATE_S"):
            monkeypatch.setattr(reader_module, name, 0.0)
        assert archive.queue_info("orders", 0).max_offset == 120
        assert sum(batch.num_rows for batch in archive.read("orders", 0, 0)) == 120


def test_rows_of_the_catalog_that_were_damaged_give_an_error_or_the_same_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a large catalog, of which a row is read that no checksum is about."""
    monkeypatch.setattr("commitlog_store.object_storage.pages.PAGE", 64)
    monkeypatch.setattr("commitlog_store.object_storage.pages._PAGES_OF_A_REQUEST", 1)
    filled_store(tmp_path / "store", [("orders", 1, 30, 400)])
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    manifest = newest(ObjectStore.open(f"file://{tmp_path}/past"))
    catalog = tmp_path / "past" / manifest.catalog.name
    data = catalog.read_bytes()
    refused = 0
    for place in range(manifest.catalog_head, len(data)):
        catalog.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
            read = archive.read("orders", 0, 0, columns=["queueOffset", "body"])
            try:
                rows = [row for batch in read for row in batch.to_pylist()]
            except CommitLogError:
                refused += 1
            else:
                assert [row["queueOffset"] for row in rows] == list(range(30)), place
                assert all(row["body"] == b"%d" % row["queueOffset"] * 100 for row in rows), place
    assert refused
