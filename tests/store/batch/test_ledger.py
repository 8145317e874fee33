"""The ledger: committed batches, from its file or from the log, and the batches that it refuses."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store import BatchId, StoreReader
from commitlog_store.batch.staging import StagedWriter
from commitlog_store.errors import BatchConflict, CorruptConfig, ReadFailed
from commitlog_store.files import disk
from commitlog_store.testing import parts_of
from tests.store.batch.batches import commit, expected, table
from tests.store.owner.owned_store import open_store
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import topic_bodies


def test_the_same_version_with_other_contents_is_a_conflict(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in (1, 2, 3):
            assert commit(store, version, fingerprint=f"f{version}")
        for version in (1, 2, 3):
            assert not commit(store, version, fingerprint=f"f{version}"), "replayed"
            with pytest.raises(
                BatchConflict, match=f"batch {version} of 'loader'.*last batch in this store is 3"
            ) as error:
                commit(store, version, fingerprint="other")
            assert (error.value.app_id, error.value.version, error.value.committed) == ("loader", version, 3)
            assert str(error.value).endswith(f"commitlog txn reset {tmp_path} loader")
        with pytest.raises(BatchConflict, match="not among the frames"):
            commit(store, 0, fingerprint="f0")
        assert not commit(store, 0), "without a fingerprint, what is below the last version counts as there"
        assert commit(store, 1, app="another"), "versions belong to an application"
    assert_clean(tmp_path)


def test_the_command_that_a_conflict_names_can_be_run(tmp_path: Path) -> None:
    path, app = tmp_path / "a store's directory", "my; loader"
    with open_store(path) as store:
        commit(store, 1, app=app, fingerprint="f")
        with pytest.raises(BatchConflict) as error:
            commit(store, 1, app=app, fingerprint="g")
    command = str(error.value)[str(error.value).index("commitlog txn reset") :]
    path_of_programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-c", f"{command} --yes"], check=True, capture_output=True, env=os.environ | {"PATH": path_of_programs}
    )
    assert b"whose last batch was 1" in ran.stdout
    with open_store(path) as store:
        assert commit(store, 1, app=app, fingerprint="g")


def test_a_forgotten_application_begins_from_scratch(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        commit(store, 9)
        assert store.forget_batches("nobody") is None
        forgotten = store.forget_batches("loader")
        assert forgotten is not None
        assert forgotten.batch.version == 9
    with open_store(tmp_path) as store:
        assert store.batches() == []
        assert commit(store, 1)
        assert [one.batch.version for one in store.batches()] == [1]
    assert topic_bodies(tmp_path) == expected("loader9", "loader1")


def test_the_ledger_is_built_from_the_log_when_its_file_is_missing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for app, version in (("a", 1), ("b", 4), ("a", 2)):
            commit(store, version, app=app)
        known = store.batches()
    ledger = tmp_path / "config" / "batchLedger.json"
    whole = ledger.read_bytes()
    for left in (b"", whole[: len(whole) // 2], b'{"version": 99}', b"\xff"):
        ledger.write_bytes(left)
        with pytest.raises(CorruptConfig, match=r"ledger of batches.*batchLedger.json"), open_store(tmp_path) as store:
            store.batches()
    ledger.unlink()
    with open_store(tmp_path) as store:
        assert store.batches() == known
        assert not commit(store, 2, app="a")
    with StoreReader.open(tmp_path) as reader:
        assert reader.batches() == known


def test_the_ledger_remembers_applications_whose_frames_were_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        commit(store, 3, app="idle", fingerprint="f")
        for version in range(20):
            commit(store, version)
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    with open_store(tmp_path) as store:
        assert {one.batch.app_id for one in store.batches()} == {"idle", "loader"}
        assert not commit(store, 3, app="idle", fingerprint="f")
        with pytest.raises(BatchConflict):
            commit(store, 3, app="idle", fingerprint="g")
        assert commit(store, 4, app="idle")


def test_a_ledger_that_is_ahead_of_its_log_hides_no_missing_batch(tmp_path: Path) -> None:
    """The log was restored from a copy, its config directory was not."""
    with open_store(tmp_path) as store:
        commit(store, 1)
    copy = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "config"}
    with open_store(tmp_path) as store:
        commit(store, 2)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.parent.name != "config":
            path.write_bytes(copy[path]) if path in copy else path.unlink()
    with open_store(tmp_path) as store:
        assert commit(store, 2), "it is not in the log"
    assert topic_bodies(tmp_path) == expected("loader1", "loader2")


def test_the_file_says_up_to_which_frame_it_speaks(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in range(3):
            commit(store, version)
    content = json.loads((tmp_path / "config" / "batchLedger.json").read_text())
    assert (content["version"], content["queueOffset"]) == (1, 3)
    assert content["batches"]["loader"]["version"] == 2
    assert content["lastFrame"] == {"app": "loader"} | content["batches"]["loader"]


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        commit(store, 1)
        commit(store, 5, app="reset")
        store.forget_batches("reset")
    ledger = tmp_path / "config" / "batchLedger.json"
    content = json.loads(ledger.read_text())
    del content["lastFrame"]
    ledger.write_text(json.dumps(content))
    with open_store(tmp_path) as store:
        assert [one.batch.version for one in store.batches()] == [1], "its frames are not read again"
        assert commit(store, 2)
    assert "lastFrame" in json.loads(ledger.read_text())


@pytest.mark.parametrize("lost", ["beyond the end", "another frame"])
def test_a_file_that_counts_lost_frames_is_made_from_the_log_again(
    tmp_path: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        for app, version in (("a", 1), ("b", 4), ("a", 2)):
            commit(store, version, app=app)
        known = store.batches()
    ledger = tmp_path / "config" / "batchLedger.json"
    content = json.loads(ledger.read_text())
    wrong = {"batches": {"b": content["batches"]["b"]}} | (
        {"queueOffset": 5} if lost == "beyond the end" else {"lastFrame": content["lastFrame"] | {"storeTimestamp": 9}}
    )
    ledger.write_text(json.dumps(content | wrong))
    with StoreReader.open(tmp_path) as reader:
        assert reader.batches() == known
    with open_store(tmp_path) as store:
        assert store.batches() == known
        assert json.loads(ledger.read_text()) == content, "before the next frame takes the place of a lost one"
    assert f"{ledger} counts batches that the log has lost" in caplog.text


def test_batches_of_no_application_leave_no_more_to_read_than_others(tmp_path: Path) -> None:
    for _ in range(3):
        with open_store(tmp_path) as store:
            for _ in range(30):
                with StagedWriter(str(tmp_path), BatchId("")) as writer:
                    for one in parts_of(store).engine.bulk.encoded(table("a", 3), "orders"):
                        writer.append(one)
                    store.commit_batch(BatchId(""), [writer.finish()])
            assert store.batches() == []
    content = json.loads((tmp_path / "config" / "batchLedger.json").read_text())
    assert content["queueOffset"] == 90


def test_a_commit_names_the_queue_file_that_the_ledger_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        commit(store, 1)
    file = tmp_path / "consumequeue" / "rmq_sys_commitlog_batch" / "0" / f"{0:020}"
    real = disk.open_for_writing

    def fail(path: str) -> int:
        if path == str(file):
            raise OSError(errno.EIO, "Input/output error", path)
        return real(path)

    monkeypatch.setattr(disk, "open_for_writing", fail)
    with open_store(tmp_path) as store, pytest.raises(ReadFailed, match=f"Cannot read {file}: Input/output error"):
        commit(store, 2)
    monkeypatch.undo()
    with open_store(tmp_path) as store:
        assert commit(store, 2), "nothing was written"
    assert_clean(tmp_path)
