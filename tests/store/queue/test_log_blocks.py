"""Blocks: all that follows them is decoded without the files that they came from, so a server may send them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.block_reader import BlockDecoder
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.log_blocks import Block, BlockLimits, LogBlocks, Lost
from tests.support.store_builder import StoreBuilder


def test_blocks_are_decoded_after_the_store_is_gone(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=1024)
    store.append("t", 0, [b"x%d" % number for number in range(20)])
    log = CommitLog(str(store.path / "commitlog"))
    log.refresh()
    queue = QueueCatalog(str(store.path), log).queue("t", 0)
    queue.bounds()
    blocks = [one for one in LogBlocks(log).of_queue((queue, 0, 20), BlockLimits(rows=6)) if isinstance(one, Block)]
    sent = [replace(block, data=block.data.copy()) for block in blocks]
    log.close()
    shutil.rmtree(store.path)
    decoder = BlockDecoder("t", [0], ("queueOffset", "body"), BlockLimits(), verify_crc=True)
    batches = [batch for block in sent for _, batch in decoder.batches(block) if isinstance(batch, pa.RecordBatch)]
    rows = pa.Table.from_batches(batches).to_pylist()
    assert rows == [{"queueOffset": number, "body": b"x%d" % number} for number in range(20)]
    assert len(sent) > 1
    assert [int(block.positions[0]) for block in sent][-1] == 20


def test_what_cannot_be_read_is_between_the_blocks_before_and_after_it(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=1024)
    store.append("t", 0, [b"x" * 200] * 12)
    first, second, *_ = sorted((store.path / "commitlog").iterdir())
    second.unlink()
    log = CommitLog(str(store.path / "commitlog"))
    log.refresh()
    queue = QueueCatalog(str(store.path), log).queue("t", 0)
    queue.bounds()
    found = list(LogBlocks(log).of_queue((queue, 0, 12), BlockLimits()))
    assert [type(one) for one in found] == [Block, Lost, *[Block] * (len(found) - 2)]
    lost = found[1]
    assert isinstance(lost, Lost)
    assert lost.start == int(found[0].positions[0])  # type: ignore[union-attr]
    assert str(second) in str(lost.error)
    assert first.exists()
    log.close()
