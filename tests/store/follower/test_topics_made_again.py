"""A topic that the master deletes and makes again, whose queues begin at offset 0 again in the mirror's log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader, assess_store, promote
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import put_ok, small
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def _bodies(path: Path | str) -> list[bytes]:
    with StoreReader.open(path) as reader:
        (info,) = reader.queues("orders")
        batches = reader.read("orders", info.queue_id, info.min_offset, columns=["body"])
        return [body for batch in batches for body in batch["body"].to_pylist()]


def _put(master: MessageStore, *bodies: bytes) -> None:
    for body in bodies:
        put_ok(master, body=body)
    master.dispatch()
    master.flush()


def test_a_mirror_warns_once_and_has_the_new_messages_when_its_queues_are_built_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = [b"new 0", b"new 1", b"new 2"]
    with master_of(tmp_path / "master") as master:
        _put(master, *[b"old %d" % number for number in range(5)])
        with follow(master, tmp_path / "mirror") as follower:
            for _ in range(60):
                put_ok(master, topic="others", body=bytes(1_000))
            _put(master)
            assert_identical(master, follower)
            master.clean(max_bytes=16 << 10)
            master.delete_topic("orders")
            for body in new:
                _put(master, body)
                assert follower.wait_for(master.physical_bounds()[1], timeout_s=WAIT_LIMIT_S)
            wait_for(lambda: "the queue begins again at offset 0" in caplog.text)
        assert sum("begins again" in text for text in caplog.messages) == 1
        assert _bodies(tmp_path / "mirror")[0] == b"old 0"
        shutil.copytree(tmp_path / "mirror", tmp_path / "promoted")
        directory = tmp_path / "mirror"
        removal, following = assess_store(directory, deep=True).next_steps
        assert removal == f"rm -rf {directory / 'consumequeue'} {directory / 'index'}"
        assert following == f"commitlog follow {master.ha_address} {directory}"
        for name in ("consumequeue", "index"):
            shutil.rmtree(directory / name)
        with follow(master, tmp_path / "mirror") as follower:
            _put(master, b"new 3")
            assert follower.wait_for(master.physical_bounds()[1], timeout_s=WAIT_LIMIT_S)
            wait_for(lambda: _bodies(tmp_path / "mirror") == [*new, b"new 3"])
        assert _bodies(master.path) == [*new, b"new 3"]
    assert_clean(tmp_path / "mirror")
    promote(tmp_path / "promoted")
    MessageStore.open(tmp_path / "promoted", small(), rebuild=True).close()
    assert _bodies(tmp_path / "promoted") == new
    assert_clean(tmp_path / "promoted")
