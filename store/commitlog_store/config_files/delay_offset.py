"""``config/delayOffset.json``: the queue offset up to which each delay level was delivered, as brokers write it.

::

    {"offsetTable":{1:12,3:7}}

A level, from 1 on, is the queue before its number of ``SCHEDULE_TOPIC_XXXX``; the value is the offset of the next
message to deliver. A broker reads the file when it starts, and from then on writes it every 10 seconds. Brokers from
5.0 on also write ``dataVersion``, which is kept and raised here where the file has it.

Source: RocketMQ ``schedule/ScheduleMessageService.java``, ``schedule/DelayOffsetSerializeWrapper.java``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from commitlog_store.config_files.json_file import JsonConfigFile, next_version
from commitlog_store.paths import CONFIG, DELAY_OFFSET_CONFIG

__all__ = ["DelayOffsetFile", "replace_delay_offsets"]

_SUBJECT = "The offsets of delay levels"
_EXPECTED = "an object with offsetTable: levels with offsets of 0 and more"
_TABLE = "offsetTable"
_VERSION = "dataVersion"


class _Content(msgspec.Struct):
    offsetTable: dict[int, Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]] = {}


class DelayOffsetFile:
    """The file of one store."""

    def __init__(self, store_path: str) -> None:
        path = os.path.join(store_path, CONFIG, DELAY_OFFSET_CONFIG)
        self._file = JsonConfigFile(path, _SUBJECT, _offset_table)

    @property
    def path(self) -> str:
        return self._file.path

    def read(self) -> dict[int, int]:
        """The next offset of each level; empty without a file. ``CorruptConfig``, ``ReadFailed``."""
        return _offset_table(self._file, self._file.read())

    def write(self, offsets: Mapping[int, int]) -> None:
        """Set the offsets of these levels; other levels and members stay. What ``JsonConfigFile.write`` raises."""
        root = self._file.read()
        table = {**_offset_table(self._file, root), **offsets}
        root[_TABLE] = {str(level): offset for level, offset in sorted(table.items())}
        if _VERSION in root:
            root[_VERSION] = next_version(root[_VERSION], self._file)
        self._file.write(root, integer_names=True)


def _offset_table(file: JsonConfigFile, root: dict[str, Any]) -> dict[int, int]:
    """The next offset of each level. ``CorruptConfig``."""
    try:
        # Names of JSON members are texts.
        return msgspec.convert(root, _Content, strict=True, str_keys=True).offsetTable
    except msgspec.ValidationError as error:
        raise file.corrupt(0, _EXPECTED, str(error)) from error


def replace_delay_offsets(store_path: str, root: dict[str, Any], source: str) -> bool:
    """Write a master's offsets as they are, as a slave does; False if they are there.

    ``source`` is the list in an error: ``CorruptConfig`` for an object that no broker writes.
    """
    _offset_table(JsonConfigFile(source, _SUBJECT), root)
    file = JsonConfigFile(os.path.join(store_path, CONFIG, DELAY_OFFSET_CONFIG), _SUBJECT, _offset_table)
    if file.read() == root:
        return False
    file.write(root, integer_names=True)
    return True
