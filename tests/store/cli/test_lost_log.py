"""A store whose log is not mounted: each command that looks says so, with exit code 2."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.store.cli.commands import ended
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize(
    "command",
    [
        "info STORE",
        "cat STORE orders",
        "tail STORE orders",
        "get STORE 0",
        "query STORE k1 -t orders",
        "offset-at STORE 2h",
        "stats STORE",
        "groups ls STORE",
        "groups lag STORE",
        "topics ls STORE",
        "schedule ls STORE",
        "half ls STORE",
        "txn ls STORE",
        "export STORE --to ndjson:TARGET",
    ],
)
def test_an_unmounted_log_is_said_by_name(tmp_path: Path, command: str) -> None:
    store = tmp_path / "store"
    StoreBuilder(store).append("orders", 0, [b"x"] * 3)
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    words = {"STORE": str(store), "ndjson:TARGET": f"ndjson:{tmp_path}/target"}
    done = ended(*(words.get(word, word) for word in command.split()))
    assert f"The log of the store is not at {store}/commitlog" in done.stderr
    if command.startswith("info"):
        assert (done.returncode, "verdict DOES NOT OPEN: at least 3 messages lost" in done.stdout) == (1, True)
    else:
        assert (done.returncode, done.stdout) == (2, "")
