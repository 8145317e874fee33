"""``--config``: a broker's configuration file for the commands that own a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig, RemoteStore
from commitlog_store.cli import produce
from commitlog_store.cli.owner_config import owner_config
from tests.store.cli.commands import ended, plain
from tests.store.owner.owned_store import open_store, put_ok


def test_a_file_with_a_bad_value_is_wrong_usage(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nlistenPort=-1")
    result = ended("txn", "reset", tmp_path / "store", "app", "--config", conf)
    assert result.returncode == 2
    assert "line 2: listenPort=-1; expected 0 to 65535." in plain(result.stderr)
    result = ended("repair", tmp_path / "store", "--config", tmp_path / "none")
    assert result.returncode == 2
    assert "--config" in plain(result.stderr)


def test_the_settings_of_the_file_are_those_of_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "store", message_index_enable=False) as store:
        put_ok(store, keys=["k"])
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nlistenPort=11000\nflushDiskType=SYNC_FLUSH")
    config = owner_config(str(tmp_path / "store"), str(conf))
    assert (config.listen_port, config.flush_disk_type) == (11000, FlushDiskType.SYNC_FLUSH)
    assert not config.message_index_enable, "a store without an index stays so"
    assert "not used by a store: brokerName." in capsys.readouterr().err
    conf.write_text("messageIndexEnable=true")
    assert owner_config(str(tmp_path / "store"), str(conf)).message_index_enable


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], FlushDiskType.SYNC_FLUSH),
        (["--config"], FlushDiskType.ASYNC_FLUSH),
        (["--config", "--sync"], FlushDiskType.SYNC_FLUSH),
        (["--async"], FlushDiskType.ASYNC_FLUSH),
    ],
)
def test_options_win_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: FlushDiskType
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=ASYNC_FLUSH\nmappedFileSizeCommitLog=1048576")
    made: list[MessageStoreConfig] = []
    open_store = produce.open_store

    def noted(path: str, config: MessageStoreConfig, **given: Any) -> MessageStore | RemoteStore:
        made.append(config)
        return open_store(path, config, **given)

    monkeypatch.setattr(produce, "open_store", noted)
    given = [text for one in options for text in ([one, str(conf)] if one == "--config" else [one])]
    ended("produce", tmp_path / "none", "-t", "orders", "--mapped-file-size-consume-queue", "2000", *given)
    assert made[0].flush_disk_type is expected
    assert made[0].mapped_file_size_consume_queue == 2000
    assert made[0].mapped_file_size_commit_log == (1 << 20 if "--config" in options else 1 << 30)
