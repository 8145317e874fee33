"""Commands over a message whose producer gave a number that is not a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.cli.commands import lines, run
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize("born", [2**63 - 1, -(2**63)])
def test_a_message_without_a_time_is_shown_with_the_others(tmp_path: Path, born: int) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"odd"], born_timestamp=born)
    builder.append("orders", 0, [b"good"])
    for found in (lines("cat", builder.path, "orders", "--json"), lines("tail", builder.path, "orders", "--json")):
        assert [(row["body"], row["bornTimestamp"] is None) for row in found] == [("odd", True), ("good", False)]
    (row,) = lines("get", builder.path, 0, "--json")
    assert (row["body"], row["bornTimestamp"]) == ("odd", None)
    assert "log.timestamp" in run("verify", builder.path), "a note; the command says that all is well"
