"""``commitlog produce``: puts messages from stdin into a store, which this process owns until the end of the input.

It stops at the first line that is not put: the lines before it are in the store, and none after it. Once that line is
corrected, the input can continue from there.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

import numpy as np
import orjson

from commitlog_store.cli.message_lines import MessageBatch
from commitlog_store.cli.progress import progress_bar
from commitlog_store.cli.render import drop_output
from commitlog_store.columnar.encode import RecordSettings, encode_messages
from commitlog_store.columnar.input import message_schema, parse_messages
from commitlog_store.columnar.message_table import message_chunks
from commitlog_store.config import MessageStoreConfig
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import NotAStore, StoreNotFound
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.message_id import encode_message_id, parse_host
from commitlog_store.format.record import FILLER_SIZE
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.message import PutMessageStatus
from commitlog_store.paths import MAX_QUEUE_ID
from commitlog_store.queue.queue_counts import file_size_of
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.store import MessageStore

__all__ = ["OutputGone", "Refused", "is_store", "open_store", "put_batches"]


class Refused(Exception):
    """A message that the store refused, or whose put has an unknown outcome."""


class OutputGone(Exception):
    """The reader of the results has gone. Continuing would put messages without reporting them."""


@dataclass
class _Interrupt:
    """Remembers a Ctrl-C during a put until the put has ended: a put is never left half way."""

    reading: bool = False
    wanted: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.reading:
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def _interrupts() -> Iterator[_Interrupt]:
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # other threads cannot set signal handlers
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def is_store(path: str) -> bool:
    """Whether the path is a store. Errors other than its absence are raised."""
    try:
        check_store_directory(path)
    except (StoreNotFound, NotAStore):
        return False
    return True


def open_store(path: str, config: MessageStoreConfig, *, create: bool, lock_timeout_s: float) -> MessageStore:
    """Own the store. Without ``create``, the path must be one: ``StoreNotFound``, ``NotAStore``."""
    path = disk.absolute_path(path)
    try:
        check_store_directory(path)
    except (StoreNotFound, NotAStore) as error:
        if not create:
            raise type(error)(f"{error} With --create, a new store is created.", path=path) from None
    with progress_bar("recovering") as progress:
        return MessageStore.open(path, config, lock_timeout_s=lock_timeout_s, progress=progress)


def put_batches(
    store: MessageStore, batches: Iterator[MessageBatch], *, as_json: bool, advance: Callable[[int], None]
) -> int:
    """Put all batches and close the store. Returns the number of messages put, which is also printed to stderr.

    ``advance`` is called with the number of messages of each batch that was put.

    ``BadLine`` at a line that is not a message, ``Refused`` for a message that was not accepted, ``OutputGone`` if the
    results cannot be printed, ``KeyboardInterrupt``; the messages before were put.
    """
    started, put = time.perf_counter(), 0
    try:
        with _interrupts() as interrupt, store:
            pieces = _pieces(store, batches)
            while (batch := _next(pieces, interrupt)) is not None:
                result = store.put_messages(batch.table())
                offsets = result.rows.column("physicalOffset").to_numpy()
                count = int((offsets >= 0).sum())
                put += count
                advance(count)
                if as_json:
                    try:
                        _print_results(sys.stdout, store, batch, result)
                    except BrokenPipeError:
                        drop_output()
                        raise OutputGone(_gone(batch)) from None
                _raise_refused(batch, result)
                if interrupt.wanted:
                    raise KeyboardInterrupt
    finally:
        seconds = time.perf_counter() - started
        print(f"{put} message{'' if put == 1 else 's'} put in {seconds:.1f} s", file=sys.stderr)
    return put


def _next(batches: Iterator[MessageBatch], interrupt: _Interrupt) -> MessageBatch | None:
    interrupt.reading = True
    try:
        return next(batches, None)
    finally:
        interrupt.reading = False


def _pieces(store: MessageStore, batches: Iterator[MessageBatch]) -> Iterator[MessageBatch]:
    """The batches, cut after each message that may be refused: the next one waits until that is known.

    A store skips a row that it does not accept, and puts those after it.
    """
    room = (
        file_size_of(StorePaths.of(store.path, store.config.store_path_commit_log).commit_log)
        or store.config.mapped_file_size_commit_log
    ) - FILLER_SIZE
    topics = TopicConfig(store.path, store.config.default_topic_queue_nums, lambda _: -1)
    for batch in batches:
        start = 0
        for row in _doubtful(store.config, topics, room, batch):
            yield batch.part(start, row + 1)
            start = row + 1
        if start < len(batch.rows):
            yield batch.part(start)


def _doubtful(config: MessageStoreConfig, topics: TopicConfig, room: int, batch: MessageBatch) -> list[int]:
    """Rows that the store refuses, or would with some queue: the queue that it will choose is not known yet.

    ``room`` is the size of the largest record.
    """
    table, settings = batch.table(), RecordSettings.of(config, largest_record=room)
    schema, doubtful = message_schema(table, topic=None), []
    for first, chunk in message_chunks(table):
        columns = parse_messages(
            chunk,
            schema,
            born_timestamp_ms=0,
            limits=settings.limits,
            first_row=first,
            topic_fault=topics.put_fault,
        )
        encoded = encode_messages(columns, np.full(columns.count, MAX_QUEUE_ID, np.int32), settings)
        doubtful += [refusal.row for refusal in encoded.refusals if refusal.row is not None]
    return doubtful


def _gone(batch: MessageBatch) -> str:
    return (
        f"The reader of the results has gone, so no line after line {batch.numbers[-1]} was put. Leave out --json to "
        "put messages without results."
    )


def _print_results(out: IO[str], store: MessageStore, batch: MessageBatch, result: PutTableResult) -> None:
    host = parse_host(store.config.store_host)
    for number, row in zip(batch.numbers, result.rows.to_pylist(), strict=True):
        place = row["physicalOffset"]
        there = place >= 0
        found: dict[str, Any] = {
            "line": number,
            "status": row["status"],
            "msgId": encode_message_id(*host, place) if there else None,
            "physicalOffset": place if there else None,
            "queueId": row["queueId"] if there else None,
            "queueOffset": row["queueOffset"] if there else None,
        }
        out.write(orjson.dumps(found).decode() + "\n")
    out.flush()


def _raise_refused(batch: MessageBatch, result: PutTableResult) -> None:
    if result.ok:
        return
    statuses = result.rows.column("status").to_pylist()
    bad = [row for row, status in enumerate(statuses) if status != PutMessageStatus.PUT_OK.value]
    # The row is a number in this batch; users know the line.
    reason = re.sub(r"^Message in row \d+", "The message", result.reason)
    # A message that no store accepts is reported alone; a full disk or a late sync is reported for many lines.
    more = f" (and {len(bad) - 1} more lines)" if len(bad) > 1 else ""
    raise Refused(f"Line {batch.numbers[bad[0]]}{more}: {result.status.value}: {reason}")
