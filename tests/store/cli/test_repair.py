"""``commitlog repair`` for people: the damage, the messages that a cut would take, and the command to paste."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

from tests.crash.test_repair import damaged_store
from tests.store.cli.commands import ended, script
from tests.store.verify.made_store import files, make_store

__all__: list[str] = []


def test_the_command_it_prints_repairs_the_store(tmp_path: Path) -> None:
    store = tmp_path / "a store"
    records, bad = damaged_store(store)
    looked = script("repair", store)
    assert (looked.returncode, looked.stderr) == (1, "")
    assert f"BODYCRC of the record at physical offset {bad.physical_offset}" in looked.stdout
    assert f"{sum(record.physical_offset > bad.physical_offset for record in records)} messages" in looked.stdout
    command = shlex.split(looked.stdout.splitlines()[-1])
    assert command == ["commitlog", "repair", str(store), "--cut-at", str(bad.physical_offset)]
    cut = script(*command[1:])
    assert (cut.returncode, cut.stderr) == (0, "")
    assert f"The log ends at physical offset {bad.physical_offset} now, and the store opens." in cut.stdout
    assert ended("repair", store).stdout.startswith(f"{store} opens, and nothing is lost: ")


def test_csv_has_a_line_for_each_queue_that_loses_messages(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _, bad = damaged_store(store)
    lost = json.loads(ended("repair", store, "-o", "json").stdout)["lost"]
    done = script("repair", store, "-o", "csv")
    assert (done.returncode, done.stderr) == (1, "")
    assert [{name: str(value) for name, value in one.items()} for one in lost] == list(
        csv.DictReader(io.StringIO(done.stdout))
    )
    assert ended("repair", store, "--cut-at", bad.physical_offset).returncode == 0
    assert ended("repair", store, "-o", "csv").stdout == "topic,queueId,start,stop,messages\n"
    (piece,) = csv.DictReader(io.StringIO(ended("repair", store, "--drop-kept", "-o", "csv").stdout))
    assert (piece["cutAt"], piece["messages"]) == (str(bad.physical_offset), str(sum(one["messages"] for one in lost)))


def test_after_an_accepted_loss_the_store_opens(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    for file in files(store, "commitlog")[2:]:
        file.unlink()
    looked = ended("repair", store)
    assert looked.returncode == 1
    assert looked.stdout.splitlines()[-1] == f"  commitlog repair {store} --accept-lost-log"
    done = ended("repair", store, "--accept-lost-log", "--json")
    assert (done.returncode, json.loads(done.stdout)["opens"]) == (0, True)
    assert ended("verify", store).returncode == 0
    done = ended("repair", store, "--accept-lost-log")
    assert (done.returncode, done.stdout) == (0, f"{store} opens now.\n"), "nothing was missing this time"


def test_an_undamaged_place_is_not_cut(tmp_path: Path) -> None:
    _, bad = damaged_store(tmp_path / "store")
    done = ended("repair", tmp_path / "store", "--cut-at", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"is to be cut at physical offset {bad.physical_offset}, not at 0; nothing was cut" in done.stderr


def test_repair_without_a_store_creates_none(tmp_path: Path) -> None:
    done = ended("repair", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert not list(tmp_path.iterdir())
