"""A transaction whose process forks: the child can neither commit it nor give it up."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import StoreClosed
from commitlog_store.transaction import Transaction
from tests.store.owner.owned_store import open_store
from tests.support.stored_bodies import bodies

TABLE = pa.table({"body": [b"a", b"b"], "queueId": [0, 0]})


def _leave_by_an_exception(batch: Transaction) -> None:
    with pytest.raises(KeyError), batch:
        raise KeyError("the child's own")


def _commit(batch: Transaction) -> None:
    with pytest.raises(StoreClosed), batch:
        pass


def _put(batch: Transaction) -> None:
    with pytest.raises(StoreClosed), batch:
        batch.put_messages(TABLE, topic="orders")


@pytest.mark.parametrize("leave", [_leave_by_an_exception, _commit, _put])
def test_staged_files_stay_with_the_parent_after_a_fork(tmp_path: Path, leave: object) -> None:
    assert callable(leave)
    with open_store(tmp_path) as store:
        with store.transaction("loader", 1) as batch:
            batch.put_messages(TABLE, topic="orders")
            child = os.fork()
            if not child:
                os._exit(_exit_code(leave, batch, store))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            batch.put_messages(TABLE, topic="orders")
        assert bodies(store) == [b"a", b"b"] * 2
    assert not list((tmp_path / "staging").rglob("*"))


def _exit_code(leave: object, batch: Transaction, store: MessageStore) -> int:
    assert callable(leave)
    try:
        leave(batch)
        store.close()
    except BaseException:  # noqa: BLE001 - the child must not go on with the test
        return 1
    return 0
