"""A salvage that is interrupted, or whose disk is full, leaves nothing that looks like a whole store."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, StoreReader, salvage_store
from commitlog_store.errors import InvalidValue, NotAStore, StoreLocked, TargetFailed
from commitlog_store.files import disk
from tests.store.salvage.damaged_stores import GOLDEN_498, SMALL_INDEX, messages
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.source_tree import PROJECT
from tests.support.waiting import WAIT_LIMIT_S

# Of the calls at which a salvage can be killed, the default run takes one in so many.
STEP = 5


def test_a_killed_salvage_leaves_no_store_or_a_whole_one(tmp_path: Path) -> None:
    """Whenever it is killed: half of a store that opens would lose the other half without a report."""
    check_killed_salvages(tmp_path, STEP)


@pytest.mark.stress
def test_a_salvage_killed_at_any_call_leaves_no_store_or_a_whole_one(tmp_path: Path) -> None:
    check_killed_salvages(tmp_path, 1)


def check_killed_salvages(tmp_path: Path, step: int) -> None:
    module, target = "tests.store.salvage.killed_salvages", str(tmp_path / "target")
    command = [sys.executable, "-m", module, str(GOLDEN_498), target, str(step)]
    ran = quick_programs.run(
        command,
        cwd=PROJECT,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_LIMIT_S,
    )
    left = ran.stdout.splitlines()
    assert set(left) == {"no store", str(sum(messages(GOLDEN_498).values()))}
    assert left.index("no store") == 0
    assert left[-1] != "no store"


def test_a_full_disk_is_named_and_what_it_left_is_not_taken_for_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"

    def full(descriptor: int, data: disk.Bytes, offset: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_at", full)
        with pytest.raises(TargetFailed, match=r"No space left.*not finished: remove its target") as caught:
            salvage_store(GOLDEN_498, target, config=SMALL_INDEX)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(NotAStore):
        StoreReader.open(target)
    with pytest.raises(InvalidValue, match="holds what an interrupted salvage left; remove it"):
        salvage_store(GOLDEN_498, target, config=SMALL_INDEX)
    shutil.rmtree(target)
    salvage_store(GOLDEN_498, target, config=SMALL_INDEX)
    assert messages(target) == messages(GOLDEN_498)
    assert sorted(os.listdir(target)) == ["checkpoint", "commitlog", "config", "consumequeue", "index", "lock"]


def test_a_store_with_an_owner_is_refused(tmp_path: Path) -> None:
    """What the owner is writing looks damaged, and a salvage would take a part of it."""
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL_INDEX) as store:
        store.put_message(Message(queue_id=0, topic="t", body=b"x"))
        for source in (path, path / "commitlog"):
            with pytest.raises(StoreLocked, match=f"owner, process {os.getpid()}: stop it first, or salvage a copy"):
                salvage_store(source, tmp_path / "target", config=SMALL_INDEX)
    assert not (tmp_path / "target").exists()
    assert salvage_store(path).found == 1
