"""Frame records: the header of a batch in the log, which proves that the batch is whole.

A frame record is an ordinary message of the topic ``rmq_sys_commitlog_batch``, queue 0; the batch's records follow
right after it, with blank fillers where files end. Its body, big-endian::

    0          4          8             16            24          28            36            44      46
    +----------+----------+-------------+-------------+-----------+-------------+-------------+-------+- - - - - - -+
    | MAGIC    | FORMAT   | LENGTH      | ROWS        | CHECKSUM  | VERSION     | PREVIOUS    | APP   | application,|
    | "PYCB"   | 1        |             |             |           |             | (-1 none)   | SIZE  | fingerprint |
    +----------+----------+-------------+-------------+-----------+-------------+-------------+-------+- - - - - - -+

LENGTH is the number of bytes from the frame record's end to the end of the batch's last record, fillers included; ROWS
how many records those are. CHECKSUM is the CRC-32 of these records, fillers left out, with their three late fields
(QUEUEOFFSET, PHYSICALOFFSET, STORETIMESTAMP) zero. VERSION is the application's, and PREVIOUS the physical offset of
its frame record before this one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np

from commitlog_store.batch_id import BatchId
from commitlog_store.columnar.records import EncodedRecords, patch_late_fields
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import InvalidValue
from commitlog_store.format.checksum import crc32
from commitlog_store.format.record import HOST_FLAGS, own_sys_flag
from commitlog_store.format.single_record import encode_message
from commitlog_store.paths import BATCH_TOPIC

_MAGIC = b"PYCB"
_FORMAT = 1
_FIELDS = struct.Struct(">4siqqIqqH")


@dataclass(frozen=True)
class BatchFrame:
    """The body of a frame record. ``length`` is in bytes; ``previous`` is a physical offset."""

    batch: BatchId
    length: int
    rows: int
    checksum: int
    previous: int


def encode_frame(frame: BatchFrame) -> bytes:
    """The body of the frame record."""
    app = frame.batch.app_id.encode()
    head = _FIELDS.pack(
        _MAGIC, _FORMAT, frame.length, frame.rows, frame.checksum, frame.batch.version, frame.previous, len(app)
    )
    return head + app + frame.batch.fingerprint.encode()


def decode_frame(body: bytes) -> BatchFrame:
    """A frame record's body. ``InvalidValue`` for other bytes."""
    if len(body) < _FIELDS.size:
        raise InvalidValue(f"a body of {len(body)} bytes, where that of a frame record has at least {_FIELDS.size}")
    magic, version_of_format, length, rows, checksum, version, previous, app_size = _FIELDS.unpack_from(body)
    names = body[_FIELDS.size :]
    if magic != _MAGIC or version_of_format != _FORMAT:
        raise InvalidValue(f"the body {body[:8].hex()}..., which is not a frame record's of format {_FORMAT}")
    if length < 0 or rows < 0 or version < 0 or previous < -1 or app_size > len(names):
        raise InvalidValue(f"a frame of {length} bytes and {rows} rows, version {version}, previous {previous}")
    try:
        batch = BatchId(names[:app_size].decode(), version, names[app_size:].decode())
    except UnicodeDecodeError as error:
        raise InvalidValue("an application id or a fingerprint that is not UTF-8") from error
    return BatchFrame(batch, length, rows, checksum, previous)


class FrameRecord:
    """The frame record of one batch, encoded when the records after it are written. ``size`` is in bytes.

    ``previous`` is a physical offset, ``host`` an ip and a port; the born time is in milliseconds.
    """

    def __init__(self, batch: BatchId, previous: int, host: tuple[bytes, int], born_timestamp: int) -> None:
        self._frame = BatchFrame(batch, 0, 0, 0, previous)
        self._host = host
        self._born_timestamp = born_timestamp
        # Whether all rows are written: from then on the frame may be in the log.
        self.made = False
        record = self._record(self._frame)
        self.size = len(record)
        self.host_flags = own_sys_flag(record)

    def encoded(self, length: int, rows: int, checksum: int) -> bytearray:
        """The record, its late fields zero, for a frame of ``length`` bytes and ``rows`` rows after it."""
        self.made = True
        return self._record(replace(self._frame, length=length, rows=rows, checksum=checksum))

    def _record(self, frame: BatchFrame) -> bytearray:
        return encode_message(
            BATCH_TOPIC.encode(),
            encode_frame(frame),
            b"",
            queue_id=0,
            flag=0,
            sys_flag=0,
            born_timestamp=self._born_timestamp,
            born_host=self._host,
            store_host=self._host,
        )


def staged_checksum(scan: RecordScan, checksum: int, first: int = 0, stop: int | None = None) -> int:
    """Continue the checksum of a frame over the records ``[first, stop)`` of a scan, as they were staged."""
    stop = len(scan) if stop is None else stop
    if first >= stop:
        return checksum
    begin, end = int(scan.positions[first]), int(scan.positions[stop - 1] + scan.sizes[stop - 1])
    data = scan.data[begin:end].copy()
    starts = scan.positions[first:stop] - begin
    flags = scan.field("sys_flag")[first:stop] & HOST_FLAGS
    for hosts in np.unique(flags).tolist():
        own = starts[flags == hosts]
        nothing = np.zeros(len(own), np.int64)
        patch_late_fields(
            EncodedRecords(data, np.append(own, len(data))),
            host_flags=hosts,
            queue_offsets=nothing,
            physical_offsets=nothing,
            store_timestamps=0,
        )
    return crc32(data.data, checksum)
