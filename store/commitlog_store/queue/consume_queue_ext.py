"""``consumequeue_ext/<topic>/<queue id>``: files in which brokers keep more of each unit. Here they are only deleted.

A broker with enableConsumeQueueExt writes the tags code, the store time and the Bloom filter bits of a message there
(its size varies), and the unit has the entry's address in place of the tags code: the byte at which the entry begins,
less 2**63. Files are named by their first byte, and all have one size. Addresses rise with the offsets of a queue, so
files that end before that of the first message that is left are not needed any more.

Source: RocketMQ ``store/ConsumeQueueExt.java`` (``truncateByMinAddress``), ``store/ConsumeQueue.java``
(``correctMinOffset``).
"""

from __future__ import annotations

import os

from commitlog_store.errors import StoreIOError
from commitlog_store.files import disk
from commitlog_store.paths import file_name_for_offset, parse_file_name

# Tags codes up to this one are addresses, not hash codes.
LAST_EXT_ADDRESS = -(2**31) - 1
_NO_ADDRESS = 2**63


def remove_ext_files(directory: str, address: int | None) -> int:
    """Delete the files of a queue's directory that end before an address, oldest first; None: all. Their number.

    ``StoreIOError``. A symbolic link is not followed (invariant 10).
    """
    if address is not None and address > LAST_EXT_ADDRESS:
        return 0
    topic = os.path.dirname(directory)
    if any(map(disk.is_symlink, (os.path.dirname(topic), topic, directory))) or not disk.is_directory(directory):
        return 0
    needed_from = None if address is None else address + _NO_ADDRESS
    count = 0
    path = directory
    try:
        for base in sorted(base for name in disk.list_names(directory) if (base := parse_file_name(name)) is not None):
            path = os.path.join(directory, file_name_for_offset(base))
            if needed_from is not None and base + disk.file_size(path) >= needed_from:
                break
            disk.unlink(path)
            disk.sync_directory(directory)
            count += 1
    except OSError as error:
        raise StoreIOError("delete", path=path, cause=error) from error
    return count
