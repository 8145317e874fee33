"""The CommitLog file that a time leads to: where recovery begins."""

from __future__ import annotations

import itertools
from pathlib import Path

from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.log.scan import find_by_time
from tests.store.owner.owned_store import open_store, put_ok
from tests.store.retention.small_stores import store_clock


def test_a_time_leads_to_the_newest_file_that_begins_at_or_before_it(tmp_path: Path) -> None:
    ticks = itertools.count(1_000_000.0)
    with store_clock(lambda: next(ticks)), open_store(tmp_path) as store:
        times = [put_ok(store, body=bytes(1_000)).store_timestamp for _ in range(40)]
    files = MappedFileQueueWriter(str(tmp_path / "commitlog"), 16 << 10)
    files.load(aborted=False)
    firsts = {}
    for file in files.files:
        data = file.read(0, 88)
        if any(data):
            firsts[file.base] = int.from_bytes(data[56:64], "big")
    assert len(firsts) >= 3
    assert find_by_time(files, times[0] - 1) is None
    for base, stored in firsts.items():
        found = find_by_time(files, stored)
        assert found is not None
        assert found.base == base
    latest = find_by_time(files, times[-1] + 1_000)
    assert latest is not None
    assert latest.base == max(firsts)
    files.close()
