"""A blank filler may be as long as a file: a mirror stores it as it comes, and counts it when all of it is there."""

from __future__ import annotations

import shutil
import struct
import threading
import time
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import verify_store
from commitlog_store.errors import PeerRefused
from commitlog_store.format.record import encode_filler
from tests.store.follower.mirrors import follow, log_bytes
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.scripted_master import ScriptedMaster, Slave, frame
from tests.support.waiting import WAIT_LIMIT_S, wait_for

FILE_SIZE = 16 << 20
PIECE = 64 << 10
SETTINGS = {"mapped_file_size_commit_log": FILE_SIZE}
# A follower receives at most 1 MiB at once, and copies that a few times; the filler has almost 16 MiB.
MOST_MEMORY = 6 << 20


@pytest.fixture(scope="module", params=[b"\0", b"old bytes"], ids=["zeros", "old bytes"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """A log whose first file ends with a long filler, and where that begins.

    RocketMQ writes the header alone: what was in the file stays in it.
    """
    path = tmp_path_factory.mktemp("origin")
    with open_store(path, **SETTINGS) as store:
        for _ in range(5):
            put_ok(store, body=b"before" * 50)
        start = store.physical_bounds()[1]
        while store.physical_bounds()[1] < FILE_SIZE:
            put_ok(store, "replaced", body=bytes(1 << 20))
        for _ in range(5):
            put_ok(store, body=b"after" * 50)
        end = store.physical_bounds()[1]
    log = bytearray(log_bytes(path, 0, end))
    header = encode_filler(FILE_SIZE - start)
    rest = FILE_SIZE - start - len(header)
    log[start:FILE_SIZE] = header + (request.param * rest)[:rest]
    return bytes(log), start


def test_a_long_filler_is_not_gathered_in_memory(tmp_path: Path, filled: tuple[bytes, int]) -> None:
    log, _ = filled

    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says(), size=PIECE)
        slave.wait_until_left()

    tracemalloc.start()
    try:
        with ScriptedMaster(serve) as master, follow(master.address, tmp_path, settings=SETTINGS) as follower:
            before = tracemalloc.get_traced_memory()[0]
            assert follower.wait_for(FILE_SIZE, timeout_s=WAIT_LIMIT_S)
            most = tracemalloc.get_traced_memory()[1]
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    finally:
        tracemalloc.stop()
    assert most - before < MOST_MEMORY
    assert log_bytes(tmp_path, 0, len(log)) == log
    assert not verify_store(tmp_path)


def test_a_follower_is_not_silent_while_a_long_filler_comes(tmp_path: Path, filled: tuple[bytes, int]) -> None:
    """Masters drop a slave that says nothing for ``ha_housekeeping_interval``."""
    log, start = filled
    heard: list[int] = []

    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says(), start)
        while slave.says() < start:
            pass
        listening = threading.Thread(target=lambda: heard.append(slave.says()), daemon=True)
        listening.start()
        for at in range(start, FILE_SIZE - PIECE, 100):
            if heard:
                break
            slave.send(frame(at, log[at : at + 100]))
            time.sleep(0.001)
        listening.join(WAIT_LIMIT_S)

    settings = SETTINGS | {"ha_send_heartbeat_interval": 100}
    with ScriptedMaster(serve) as master, follow(master.address, tmp_path, settings=settings) as follower:
        wait_for(lambda: heard)
        assert heard == [start]
        assert follower.status.end == start


@pytest.mark.parametrize("missing", [FILE_SIZE // 2, 1])
def test_half_a_filler_is_received_again(tmp_path: Path, filled: tuple[bytes, int], missing: int) -> None:
    """After a lost connection, and after a killed process, whose files look like a copy of the directory."""
    log, start = filled
    connections: list[int] = []
    copied = threading.Event()
    stop = FILE_SIZE - missing

    def serve(slave: Slave) -> None:
        connections.append(slave.says())
        slave.send_log(log, connections[-1], stop if len(connections) == 1 else len(log), PIECE)
        if len(connections) == 1:
            copied.wait(WAIT_LIMIT_S)
            slave.reset()
        else:
            slave.wait_until_left()

    mirror, killed = tmp_path / "mirror", tmp_path / "killed"
    with ScriptedMaster(serve) as master:
        with follow(master.address, mirror, settings=SETTINGS) as follower:
            assert follower.wait_for(start, timeout_s=WAIT_LIMIT_S)
            wait_for(lambda: log[stop - 100 : stop] == log_bytes(mirror, stop - 100, stop))
            shutil.copytree(mirror, killed, ignore=shutil.ignore_patterns("lock"))
            assert (killed / "abort").exists(), "as a killed process leaves it"
            copied.set()
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        assert log_bytes(killed, 0, start) == log[:start]
        assert not any(log_bytes(killed, start, start + 8)), "no opening takes it for a whole filler"
        with follow(master.address, killed, settings=SETTINGS) as follower:
            assert follower.status.end == start
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    for path in (mirror, killed):
        assert log_bytes(path, 0, len(log)) == log
        assert not verify_store(path)


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_filler_that_does_not_end_with_the_file_is_refused_before_its_rest_comes(
    tmp_path: Path, filled: tuple[bytes, int], wrong: int
) -> None:
    log, start = filled

    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says(), start)
        slave.send(frame(start, encode_filler(FILE_SIZE - start + wrong)))
        slave.wait_until_left()

    with (
        ScriptedMaster(serve) as master,
        follow(master.address, tmp_path, settings=SETTINGS) as follower,
        pytest.raises(PeerRefused, match="Set mapped_file_size_commit_log to the master's"),
    ):
        follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    assert not any(log_bytes(tmp_path, start, FILE_SIZE))


def test_a_batch_that_ends_within_a_filler_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "origin") as store:
        with store.transaction("app", version=1) as batch:
            batch.put_messages(pa.table({"body": [b"y" * 300] * 3}), topic="batch")
        end = store.physical_bounds()[1]
    log = log_bytes(tmp_path / "origin", 0, end)
    head = struct.unpack_from(">i", log)[0]
    wrong = log[:head] + encode_filler((16 << 10) - head)

    def serve(slave: Slave) -> None:
        slave.send_log(wrong, slave.says())
        slave.wait_until_left()

    with (
        ScriptedMaster(serve) as master,
        follow(master.address, tmp_path / "mirror") as follower,
        pytest.raises(PeerRefused, match=f"ends at physical offset {end} ends within the blank filler"),
    ):
        follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    assert not any(log_bytes(tmp_path / "mirror", 0, 16 << 10))
