"""``commitlog dump-log``, ``dump-queue`` and ``dump-index``: the raw contents of files, compared with nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import numpy as np
import typer

from commitlog_store.cli.completion import complete_queue, complete_topic
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import AS_TABLE, DUMP, OutputChoice, OutputFormat, ZoneOption, count_option, examples
from commitlog_store.cli.row_output import print_lines
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import NotAStore, StoreNotFound
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.consume_queue_unit import UNIT_SIZE, UnitState, classify_unit, decode_units
from commitlog_store.format.index_file import ENTRY_SIZE, INDEX_ENTRY_DTYPE, entry_offset
from commitlog_store.format.record import Record, decode_record
from commitlog_store.format.single_record import message_of
from commitlog_store.index.service import IndexFile, is_index_file_name
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.message import MessageExt
from commitlog_store.paths import COMMIT_LOG, CONSUME_QUEUE, INDEX, parse_file_name, path_fault

Place = Annotated[str, typer.Argument(metavar="PATH", help="A file, its directory, or a store.")]
Count = Annotated[int | None, count_option("At most this many rows.")]


def register(app: typer.Typer) -> None:
    app.command(
        "dump-log",
        rich_help_panel=DUMP,
        epilog=examples(
            "commitlog dump-log /data/store/commitlog/00000000000000000000 -n 10",
            "commitlog dump-log /data/store --offset 96593 --deep --json",
        ),
    )(dump_log)
    app.command(
        "dump-queue",
        rich_help_panel=DUMP,
        epilog=examples(
            "commitlog dump-queue /data/store orders -q 2 --offset 100 -n 10",
            "commitlog dump-queue /data/store/consumequeue/orders/2/00000000000000000000",
        ),
    )(dump_queue)
    app.command(
        "dump-index",
        rich_help_panel=DUMP,
        epilog=examples(
            "commitlog dump-index /data/store --header", "commitlog dump-index /data/store/index/20261121083655123"
        ),
    )(dump_index)


@takes_groups
def dump_log(
    path: Place,
    offset: Annotated[int, typer.Option(min=0, metavar="OFFSET", help="Begin at this physical offset.")] = 0,
    count: Count = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also properties and bodies, with their CRC checked.")] = False,
    tz: ZoneOption = "UTC",
    output: OutputChoice = AS_TABLE,
) -> None:
    """Print the records of a log in the order of their physical offsets, also those after damage.

    A stretch without a whole record is a row with a fault, and the exit code is 1 then. No queue or index is used.
    """
    rows = _first(log_records(path, offset, Clock(parse_zone(tz)), deep=deep), count)
    faults: list[Any] = []

    def watched() -> Iterator[dict[str, Any]]:
        for row in rows:
            faults.extend([row["fault"]] if row["fault"] is not None and not faults else [])
            yield row

    columns = (*RECORD_COLUMNS, "properties", "body") if deep else RECORD_COLUMNS
    print_lines(columns, watched(), output.form())
    if faults:
        raise typer.Exit(1)


@takes_groups
def dump_queue(
    path: Place,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="For a store.", autocompletion=complete_topic)
    ] = None,
    queue: Annotated[
        int,
        typer.Option("--queue", "-q", min=0, metavar="QUEUE", help="For a store.", autocompletion=complete_queue),
    ] = 0,
    offset: Annotated[int, typer.Option(min=0, metavar="OFFSET", help="Begin at this queue offset.")] = 0,
    count: Count = None,
    output: OutputChoice = AS_TABLE,
) -> None:
    """Print the written units of a consume queue as they are: nothing is checked, and the log is not read."""
    if topic is None and disk.is_directory(os.path.join(path, CONSUME_QUEUE)):
        raise typer.BadParameter("Name a topic of the store, and with --queue one of its queues.", param_hint="TOPIC")
    rows = _first(queue_units(path, topic, queue, offset), count)
    print_lines(UNIT_COLUMNS, rows, output.form())


@takes_groups
def dump_index(
    path: Place,
    header: Annotated[bool, typer.Option("--header", help="Only the headers.")] = False,
    count: Count = None,
    tz: ZoneOption = "UTC",
    output: OutputChoice = AS_TABLE,
) -> None:
    """Print the header of each index file, and its entries. CSV has one of them: entries, or with --header headers."""
    clock, form = Clock(parse_zone(tz)), output.form()
    dumps = [index_entries(file, clock) for file in index_files(path)]
    if header:
        heads = [head for head, _ in dumps]
        print_lines(tuple(heads[0]), heads, form)
        return
    if form is OutputFormat.CSV:
        print_lines(ENTRY_COLUMNS, _first((row for _, rows in dumps for row in rows), count), form)
        return
    for head, rows in dumps:
        print_lines(tuple(head), [head], form)
        entries: Iterable[dict[str, Any]] = _first(rows, count)
        print_lines(ENTRY_COLUMNS, entries, form)


def _first(rows: Iterable[dict[str, Any]], count: int | None) -> Iterator[dict[str, Any]]:
    return islice(rows, None if count is None else min(count, sys.maxsize))


RECORD_COLUMNS = (
    "physicalOffset", "storeSize", "topic", "queueId", "queueOffset", "storeTimestamp", "sysFlag", "tags", "keys",
    "fault",
)  # fmt: skip
UNIT_COLUMNS = ("queueOffset", "physicalOffset", "size", "tagsCode", "state", "file", "byte")
ENTRY_COLUMNS = ("entry", "keyHash", "physicalOffset", "storeTimestamp", "previous")
_PIECE_SIZE = 1 << 20
_PIECE_UNITS = _PIECE_SIZE // UNIT_SIZE * UNIT_SIZE
_PIECE_ENTRIES = _PIECE_SIZE // ENTRY_SIZE

Row = dict[str, Any]


def _files(path: str, inside: tuple[str, ...], is_name: Callable[[str], bool]) -> list[str]:
    """The file at a path, or the files in the directory there or in the store's; ``StoreNotFound``, ``NotAStore``."""
    if not disk.exists(path):
        why = path_fault(path) or "neither a file nor a directory."
        raise StoreNotFound(f"Nothing at {path}: {why}", path=path)
    if not disk.is_directory(path):
        if not is_name(os.path.basename(path)):
            raise NotAStore(f"{path} does not have the name of such a file of a store.", path=path)
        return [path]
    directory = os.path.join(path, *inside)
    if not disk.is_directory(directory):
        directory = path
    found = [os.path.join(directory, name) for name in sorted(disk.list_names(directory)) if is_name(name)]
    if not found:
        within = f", nor a directory {os.path.join(*inside)} with some" if inside else ""
        raise NotAStore(f"{path} holds no such file{within}.", path=path)
    return found


def _is_offset_name(name: str) -> bool:
    return parse_file_name(name) is not None


def _base(path: str) -> int:
    base = parse_file_name(os.path.basename(path))
    assert base is not None
    return base


def log_records(path: str, start: int, clock: Clock, *, deep: bool) -> Iterator[Row]:
    """A row for each record from ``start`` on, and one with a ``fault`` for each stretch without a whole record.

    ``path`` is a file of the log, a directory of them, or a store. ``deep`` adds properties and bodies.
    """
    return _log_records(_files(path, (COMMIT_LOG,), _is_offset_name), start, clock, deep=deep)


def _log_records(files: list[str], start: int, clock: Clock, *, deep: bool) -> Iterator[Row]:
    log = CommitLog(os.path.dirname(files[0]))
    try:
        log.refresh()
        last = MappedFile.open(files[-1], _base(files[-1]))
        last.close()
        low, high = max(start, _base(files[0])), last.base + last.capacity
        for part in walk_past_damage(log, low, high, check_crc=deep):
            if isinstance(part, Gap):
                yield _gap_row(part)
            else:
                yield from _record_rows(log, part, clock, deep=deep)
    finally:
        log.close()


def _gap_row(gap: Gap) -> Row:
    row: Row = dict.fromkeys(RECORD_COLUMNS)
    return row | {"physicalOffset": gap.start, "storeSize": gap.size, "fault": f"{gap.reason}, up to {gap.stop}"}


def _record_rows(log: CommitLog, scan: RecordScan, clock: Clock, *, deep: bool) -> Iterator[Row]:
    for position, size in zip(scan.positions.tolist(), scan.sizes.tolist(), strict=True):
        place = scan.physical_offset + position
        data = scan.data[position : position + size].tobytes()
        record = decode_record(data, physical_offset=place, check_crc=False)
        assert isinstance(record, Record)  # the walk gives good records only
        yield _record_row(message_of(record, log.body(record) if deep else b""), clock, deep=deep)


def _record_row(message: MessageExt, clock: Clock, *, deep: bool) -> Row:
    row: Row = {
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": clock.iso(message.store_timestamp),
        "sysFlag": message.sys_flag,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "fault": None,
    }
    return row | {"properties": dict(message.properties), "body": message.body} if deep else row


def queue_units(path: str, topic: str | None, queue_id: int, start: int) -> Iterator[Row]:
    """A row for each written unit from the queue offset ``start`` on.

    ``path`` is a file of a queue, a queue's directory, or a store, for which ``topic`` and ``queue_id`` name the queue.
    """
    inside = (CONSUME_QUEUE, topic, str(queue_id)) if topic is not None else ()
    return _queue_units(_files(path, inside, _is_offset_name), start)


def _queue_units(files: list[str], start: int) -> Iterator[Row]:
    for name in files:
        file = MappedFile.open(name, _base(name))
        try:
            begin = max(start * UNIT_SIZE - file.base, 0)
            for at in range(begin, file.capacity - file.capacity % UNIT_SIZE, _PIECE_UNITS):
                yield from _unit_rows(file, at)
        finally:
            file.close()


def _unit_rows(file: MappedFile, at: int) -> Iterator[Row]:
    data = file.read(at, min(_PIECE_UNITS, file.capacity - at))
    units = decode_units(data[: len(data) - len(data) % UNIT_SIZE])
    for index in np.flatnonzero((units["physical_offset"] != 0) | (units["size"] != 0)).tolist():
        place, size, code = units[index].tolist()
        state = classify_unit(place, size)
        byte = at + index * UNIT_SIZE
        values = ((file.base + byte) // UNIT_SIZE, place, size, code, state.value, file.path, byte)
        yield dict(zip(UNIT_COLUMNS, values, strict=True)) | ({} if state is not UnitState.FILLER else {"size": None})


def index_files(path: str) -> list[str]:
    """The index file at a path, or those of the directory or store there."""
    return _files(path, (INDEX,), is_index_file_name)


def index_entries(path: str, clock: Clock) -> tuple[Row, Iterator[Row]]:
    """The header of an index file, and a row for each entry. ``CorruptIndex``."""
    file = IndexFile(MappedFile.open(path, 0), {})
    info = file.info()
    file.close()
    header: Row = {
        "file": path,
        "beginTimestamp": clock.iso(info.begin_timestamp),
        "endTimestamp": clock.iso(info.end_timestamp),
        "beginPhysicalOffset": info.begin_physical_offset,
        "endPhysicalOffset": info.end_physical_offset,
        "slots": info.slot_count,
        "entries": max(info.index_count - 1, 0),
    }
    return header, _entries(path, info.begin_timestamp, info.slot_count, header["entries"], clock)


def _entries(path: str, begin: int, slots: int | None, count: int, clock: Clock) -> Iterator[Row]:
    if slots is None:
        return
    file = MappedFile.open(path, 0)
    try:
        # Entries are numbered from 1.
        for number in range(1, count + 1, _PIECE_ENTRIES):
            data = file.read(entry_offset(number, slots), min(_PIECE_ENTRIES, count + 1 - number) * ENTRY_SIZE)
            entries = np.frombuffer(data, INDEX_ENTRY_DTYPE)
            for index, (key_hash, place, seconds, previous) in enumerate(entries.tolist()):
                values = (number + index, key_hash, place, clock.iso(begin + seconds * 1000), previous)
                yield dict(zip(ENTRY_COLUMNS, values, strict=True))
    finally:
        file.close()
