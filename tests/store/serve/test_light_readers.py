"""What a program loads that reads by address: Spark begins a process of Python for each plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from commitlog_store import MessageStore
from tests.store.serve.servers import served
from tests.support.programs import child_environment

_READ = """
import sys
from commitlog_store import StoreReader

with StoreReader.open(sys.argv[1]) as reader:
    assert reader.queues("orders")[0].max_offset == 1
    assert reader.get_message("orders", 0, 0).messages[0].body == b"x"
    assert len(list(reader.read("orders", 0, 0, 1))) == 1
print(*sorted(name for name in sys.modules if name.startswith("commitlog_store.")))
"""
_OF_OWNERS = ("verify.", "retention.", "engine.put_", "remote.calls", "remote.put_wire", "remote.session")


def test_a_reader_by_address_loads_nothing_of_what_owners_and_commands_do(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"x", queue_id=0)
        store.dispatch()
        with served(owned=store) as url:
            loaded = subprocess.run(
                [sys.executable, "-c", _READ, url],
                stdout=subprocess.PIPE,
                text=True,
                env=child_environment(),
                check=True,
            ).stdout.split()
    names = [name.removeprefix("commitlog_store.") for name in loaded]
    assert "remote.reader" in names
    assert [name for name in names if name.startswith(_OF_OWNERS)] == []
