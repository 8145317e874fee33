"""Bulk reads of a served store: the bytes of records are copied as seldom as can be, and units are found once."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CommitLogError
from commitlog_store.queue.log_blocks import Block
from commitlog_store.remote.block_wire import BlocksWanted, decode_piece
from commitlog_store.remote.wire import encode
from commitlog_store.serve.blocks import blocks_of
from commitlog_store.serve.call_limits import CallLimits
from tests.store.serve.servers import SPOKEN, ServeProcess, served
from tests.support.programs import run_program
from tests.support.waiting import WAIT_LIMIT_S, wait_for

ROWS, QUEUES = 20_000, 4
MIB = 1 << 20
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def filled(path: Path) -> Path:
    with MessageStore.open(path) as store:
        queue_ids = pa.array(np.arange(ROWS) % QUEUES, pa.int32())
        bodies = [b"%05d" % row * 200 for row in range(ROWS)]
        tags = ["rare" if row % 20 == 0 else "common" for row in range(ROWS)]
        store.put_messages(pa.table({"body": bodies, "queueId": queue_ids, "tags": tags}), topic="t")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 21 MB."""
    return filled(tmp_path_factory.mktemp("bulk") / "store")


def all_messages(*, tags: str = "", size: int = MIB, budget: int = 64 * MIB) -> BlocksWanted:
    ranges = [("t", queue_id, 0, ROWS // QUEUES) for queue_id in range(QUEUES)]
    return BlocksWanted("", ranges, True, [[tags]] if tags else [], False, ROWS, size, 64 * MIB, budget)


@linux_only
def test_a_server_sends_bytes_from_the_mapped_file_and_a_client_decodes_them_where_they_came(store: Path) -> None:
    log = next((store / "commitlog").iterdir())
    with StoreReader.open(store) as reader:
        row = next(blocks_of(reader, all_messages(), for_sending=True))
        sent = row.column(0).buffers()[2]
        mappings = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if str(log) in line]
        bounds = [[int(bound, 16) for bound in mapping.split("-")] for mapping in mappings]
        assert any(start <= sent.address < stop for start, stop in bounds)
        block = decode_piece(row).value
        assert isinstance(block, Block)
        assert np.shares_memory(block.data, np.frombuffer(sent, np.uint8))


def test_two_blocks_of_the_mapped_log_travel_as_one_and_are_cut_where_they_met(store: Path) -> None:
    wanted = all_messages()

    def blocks(*, for_sending: bool) -> list[Block]:
        rows = blocks_of(reader, wanted, for_sending=for_sending)
        return [value for row in rows if isinstance(value := decode_piece(row).value, Block)]

    with StoreReader.open(store) as reader:
        apart, sent = blocks(for_sending=False), blocks(for_sending=True)
    assert len(sent) < len(apart) * 0.6
    positions = np.zeros(QUEUES, np.int64)
    parts: list[Block] = []
    for one in sent:
        parts += one.cut(wanted.limits, positions)
        positions = one.positions
    assert [len(part) for part in parts] == [len(one) for one in apart]
    for part, one in zip(parts, apart, strict=True):
        assert part.positions.tolist() == one.positions.tolist()
        assert part.messages.physical_offsets.tolist() == one.messages.physical_offsets.tolist()
        records = [block.data[at] for block in (part, one) for at in block.starts[:1].tolist()]
        assert len(set(records)) <= 1


def test_an_answer_goes_on_to_the_end_of_the_units_that_were_found(store: Path) -> None:
    def size_of(budget: int) -> int:
        return sum(len(row.column(0)[0].as_buffer()) for row in blocks_of(reader, all_messages(budget=budget)))

    with StoreReader.open(store) as reader:
        log_size = reader.physical_bounds()[1]
        assert size_of(12 * MIB) == log_size
        assert 7 * MIB <= size_of(4 * MIB) < 10 * MIB


def test_a_budget_is_of_the_bytes_that_are_sent_and_not_of_what_lies_between_them(store: Path) -> None:
    with StoreReader.open(store) as reader:
        *_, last, end = blocks_of(reader, all_messages(tags="rare", budget=2 * MIB))
    block = decode_piece(last).value
    assert isinstance(block, Block)
    assert block.positions.tolist() == [ROWS // QUEUES] * QUEUES
    assert decode_piece(end).value is None


def test_a_stream_ends_when_its_client_has_left(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    def counted(*arguments: Any, **settings: Any) -> Iterator[pa.RecordBatch]:
        nonlocal sent
        for row in blocks_of(*arguments, **settings):
            sent += 1
            yield row

    monkeypatch.setattr("commitlog_store.serve.flight_server.blocks_of", counted)
    limits = CallLimits()
    with served(store, limits=limits) as url, flight.FlightClient(url) as client:
        stream = client.do_get(flight.Ticket(encode(all_messages(size=32 << 10))), SPOKEN)
        stream.read_chunk()
        stream.cancel()
        wait_for(lambda: not any(limits.calls_of_peers().values()))
    assert 0 < sent < 300  # of 330


def _mapped_pages(pid: int, file: Path) -> int:
    """The bytes of a file that are in a process's memory by mappings."""
    of_file, size = False, 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            of_file = values[-1:] == [str(file)]
        elif of_file and name == "Rss:":
            size += int(values[0]) * 1024
    return size


@linux_only
def test_a_file_that_is_cut_while_its_bytes_are_sent_ends_one_answer_and_not_the_server(tmp_path: Path) -> None:
    path = filled(tmp_path / "store")
    log = next((path / "commitlog").iterdir())
    with ServeProcess(path, "--read-only") as server, flight.FlightClient(server.url) as client:
        stream = client.do_get(flight.Ticket(encode(all_messages(size=14 * MIB))), SPOKEN)
        wait_for(lambda: _mapped_pages(server.process.pid, log) > 12 * MIB)
        os.truncate(log, MIB)
        with pytest.raises(flight.FlightUnavailableError):
            stream.read_all()
        with StoreReader.open(server.url) as far, StoreReader.open(path) as near:
            found = []
            for reader in (near, far):
                with pytest.raises(CommitLogError) as refused:
                    list(reader.read("t", 0, 0))
                found.append((type(refused.value), str(refused.value)))
        assert found[0] == found[1]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide otherwise")
def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    program = """
import resource
import numpy as np
from commitlog_store.files.memory import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        one, other = np.ones(6 << 20, np.uint8), np.ones(6 << 20, np.uint8)
        del one, other
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
    assert int(run_program("-c", program, timeout=WAIT_LIMIT_S).stdout) < 20 * (6 << 20) / 4096 / 10
