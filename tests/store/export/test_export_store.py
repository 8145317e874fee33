"""``export_store``: every row reaches the target exactly once, also of exports that are killed and resumed."""

from __future__ import annotations

import base64
import csv
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pa_parquet
import pytest

from commitlog_store import ALL_COLUMNS, MessageStore, StoreReader, export_store
from commitlog_store.errors import (
    CorruptStoreError,
    FilterError,
    InvalidValue,
    TailLost,
    TargetFailed,
    TopicNotFound,
    UnsupportedStore,
)
from commitlog_store.export.export_store import EXPORT_COLUMNS
from commitlog_store.paths import COMPACTION_CONSUME_QUEUE
from tests.store.cli.commands import lines
from tests.store.retention.small_stores import SMALL, fill
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S

PROJECT = Path(__file__).resolve().parents[3]
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics, two of them with three queues, and bodies that are text and that are not."""
    built = StoreBuilder(tmp_path_factory.mktemp("exported") / "store")
    for topic, count in (("orders", 400), ("orders-late", 200), ("clicks", 1)):
        bodies = [b"%d " % row * 20 if row % 7 else b"\xff%d" % row for row in range(count)]
        tags = ["paid" if row % 3 else "sent" for row in range(count)]
        built.append(topic, [0, 1, 2], bodies, tags=tags, keys=[f"k{row} of{topic}" for row in range(count)])
    return built.path


def rows_of(store: Path, columns: tuple[str, ...] = EXPORT_COLUMNS, topics: str = "") -> list[dict[str, Any]]:
    """The messages as the reader gives them, in the order of an export."""
    with StoreReader.open(store) as reader:
        batches = [
            batch
            for topic in reader.topics()
            if topic.startswith(topics)
            for info in reader.queues(topic)
            for batch in reader.read(topic, info.queue_id, info.min_offset, info.max_offset, columns=columns)
        ]
    return list(pa.Table.from_batches(batches).to_pylist())


def places(rows: list[dict[str, Any]]) -> list[Place]:
    return sorted((row["topic"], int(row["queueId"]), int(row["queueOffset"])) for row in rows)


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    found = pa_dataset.dataset(path, partitioning="hive").to_table().to_pylist()
    return [row for row in found if row["topic"] is not None]


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def csv_rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


READ = {"parquet": parquet_rows, "ndjson": json_rows, "csv": csv_rows}


def test_parquet_holds_every_column_of_every_message(golden_533: Path, tmp_path: Path) -> None:
    with StoreReader.open(golden_533) as reader:
        topics = reader.topics()
    report = export_store(golden_533, f"parquet:{tmp_path / 'out'}", topics=topics, columns=ALL_COLUMNS)
    found = {place: row for row in parquet_rows(tmp_path / "out") for place in places([row])}
    wanted = rows_of(golden_533, ALL_COLUMNS)
    assert report.rows == report.total_rows == len(wanted) == len(found)
    for row in wanted:
        assert found[places([row])[0]] == row


def test_json_lines_are_those_of_cat(store: Path, tmp_path: Path) -> None:
    export_store(store, f"ndjson:{tmp_path / 'out'}", topics=["orders"])
    printed = {row["physicalOffset"]: row for row in lines("cat", store, "orders", "--json")}
    assert {row["physicalOffset"]: row for row in json_rows(tmp_path / "out")} == printed


def test_csv_holds_every_message(store: Path, tmp_path: Path) -> None:
    export_store(store, f"csv:{tmp_path / 'out'}")
    found = {place: row for row in csv_rows(tmp_path / "out") for place in places([row])}
    for row in rows_of(store):
        other = found.pop(places([row])[0])
        body = other["body"].encode() or base64.b64decode(other["bodyBase64"])
        assert (body, other["tags"], other["keys"]) == (row["body"], row["tags"], row["keys"])
        assert json.loads(other["properties"]) == dict(row["properties"])
    assert not found


def test_a_filter_chooses_the_rows(store: Path, tmp_path: Path) -> None:
    sent = [row for row in rows_of(store, topics="orders") if (row["topic"], row["tags"]) == ("orders", "sent")]
    wanted = [row["queueOffset"] for row in sent]
    target = f"ndjson:{tmp_path / 'out'}"
    report = export_store(store, target, topics=["orders"], filter="TAGS = 'sent'", columns=["queueOffset"])
    assert report.rows == len(wanted) > 0
    assert sorted(row["queueOffset"] for row in json_rows(tmp_path / "out")) == sorted(wanted)
    again = {"topics": ["orders"], "filter": "TAGS = 'sent'", "columns": ["queueOffset"], "resume": True}
    assert export_store(store, target, **again).rows == 0  # type: ignore[arg-type]  # of several types
    with pytest.raises(FilterError):
        export_store(store, f"ndjson:{tmp_path / 'other'}", filter="TAGS =")
    with pytest.raises(InvalidValue, match="at least one"):
        export_store(store, f"ndjson:{tmp_path / 'other'}", tags=[])


def test_topics_times_tags_and_columns_choose_the_rows(store: Path, tmp_path: Path) -> None:
    rows = [row for row in rows_of(store, topics="orders") if row["tags"] == "sent"]
    stored = sorted(row["storeTimestamp"] for row in rows)
    since, until = (round(when.timestamp() * 1000) for when in (stored[10], stored[50]))
    export_store(
        store,
        f"ndjson:{tmp_path / 'out'}",
        topics=["orders*"],
        since=since,
        until=until,
        tags=["sent", "other"],
        columns=["topic", "queueId", "queueOffset"],
    )
    wanted = [row for row in rows if stored[10] <= row["storeTimestamp"] < stored[50]]
    assert sorted(map(str, json_rows(tmp_path / "out"))) == sorted(
        str({name: row[name] for name in ("topic", "queueId", "queueOffset")}) for row in wanted
    )


def test_patterns_leave_out_system_topics_and_such_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for topic in ("orders", "bills", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_commitlog_batch"):
        builder.append(topic, 0, [b"x"])
    (builder.path / COMPACTION_CONSUME_QUEUE / "bills").mkdir(parents=True)
    assert export_store(builder.path, f"ndjson:{tmp_path / 'all'}", topics=["*"]).topics == ["orders"]
    assert "'bills'" in caplog.text
    assert export_store(builder.path, f"ndjson:{tmp_path / 'none'}").topics == ["orders"]
    named = export_store(builder.path, f"ndjson:{tmp_path / 'named'}", topics=["ord*", "SCHEDULE_TOPIC_XXXX"])
    assert named.topics == ["SCHEDULE_TOPIC_XXXX", "orders"]
    with pytest.raises(UnsupportedStore):
        export_store(builder.path, f"ndjson:{tmp_path / 'refused'}", topics=["bills"])
    with pytest.raises(TopicNotFound, match="Did you mean 'SCHEDULE_TOPIC_XXXX'"):
        export_store(builder.path, f"ndjson:{tmp_path / 'refused'}", topics=["SCHEDULE_TOPIC_XX*"])


def test_parquet_files_have_a_bounded_size_and_say_their_topic(store: Path, tmp_path: Path) -> None:
    report = export_store(store, f"parquet:{tmp_path / 'out'}", file_size=20_000)
    files = sorted((tmp_path / "out").glob("topic=*/part-*.parquet"))
    assert len(files) == report.committed > 5
    assert {path.parent.name for path in files} == {"topic=orders", "topic=orders-late", "topic=clicks"}
    assert all("topic" not in pa_parquet.ParquetFile(path).schema_arrow.names for path in files)


@pytest.mark.parametrize("kind", READ)
def test_rows_are_there_exactly_once_after_exports_were_killed(store: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    ran = quick_programs.run(
        [sys.executable, "-m", "tests.store.export.killed_exports", str(store), f"{kind}:{target}"],
        cwd=PROJECT,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_LIMIT_S,
    )
    assert int(ran.stdout) > 10
    assert places(READ[kind](target)) == places(rows_of(store))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A body with another byte in each of two topics, a record that is none, and a unit that leads nowhere."""
    built = StoreBuilder(tmp_path / "store")
    orders = built.append("orders", [0, 1], [b"%d " % row * 20 for row in range(400)]).tolist()
    clicks = built.append("clicks", 0, [b"%d " % row * 20 for row in range(400)]).tolist()
    (log,) = (built.path / "commitlog").iterdir()
    with log.open("r+b") as file:
        for place, within, bad in ((orders[40], 90, b"?"), (orders[41], 4, b"junk"), (clicks[399], 90, b"?")):
            file.seek(place + within)
            file.write(bad)
    with (built.path / "consumequeue" / "clicks" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(100 * 20)
        file.write(b"\xff" * 8)
    return built.path


SKIPPED = {"orders": 2, "clicks": 2}
BAD_PLACES = [("clicks", 0, 100), ("clicks", 0, 399), ("orders", 0, 20), ("orders", 1, 20)]


def left_places() -> list[Place]:
    """Of the messages of the damaged store, those that can be read."""
    every = [("clicks", 0, row) for row in range(400)] + [("orders", row % 2, row // 2) for row in range(400)]
    return sorted(place for place in every if place not in BAD_PLACES)


@pytest.mark.parametrize("kind", READ)
def test_damage_is_skipped_counted_and_not_met_again(damaged: Path, tmp_path: Path, kind: str) -> None:
    target = f"{kind}:{tmp_path / 'out'}"
    with pytest.raises(CorruptStoreError, match="resume the export with on_damage='skip'"):
        export_store(damaged, target)
    report = export_store(damaged, target, resume=True, on_damage="skip")
    assert places(READ[kind](tmp_path / "out")) == left_places()
    assert (report.skipped, report.total_skipped, report.total_rows) == (SKIPPED, SKIPPED, 796)
    again = export_store(damaged, target, resume=True)
    assert (again.rows, again.skipped, again.total_skipped) == (0, {}, SKIPPED)
    assert places(READ[kind](tmp_path / "out")) == left_places()


@pytest.mark.parametrize("kind", READ)
def test_skipped_messages_are_counted_once_by_exports_that_were_killed(
    damaged: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "out"
    quick_programs.run(
        [sys.executable, "-m", "tests.store.export.killed_exports", str(damaged), f"{kind}:{target}", "skip"],
        cwd=PROJECT,
        env=child_environment(),
        capture_output=True,
        check=True,
        timeout=WAIT_LIMIT_S,
    )
    assert places(READ[kind](target)) == left_places()
    assert export_store(damaged, f"{kind}:{target}", resume=True).total_skipped == SKIPPED


def test_what_an_export_skipped_that_was_killed_is_in_the_next_report(damaged: Path, tmp_path: Path) -> None:
    target = f"ndjson:{tmp_path / 'out'}"
    export_store(damaged, target, on_damage="skip")
    state = tmp_path / "out.export.json"
    content = json.loads(state.read_text())
    assert content["skipped"] == SKIPPED
    state.write_text(json.dumps(content | {"finished": False}))
    assert export_store(damaged, target, resume=True).skipped == SKIPPED


def test_another_on_damage_is_refused(damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="'raise' or 'skip', not 'skip-records'"):
        export_store(damaged, f"csv:{tmp_path / 'out'}", on_damage="skip-records")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", READ)
def test_a_resumed_export_adds_what_the_store_has_got_since(tmp_path: Path, kind: str) -> None:
    built = StoreBuilder(tmp_path / "store")
    built.append("orders", 0, [b"one", b"two"])
    target = f"{kind}:{tmp_path / 'out'}"
    assert export_store(built.path, target).rows == 2
    assert export_store(built.path, target, resume=True).rows == 0
    built.append("orders", [0, 1], [b"three", b"four"])
    built.append("clicks", 0, [b"five"])
    report = export_store(built.path, target, resume=True)
    assert (report.rows, report.total_rows) == (3, 5)
    assert places(READ[kind](tmp_path / "out")) == places(rows_of(built.path))


def with_bodies(path: Path, *bodies: bytes) -> Path:
    """A store of these messages in queue 0 of orders, and one of clicks before them; the same bytes for the same."""
    shutil.rmtree(path, ignore_errors=True)
    built = StoreBuilder(path)
    built.append("clicks", 0, [b"click"])
    built.append("orders", 0, list(bodies))
    return path


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("since", [(b"new",), (b"new", b"newer"), (b"new", b"newer", b"newest")])
def test_messages_in_the_places_of_exported_ones_are_not_passed_over(
    tmp_path: Path, kind: str, since: tuple[bytes, ...]
) -> None:
    """The store lost what was exported from offset 2 on, and has grown again: less far, as far, and farther."""
    target = f"{kind}:{tmp_path / 'out'}"
    store = with_bodies(tmp_path / "store", b"one", b"two", b"three", b"four")
    assert export_store(store, target).rows == 5
    with_bodies(store, b"one", b"two", *since)
    before = places(READ[kind](tmp_path / "out"))
    with pytest.raises(TailLost, match=f"{tmp_path / 'out'}.*up to offset 4.*another target") as lost:
        export_store(store, target, resume=True)
    error = lost.value
    assert (error.topic, error.queue_id, error.position, error.available) == ("orders", 0, 4, (0, 2 + len(since)))
    assert places(READ[kind](tmp_path / "out")) == before
    assert export_store(store, target, topics=["clicks"], resume=True).rows == 0, "a queue that is whole goes on"
    with_bodies(store, b"one", b"two", b"three", b"four", b"five")
    assert export_store(store, target, resume=True).rows == 1, "the store that it was made of is back"


def test_a_queue_of_which_nothing_is_written_yet_has_its_place_too(tmp_path: Path) -> None:
    """By the time of its first message, the export begins after what the store then loses."""
    store = with_bodies(tmp_path / "store", b"one", b"two", b"three", b"four")
    with StoreReader.open(store) as reader:
        since = reader.store_timestamp("orders", 0, 3) + 1
    target = f"ndjson:{tmp_path / 'out'}"
    assert export_store(store, target, topics=["orders"], since=since).rows == 0
    with_bodies(store, b"one", b"two", b"new", b"newer", b"newest")
    with pytest.raises(TailLost):
        export_store(store, target, topics=["orders"], since=since, resume=True)


def test_a_state_of_an_earlier_version_is_resumed_and_gets_fences(tmp_path: Path) -> None:
    target, state = f"ndjson:{tmp_path / 'out'}", tmp_path / "out.export.json"
    store = with_bodies(tmp_path / "store", b"one", b"two")
    export_store(store, target)
    content = json.loads(state.read_text())
    fences = content.pop("fences")
    assert fences.keys() == content["queues"].keys()
    state.write_text(json.dumps(content))
    assert export_store(store, target, resume=True).rows == 0
    assert json.loads(state.read_text())["fences"] == fences
    del content["queues"]["orders"]
    with_bodies(store, b"one")
    content["queues"]["orders"] = {"0": 2}
    state.write_text(json.dumps(content))
    with pytest.raises(TailLost, match="ends at 1"):
        export_store(store, target, resume=True)


def test_a_message_that_retention_has_removed_is_not_asked_for(tmp_path: Path) -> None:
    target = f"ndjson:{tmp_path / 'out'}"
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, 60)
        export_store(store.path, target)
        fill(store, 60)
        store.clean(max_bytes=0)
        report = store.clean(max_bytes=0, dry_run=True)
        with store.reader() as reader:
            low, high = reader.queue_info("orders", 0).min_offset, reader.queue_info("orders", 0).max_offset
    assert report.log_start > 0
    assert low > 60
    state = tmp_path / "out.export.json"
    content = json.loads(state.read_text())
    content["queues"]["orders"]["0"] = low
    state.write_text(json.dumps(content))
    assert export_store(tmp_path / "store", target, resume=True).rows == high - low


def test_a_log_without_queues_is_exported(golden_533: Path, tmp_path: Path) -> None:
    shutil.copytree(golden_533 / "commitlog", tmp_path / "store" / "commitlog")
    topics = ["*", "SCHEDULE_TOPIC_XXXX"]
    report = export_store(tmp_path / "store", f"ndjson:{tmp_path / 'out'}", topics=topics, from_log=True)
    assert report.rows == len(rows_of(golden_533))
    assert places(json_rows(tmp_path / "out")) == places(rows_of(golden_533))


def test_a_target_that_is_in_use_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "mine").write_text("")
    for target in ("ndjson:file", "csv:file", "parquet:directory", "parquet:file", "csv:directory"):
        kind, name = target.split(":")
        with pytest.raises(InvalidValue, match=f"{tmp_path}/{name} "):
            export_store(store, f"{kind}:{tmp_path / name}", resume=name == "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_export_is_begun_once_and_resumed_with_the_same_options(store: Path, tmp_path: Path) -> None:
    target = f"ndjson:{tmp_path / 'out'}"
    export_store(store, target, topics=["orders"])
    before = (tmp_path / "out").read_bytes()
    with pytest.raises(InvalidValue, match="--resume"):
        export_store(store, target, topics=["orders"])
    with pytest.raises(InvalidValue, match="columns"):
        export_store(store, target, topics=["orders"], columns=["body"], resume=True)
    with pytest.raises(InvalidValue, match="tags"):
        export_store(store, target, topics=["orders"], tags=["paid"], resume=True)
    with pytest.raises(InvalidValue, match="filter"):
        export_store(store, target, topics=["orders"], filter="TAGS = 'paid'", resume=True)
    assert (tmp_path / "out").read_bytes() == before


def test_files_that_are_gone_are_noticed(store: Path, tmp_path: Path) -> None:
    export_store(store, f"parquet:{tmp_path / 'files'}")
    next((tmp_path / "files").glob("topic=*/*.parquet")).unlink()
    with pytest.raises(InvalidValue, match="restore"):
        export_store(store, f"parquet:{tmp_path / 'files'}", resume=True)
    export_store(store, f"csv:{tmp_path / 'lines'}")
    (tmp_path / "lines").write_text("cut")
    with pytest.raises(InvalidValue, match="restore"):
        export_store(store, f"csv:{tmp_path / 'lines'}", resume=True)


def test_wrong_targets_columns_and_topics_are_refused(store: Path, tmp_path: Path) -> None:
    for target in ("orders", "xml:orders", "parquet:"):
        with pytest.raises(InvalidValue, match="parquet:DIR, ndjson:FILE or csv:FILE"):
            export_store(store, target)
    with pytest.raises(InvalidValue, match="queueId"):
        export_store(store, f"csv:{tmp_path / 'out'}", columns=["queueid"])
    with pytest.raises(TopicNotFound, match=r"ordr\?"):
        export_store(store, f"csv:{tmp_path / 'out'}", topics=["orders", "ordr?"])
    assert not (tmp_path / "out").exists()


def test_targets_that_are_no_local_files_are_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for target, reason in (
        ("ndjson:-", "'commitlog cat' prints to stdout"),
        ("parquet:http://host/orders", "local files"),
        ("csv:/dev/null", "a link, a pipe or a device"),
        (f"ndjson:{tmp_path / 'link'}", "a link, a pipe or a device"),
    ):
        with pytest.raises(InvalidValue, match=reason):
            export_store(store, target)
    assert [one.name for one in tmp_path.iterdir()] == ["link"]


def test_a_target_in_the_store_is_refused(store: Path, tmp_path: Path) -> None:
    """RocketMQ does not start when a file in its log is not named by a number."""
    (tmp_path / "link").symlink_to(store)
    for target in (f"ndjson:{store / 'commitlog' / 'rows'}", f"parquet:{tmp_path / 'link' / 'rows'}"):
        with pytest.raises(InvalidValue, match="give another target"):
            export_store(store, target)
    assert not list(store.rglob("rows*"))


def test_other_users_may_read_what_the_umask_lets_them(store: Path, tmp_path: Path) -> None:
    """An export is made for other programs, often those of another user."""
    before = os.umask(0o027)
    try:
        export_store(store, f"parquet:{tmp_path / 'new' / 'out'}")
        export_store(store, f"csv:{tmp_path / 'rows'}")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*") if path.is_dir()} == {0o750}
    files = [tmp_path / "rows", *(tmp_path / "new").rglob("*.parquet")]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}


def test_a_home_directory_may_be_given(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell does not resolve it after ``ndjson:``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    export_store(store, "ndjson:~/rows")
    assert json_rows(tmp_path / "rows")


def test_the_topic_that_was_meant_is_named(store: Path, tmp_path: Path) -> None:
    with StoreReader.open(store) as reader:
        topic = reader.topics()[0]
    with pytest.raises(TopicNotFound, match=f"Did you mean '{topic}'"):
        export_store(store, f"ndjson:{tmp_path / 'rows'}", topics=[topic[:-1]])


@pytest.mark.parametrize("kind", READ)
def test_a_second_export_into_the_same_target_is_refused(store: Path, tmp_path: Path, kind: str) -> None:
    """As of a timer that starts the next one before the last one has ended."""
    target = tmp_path / "out"
    refused = []

    def second(_: int, __: int) -> None:
        with pytest.raises(TargetFailed, match=f"export of process {os.getpid()} is writing there"):
            export_store(store, f"{kind}:{target}", resume=True)
        refused.append(True)

    export_store(store, f"{kind}:{target}", resume=True, progress=second)
    assert refused
    assert places(READ[kind](target)) == places(rows_of(store))
    assert export_store(store, f"{kind}:{target}", resume=True).rows == 0


def test_topics_that_are_numbers_are_read_as_text_as_the_docs_say(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for topic in ("007", "0042"):
        builder.append(topic, 0, [b"x"])
    export_store(builder.path, f"parquet:{tmp_path / 'out'}")
    assert {row["topic"] for row in parquet_rows(tmp_path / "out")} == {7, 42}, "what readers infer by themselves"
    topics = pa_dataset.partitioning(pa.schema([("topic", pa.string())]), flavor="hive")
    table = pa_dataset.dataset(tmp_path / "out", partitioning=topics).to_table()
    assert sorted(table.column("topic").to_pylist()) == ["0042", "007"]
