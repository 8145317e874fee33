"""A connection that ends within a batch of several files: the mirror has none of it, and a sound log."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa

from commitlog_store import verify_store
from commitlog_store.paths import file_name_for_offset
from tests.store.follower.mirrors import follow, log_bytes
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.scripted_master import ScriptedMaster, Slave
from tests.support.waiting import WAIT_LIMIT_S, wait_for

FILE_SIZE = 16 << 10


def test_a_batch_that_is_cut_leaves_no_gap_before_files_made_ahead(tmp_path: Path) -> None:
    with open_store(tmp_path / "origin") as store:
        # More than half of a file: the next two are made ahead then.
        while store.physical_bounds()[1] < 12 << 10:
            put_ok(store, body=b"x" * 500)
        before = store.physical_bounds()[1]
        with store.transaction("app", version=1) as batch:
            batch.put_messages(pa.table({"body": [b"y" * 300] * 30}), topic="batch")
        end = store.physical_bounds()[1]
    assert FILE_SIZE < end < 2 * FILE_SIZE
    log = log_bytes(tmp_path / "origin", 0, end)
    mirror = tmp_path / "mirror"
    made_ahead = mirror / "commitlog" / file_name_for_offset(2 * FILE_SIZE)
    sent: list[int] = []

    def serve(slave: Slave) -> None:
        start = slave.says()
        if not sent:
            slave.send_log(log, start, before)
            wait_for(made_ahead.exists)
            slave.send_log(log, before, end - 10)
            sent.append(end - 10)
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, mirror) as follower:
        assert follower.wait_for(before, timeout_s=WAIT_LIMIT_S)
        wait_for(lambda: sent)
        wait_for(lambda: any(log_bytes(mirror, FILE_SIZE, FILE_SIZE + 100)))
    assert not list(verify_store(mirror))
    assert not any(log_bytes(mirror, before, 3 * FILE_SIZE)), "none of the batch is left"
    with (
        ScriptedMaster(lambda slave: slave.send_log(log, slave.says())) as master,
        follow(master.address, mirror) as follower,
    ):
        assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    assert log_bytes(mirror, 0, end) == log


def test_a_forked_child_that_closes_the_follower_leaves_the_parents_batch_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "origin") as store:
        put_ok(store)
        before = store.physical_bounds()[1]
        with store.transaction("app", version=1) as batch:
            batch.put_messages(pa.table({"body": [b"y" * 300] * 20}), topic="batch")
        end = store.physical_bounds()[1]
    log = log_bytes(tmp_path / "origin", 0, end)
    mirror, has_forked = tmp_path / "mirror", threading.Event()

    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says(), end - 10)
        has_forked.wait(WAIT_LIMIT_S)
        slave.send_log(log, end - 10, end)
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, mirror) as follower:
        wait_for(lambda: any(log_bytes(mirror, end - 400, end)))
        child = os.fork()
        if not child:
            follower.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert any(log_bytes(mirror, before + 300, before + 600)), "the child has removed the batch"
        has_forked.set()
        assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    assert log_bytes(mirror, 0, end) == log


def test_a_batch_whose_last_record_a_kill_has_torn_is_received_again(tmp_path: Path) -> None:
    """A killed process leaves parts of records, also within a sector: only a crash of the machine loses whole ones."""
    with open_store(tmp_path / "origin") as store:
        put_ok(store)
        with store.transaction("app", version=1) as batch:
            batch.put_messages(pa.table({"body": [b"y" * 300] * 5}), topic="batch")
        end = store.physical_bounds()[1]
    log = log_bytes(tmp_path / "origin", 0, end)
    mirror, killed = tmp_path / "mirror", tmp_path / "killed"
    copied = threading.Event()

    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says(), end - 10)
        copied.wait(WAIT_LIMIT_S)
        slave.reset()

    with ScriptedMaster(serve) as master, follow(master.address, mirror):
        wait_for(lambda: any(log_bytes(mirror, end - 500, end)))
        shutil.copytree(mirror, killed, ignore=shutil.ignore_patterns("lock"))
        copied.set()
    with (killed / "commitlog" / file_name_for_offset(0)).open("r+b") as file:
        file.seek(end - 300)
        file.write(log[end - 300 : end - 5])
    with (
        ScriptedMaster(lambda slave: slave.send_log(log, slave.says())) as master,
        follow(master.address, killed) as follower,
    ):
        assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    assert log_bytes(killed, 0, end) == log
    assert not list(verify_store(killed))
