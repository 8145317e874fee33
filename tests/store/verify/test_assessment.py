"""Assessments: the quick one says what names, sizes and queues show, the deep one the same and what reading shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog_store import Message, MessageStore, StoreReader, Verdict, assess_store, repair_store, salvage_store
from commitlog_store.errors import CommitLogError, LogShort
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE
from commitlog_store.format.record import MAGIC_V1, field_offset
from commitlog_store.recovery import forecast
from commitlog_store.verify.assessment import is_of_the_log
from commitlog_store.verify.findings import Finding
from commitlog_store.verify.store import verification_report
from tests.damage_table.commands import file_modes_hold
from tests.store.cli.commands import ended, shell
from tests.store.damage.test_permission import run_with_file_modes
from tests.store.verify.made_store import damage, files, flip, make_store, message_place, queue_file
from tests.support.counted_calls import counted_calls
from tests.support.store_builder import StoreBuilder

COUNT = 900


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def broker_path(path: Path) -> Path:
    """The store as a broker leaves it: its checkpoint has no mark of this package."""
    checkpoint = path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:40].ljust(4096, b"\0"))
    (path / "config" / "createdBy.json").unlink()
    return path


def newest_file(path: Path) -> Path:
    """The last log file with a record; those after it are allocated ahead."""
    return next(file for file in reversed(files(path, "commitlog")) if any(file.read_bytes()))


def delete_newest(path: Path) -> None:
    newest = newest_file(path)
    for file in files(path, "commitlog"):
        if file.name >= newest.name:
            file.unlink()


def zero_newest(path: Path) -> None:
    newest = newest_file(path)
    newest.write_bytes(bytes(newest.stat().st_size))


def cut_second(path: Path) -> None:
    os.truncate(files(path, "commitlog")[1], 20_000)


def delete_second(path: Path) -> None:
    files(path, "commitlog")[1].unlink()


def swap_first_two(path: Path) -> None:
    one, other = files(path, "commitlog")[:2]
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def delete_all(path: Path) -> None:
    shutil.rmtree(path / "commitlog")
    (path / "commitlog").mkdir()


def opens(path: Path, copy: Path) -> bool:
    """Whether a copy of the store opens."""
    shutil.copytree(path, copy)
    try:
        MessageStore.open(copy).close()
    except CommitLogError:
        return False
    return True


def test_a_whole_store_is_ok_and_quick_does_not_say_that_nothing_is_lost(path: Path) -> None:
    quick = assess_store(path)
    assert (quick.verdict, quick.lost, quick.findings, quick.opening.kind) == (Verdict.OK, 0, [], "clean")
    assert quick.found is None, "no message was counted"
    assert quick.next_steps == [f"commitlog doctor --deep {path}"]
    deep = assess_store(path, deep=True)
    assert (deep.verdict, deep.found, deep.lost, deep.next_steps) == (Verdict.OK, COUNT, 0, [])


@pytest.mark.parametrize(
    "harm",
    [delete_newest, zero_newest, cut_second, delete_second, swap_first_two, delete_all],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("by_broker", [False, True])
def test_quick_counts_the_same_lost_messages_as_deep(
    harm: Callable[[Path], None], by_broker: bool, request: pytest.FixtureRequest, path: Path, tmp_path: Path
) -> None:
    if by_broker:
        request.getfixturevalue("broker_path")
    harm(path)
    quick, deep = assess_store(path), assess_store(path, deep=True)
    assert 0 < quick.lost == deep.lost
    assert deep.found is not None
    assert deep.found + deep.lost == COUNT
    lost_offsets = {one.topic: sorted(one.lost_offsets) for one in deep.topics if one.lost}
    assert {one.topic: sorted(one.lost_offsets) for one in quick.topics} == lost_offsets
    opened = opens(path, tmp_path / "copy")
    assert (deep.verdict is Verdict.DAMAGED) == opened
    assert quick.verdict in (deep.verdict, Verdict.DAMAGED)
    assert quick.verdict is deep.verdict or quick.opening.unscanned, "else it is known whether it opens"
    report = verification_report(path)
    assert (report.topics, report.findings) == (deep.topics, deep.findings), "verify says the same"
    assert quick.errors
    assert quick.next_steps


def test_the_newest_file_of_a_broker_s_store_is_named_when_it_is_gone(broker_path: Path) -> None:
    newest = newest_file(broker_path)
    delete_newest(broker_path)
    found = assess_store(broker_path)
    (finding,) = [one for one in found.findings if one.check == "files.end"]
    assert finding.path == str(newest)
    assert "is missing" in finding.message
    assert found.verdict is Verdict.DAMAGED


def test_a_body_with_a_wrong_crc_is_unreadable_and_a_damaged_header_is_lost(path: Path) -> None:
    file, at, size = message_place(path, "orders", 1, 70)
    flip(file, at + 95)
    other, place, _ = message_place(path, "orders", 1, 75)
    flip(other, place)
    deep = assess_store(path, deep=True)
    assert (deep.verdict, deep.found, deep.lost, deep.unreadable) == (Verdict.DAMAGED, COUNT - 2, 2, 1)
    (orders,) = [one for one in deep.topics if one.lost]
    assert orders.lost_offsets == [(1, 70, 71), (1, 75, 76)]
    assert orders.unreadable_offsets == [(1, 70, 71)]
    assert deep.next_steps == [f"commitlog salvage {path}"]
    damage(file, at, bytes(size))
    assert assess_store(path, deep=True).unreadable == 0, "nothing is there any more"


def test_a_zeroed_file_is_damage_and_what_it_held_is_counted_by_reading(path: Path) -> None:
    file = files(path, "commitlog")[1]
    file.write_bytes(bytes(file.stat().st_size))
    quick, deep = assess_store(path), assess_store(path, deep=True)
    assert (quick.verdict, quick.lost, [one.path for one in quick.findings]) == (Verdict.DAMAGED, 0, [str(file)])
    assert (deep.verdict, deep.lost, deep.found) == (Verdict.DAMAGED, 195, COUNT - 195)
    assert repair_store(path).loses
    report = salvage_store(path)
    assert (report.found, report.lost) == (deep.found, deep.lost)


def test_a_file_whose_first_record_is_damaged_is_not_another_file(path: Path) -> None:
    """Its PHYSICALOFFSET alone does not say where the file belongs: the second record has to agree."""
    flip(files(path, "commitlog")[1], 30)
    assert assess_store(path).lost == 0
    deep, report = assess_store(path, deep=True), salvage_store(path)
    assert (deep.lost, deep.found) == (1, COUNT - 1)
    assert (report.found, report.lost, report.misnamed) == (COUNT - 1, 1, [])


def test_one_unit_alone_after_the_log_may_be_damaged_itself(path: Path) -> None:
    file, at = queue_file(path, "orders", 1, 239)
    damage(file, at, struct.pack(">q", 10_000_000))
    (finding,) = assess_store(path).findings
    assert "its unit is damaged, or" in finding.message
    assert assess_store(path).lost == 0
    deep = assess_store(path, deep=True)
    assert (deep.verdict, deep.lost, deep.found) == (Verdict.WARNING, 0, COUNT)


def zero_last_records(path: Path) -> None:
    newest = newest_file(path)
    written = len(newest.read_bytes().rstrip(b"\0"))
    damage(newest, written - 2000, bytes(2000))


@pytest.mark.parametrize("harm", [zero_newest, zero_last_records], ids=lambda one: one.__name__)
def test_a_closed_store_whose_last_records_are_zeros_is_refused_without_a_scan(
    path: Path, harm: Callable[[Path], None]
) -> None:
    """Its mark says where the last record begins: any scan ends there or before."""
    harm(path)
    quick, deep = assess_store(path), assess_store(path, deep=True)
    assert quick.verdict is deep.verdict is Verdict.DOES_NOT_OPEN
    assert 0 < quick.lost == deep.lost
    short, scanned = quick.opening.refusal, deep.opening.refusal
    assert isinstance(short, LogShort)
    assert isinstance(scanned, LogShort)
    assert scanned.found_end <= short.found_end < short.flushed_offset == scanned.flushed_offset
    assert f"ends at physical offset {short.found_end} or before, but" in str(short)
    assert quick.next_steps == [f"commitlog repair {path}", f"commitlog doctor --deep {path}"]
    with pytest.raises(LogShort):
        MessageStore.open(path)


def test_an_unclosed_store_says_what_opening_scans(path: Path) -> None:
    (path / "abort").touch()
    quick = assess_store(path)
    assert (quick.verdict, quick.opening.kind, quick.aborted) == (Verdict.OK, "scan", True)
    assert quick.opening.unscanned is not None
    assert 0 < quick.opening.unscanned <= quick.log_end
    deep = assess_store(path, deep=True)
    assert (deep.opening.kind, deep.opening.unscanned) == ("scan", None)


@pytest.mark.parametrize("harm", ["consumequeue", "consumequeue/orders/1", "index"])
def test_what_opening_builds_again_is_a_warning(path: Path, harm: str) -> None:
    shutil.rmtree(path / harm)
    quick, deep = assess_store(path), assess_store(path, deep=True)
    assert (quick.verdict, quick.opening.kind, quick.lost) == (Verdict.WARNING, "rebuild", 0)
    assert (deep.verdict, deep.lost, deep.found) == (Verdict.WARNING, 0, COUNT)
    command = quick.next_steps[-1]
    assert command == f"commitlog repair {path} --rebuild"
    assert shell(command).returncode == 0
    assert assess_store(path).verdict is Verdict.OK


def test_a_directory_beside_the_log_is_not_the_log(path: Path) -> None:
    paths = StorePaths.of(str(path))
    for place, is_there in (
        ("commitlog", True),
        ("commitlog/0", True),
        ("commitlog.bak", False),
        ("commitlog.bak/0", False),
    ):
        finding = Finding(check="files.name", severity="error", path=str(path / place), message="")
        assert is_of_the_log(paths, finding) is is_there


def test_a_foreign_file_does_not_hide_what_opening_builds_again(path: Path) -> None:
    """Notes are not errors: after a crash the index may lack entries, which is all that reading shows."""
    (path / "commitlog" / "notes.txt").touch()
    (path / "abort").touch()
    shutil.rmtree(path / "index")
    for deep in (False, True):
        found = assess_store(path, deep=deep)
        assert ("files.name", "note") in [(one.check, one.severity) for one in found.findings]
        assert [one.check for one in found.findings if one.severity == "error"] == ["opening.rebuild"]
        assert (found.verdict, found.opening.kind) == (Verdict.WARNING, "rebuild")


@pytest.mark.parametrize(
    "name", ["topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "batchLedger.json"]
)
def test_a_damaged_json_file_is_a_warning_that_names_it(path: Path, name: str) -> None:
    (path / "config" / name).write_bytes(b'{"half')
    found = assess_store(path)
    assert found.verdict is Verdict.WARNING
    assert [(one.check, one.path) for one in found.findings] == [("config.file", str(path / "config" / name))]
    (path / "config" / f"{name}.bak").write_bytes(b"{}")
    (finding,) = assess_store(path).findings
    assert "is read from its .bak" in finding.message


def test_a_list_of_deleted_topics_that_keeps_the_store_from_opening(path: Path, tmp_path: Path) -> None:
    (path / "config" / "deletedTopics.json").write_bytes(b'{"half')
    for deep in (False, True):
        assert assess_store(path, deep=deep).verdict is Verdict.DOES_NOT_OPEN
    assert not opens(path, tmp_path / "copy")


def test_a_file_that_may_not_be_read(path: Path) -> None:
    """Its messages are unreadable; where opening needs it, the store does not open."""
    expected = assess_store(path)
    second = files(path, "commitlog")[1]
    for one in [path, *path.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    second.chmod(0o000)
    program = f"""
        from commitlog_store import assess_store, MessageStore
        for deep in (False, True):
            found = assess_store({str(path)!r}, deep=deep)
            denied = [one.path for one in found.findings if one.check == "access.read"]
            print(found.verdict.value, found.lost, found.unreadable, found.opening.kind, denied)
    """
    quick, deep = run_with_file_modes(program).splitlines()
    assert quick == deep
    assert quick.startswith("DAMAGED ")
    lost, unreadable = quick.split()[1:3]
    assert lost == unreadable != "0"
    assert quick.endswith(f"clean {[str(second)]!r}")
    (path / "abort").touch()
    quick, deep = run_with_file_modes(program).splitlines()
    assert quick.startswith("DOES NOT OPEN ")
    assert deep.startswith("DOES NOT OPEN ")
    assert expected.verdict is Verdict.OK


@pytest.mark.parametrize("closed", ["consumequeue/orders/1", f"consumequeue/orders/1/{0:020d}", "index", "checkpoint"])
def test_another_part_that_may_not_be_read_is_named(path: Path, closed: str) -> None:
    for one in [path, *path.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    (path / closed).chmod(0o000)
    said = run_with_file_modes(
        f"""
        from commitlog_store import assess_store, MessageStore
        for deep in (False, True):
            found = assess_store({str(path)!r}, deep=deep)
            print(found.verdict.name, any({closed!r} in one.message + one.path for one in found.findings), found.lost)
        try:
            MessageStore.open({str(path)!r}).close()
        except StoreAccessDenied:
            print("refused")
        """
    )
    (path / closed).chmod(0o755)
    quick, deep, *refused = said.splitlines()
    assert quick == deep
    assert quick in ("DOES_NOT_OPEN True 0", "WARNING True 0")
    assert quick.startswith("DOES_NOT_OPEN") == bool(refused)


def test_a_file_that_recovery_may_not_write_keeps_the_store_from_opening(path: Path) -> None:
    for one in [path, *path.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)
    (path / "abort").touch()
    denied = files(path, "commitlog")[1]
    denied.chmod(0o444)
    said = run_with_file_modes(
        f"""
        from commitlog_store import assess_store, MessageStore
        found = assess_store({str(path)!r})
        print(found.verdict.value, found.opening.refusal)
        print(found.next_steps, [one.path for one in found.findings if one.check == "opening.refused"])
        try:
            MessageStore.open({str(path)!r})
        except StoreAccessDenied as error:
            print(error.path == found.opening.refusal.path)
        """
    )
    verdict, steps, same_path = said.splitlines()
    assert verdict.startswith("DOES NOT OPEN No permission to write")
    assert steps == f"{[f'ls -l {denied}']} {[str(denied)]}"
    assert same_path == "True"


def test_beside_an_owner_the_next_opening_is_not_known(path: Path) -> None:
    with MessageStore.open(path) as store:
        for number in range(300):
            store.put_message(Message(topic="orders", body=b"%d" % number, queue_id=0)).raise_for_status()
        for deep in (False, True):
            found = assess_store(path, deep=deep)
            assert (found.verdict, found.opening.kind, found.lost) == (Verdict.OK, "inUse", 0)
            assert "not known yet" in found.opening.reason


def test_beside_a_store_that_is_opened_again_and_again_the_next_opening_is_not_known(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = forecast.forecast_locked

    def opened_meanwhile(*arguments: Any, **options: Any) -> Any:
        found = look(*arguments, **options)
        with MessageStore.open(path) as store:
            store.put_message(Message(topic="orders", body=b"one", queue_id=0)).raise_for_status()
        return found

    monkeypatch.setattr(forecast, "forecast_locked", opened_meanwhile)
    for deep in (False, True):
        found = assess_store(path, deep=deep)
        assert (found.verdict, found.opening.kind, found.lost) == (Verdict.OK, "inUse", 0)
        assert found.opening.reason.endswith("looks at it: what its next opening would do is not known yet.")


def test_a_kept_piece_is_for_reading_only(path: Path) -> None:
    file, at, _ = message_place(path, "orders", 1, 200)
    damage(file, at + 100, b"XXXX")
    (path / "abort").touch()
    place = repair_store(path).cut_at
    assert place is not None
    kept = repair_store(path, cut_at=place).kept
    assert kept is not None
    for deep in (False, True):
        found = assess_store(kept.path, deep=deep)
        assert (found.opening.kind, found.lost) == ("keptPiece", 0)


def test_deleting_the_oldest_file_is_retention(path: Path) -> None:
    files(path, "commitlog")[0].unlink()
    for deep in (False, True):
        found = assess_store(path, deep=deep)
        assert (found.verdict, found.lost) == (Verdict.OK, 0)


def test_a_terabyte_with_many_queues_is_assessed_at_once(tmp_path: Path) -> None:
    """1,024 sparse files of 1 GiB: neither they nor the messages are read one by one."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 30, queue_file_units=300_000)
    for number in range(1023):
        with (builder.path / "commitlog" / f"{number << 30:020d}").open("wb") as file:
            file.write(struct.pack(">ii20xq", 200, MAGIC_V1 - (1 << 32), number << 30))
            file.truncate(1 << 30)
    builder.position = 1023 << 30
    places = np.sort(np.random.default_rng(1).integers(0, 1023 << 30, 200))
    units = np.zeros(200, UNIT_FILE_DTYPE)
    units["physical_offset"], units["size"] = places, 200
    for topic in ("a", "b"):
        for queue in range(250):
            builder.write_units(topic, queue, 0, units)
            builder.start_queue_at(topic, queue, 200)
        builder.append(topic, range(250), [b"x" * 100] * 250)

    assert assess_store(builder.path).verdict is Verdict.OK
    calls = counted_calls(lambda: assess_store(builder.path))
    assert calls < 50 * 1024 + 600 * 500, "of each file and of each queue"
    (builder.path / "commitlog" / f"{512 << 30:020d}").unlink()
    missing = 500 * int(((places >= 512 << 30) & (places < 513 << 30)).sum())
    found = assess_store(builder.path)
    assert (found.verdict, found.lost) == (Verdict.DOES_NOT_OPEN, missing)


def test_the_first_files_of_a_closed_store_that_are_gone_are_noted_and_what_they_held(path: Path) -> None:
    files(path, "commitlog")[0].unlink()
    for deep in (False, True):
        found = assess_store(path, deep=deep)
        (note,) = found.findings
        assert (note.check, note.severity, found.verdict, found.lost) == ("files.head", "note", Verdict.OK, 0)
        assert note.message == (
            "The log began at physical offset 0 when the store was closed, and begins at 65536 now: its first files "
            "were removed, with 198 messages that the queues name. They count as expired."
        )


def test_a_damaged_size_of_the_last_expired_unit_is_no_lost_message(path: Path) -> None:
    """The record that it leads to would cross the border of two files, and records do not."""
    first, second = files(path, "commitlog")[:2]
    with StoreReader.open(path) as reader:
        places = reader.units("orders", 1, 0, 240)
        last = sum(int((units["physical_offset"] < int(second.name)).sum()) for units in places) - 1
    unit, at = queue_file(path, "orders", 1, last)
    damage(unit, at + 8, struct.pack(">i", 30_000))
    first.unlink()
    quick, deep, salvaged = assess_store(path), assess_store(path, deep=True), salvage_store(path)
    assert (quick.lost, deep.lost, salvaged.lost) == (0, 0, 0)
    assert deep.found == salvaged.found == COUNT - 198
    assert any("with 198 messages" in one.message for one in quick.findings)


def test_a_damaged_place_of_an_expired_unit_is_no_lost_message(path: Path) -> None:
    first, second = files(path, "commitlog")[:2]
    unit, at = queue_file(path, "orders", 1, 20)
    damage(unit, at, struct.pack(">q", int(second.name) + 30_001))
    first.unlink()
    quick, deep, salvaged = assess_store(path), assess_store(path, deep=True), salvage_store(path)
    assert (quick.lost, deep.lost, salvaged.lost) == (0, 0, 0)
    assert deep.found == salvaged.found == COUNT - 198
    assert deep.errors, "the unit is damaged"


@pytest.mark.parametrize("field", ["place", "size"])
def test_a_damaged_unit_before_a_missing_file_is_not_counted_by_a_quick_look(path: Path, field: str) -> None:
    """It does not say at least a number that is above the true one."""
    second = files(path, "commitlog")[1]
    second.unlink()
    lost = assess_store(path, deep=True).lost
    with StoreReader.open(path) as reader:
        places = np.concatenate([units["physical_offset"] for units in reader.units("orders", 1, 0, 60)])
    unit, at = queue_file(path, "orders", 1, int((places < int(second.name)).sum()) - 1)
    data = struct.pack(">q", 10**9) if field == "place" else struct.pack(">i", 60_000)
    damage(unit, at + 8 * (field == "size"), data)
    assert assess_store(path).lost == lost


@pytest.mark.parametrize("field", ["queue_id", "queue_offset"])
@pytest.mark.parametrize("all_queues", [True, False])
def test_a_record_in_the_wrong_place_of_a_queue_is_not_found_where_the_queues_are_gone(
    path: Path, field: str, all_queues: bool
) -> None:
    file, at, _ = message_place(path, "orders", 1, 100)
    damage(file, at + field_offset(field), struct.pack(">i", 77) if field == "queue_id" else struct.pack(">q", 9_999))
    shutil.rmtree(path / "consumequeue" / ("" if all_queues else "orders/1"))
    deep, salvaged = assess_store(path, deep=True), salvage_store(path)
    assert (deep.found, deep.lost) == (salvaged.found, salvaged.lost) == (COUNT - 1, 1)
    assert [one.lost_offsets for one in deep.topics if one.lost] == [[(1, 100, 101)]]


def test_a_log_without_files_has_one_verdict_and_one_count(path: Path) -> None:
    for file in files(path, "commitlog"):
        file.unlink()
    quick, deep = assess_store(path), assess_store(path, deep=True)
    assert quick.verdict is deep.verdict is Verdict.DOES_NOT_OPEN
    assert quick.lost == deep.lost == salvage_store(path).lost == COUNT
    shown = json.loads(ended("info", path, "--json").stdout)
    assert (shown["verdict"], shown["lost"], shown["topics"]) == ("DOES NOT OPEN", COUNT, [])
    for command in ("info", "doctor", "verify", "repair", "salvage"):
        assert ended(command, path).returncode == 1
    done = ended("salvage", path, "--to", path.with_name("new"))
    assert done.returncode == 2
    assert "no log file exists there" in done.stderr
    assert not path.with_name("new").exists()


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--deep"], ["info"], ["verify"], ["repair"]])
@pytest.mark.parametrize("name", ["checkpoint", "commitlog/00000000000000065536"])
def test_a_directory_in_the_place_of_a_file_is_assessed(path: Path, name: str, words: list[str]) -> None:
    (path / name).unlink()
    (path / name).mkdir()
    done = ended(*words, path)
    assert done.returncode == 1
    text = " ".join((done.stdout + done.stderr).split())
    assert re.search(f"{path / name} should be a file of the (log|store), but is a directory", text)
    lost = assess_store(path).lost
    assert lost == assess_store(path, deep=True).lost == salvage_store(path).lost
    assert (lost > 0) is name.startswith("commitlog")


def test_a_checkpoint_that_may_not_be_read_does_not_end_doctor(path: Path) -> None:
    (path / "checkpoint").chmod(0)
    with file_modes_hold():
        for words in (["doctor"], ["doctor", "--deep"], ["info"], ["verify"], ["repair"]):
            done = ended(*words, path)
            assert (done.returncode, "No permission to read" in done.stdout + done.stderr) == (1, True), words
