"""What ``repair`` and ``verify`` say of a damaged store is what opening then does, and looking changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, repair_store
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.recovery.forecast import Forecast, forecast_open
from commitlog_store.testing import kill, start_of
from commitlog_store.verify.assessment import Verdict
from commitlog_store.verify.store import VerificationReport, verification_report
from tests.crash.cuts import whole_records
from tests.support import quick_programs
from tests.support.programs import may_mount
from tests.support.waiting import WAIT_LIMIT_S

Damage = Callable[[Path], None]


def snapshot(path: Path) -> dict[str, tuple[object, ...]]:
    """Contents, sizes, modes, times and blocks of a directory."""
    # Contents first: a plain read may move the time of the last access.
    contents = {one: one.read_bytes() if one.is_file() else b"" for one in [path, *path.rglob("*")]}
    found: dict[str, tuple[object, ...]] = {}
    for one, content in contents.items():
        state = one.stat()
        times = state.st_atime_ns, state.st_mtime_ns, state.st_ctime_ns
        found[str(one)] = (content, state.st_mode, state.st_size, state.st_blocks, *times)
    return found


def log_files(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def written(path: Path) -> int:
    """The end of the log's bytes, over all files."""
    return max(int(file.name) + len(file.read_bytes().rstrip(b"\0")) for file in log_files(path))


def damaged_at(tenth: int) -> Damage:
    """Four bytes of the log are others."""

    def damage(path: Path) -> None:
        at = written(path) * tenth // 10
        file = max(one for one in log_files(path) if int(one.name) <= at)
        data = bytearray(file.read_bytes())
        for byte in range(at - int(file.name), at - int(file.name) + 4):
            data[byte] ^= 0x5A
        file.write_bytes(data)

    return damage


def without_file(place: int) -> Damage:
    return lambda path: log_files(path)[place].unlink()


def short_file(place: int) -> Damage:
    def damage(path: Path) -> None:
        file = log_files(path)[place]
        os.truncate(file, file.stat().st_size // 2)

    return damage


def swapped_files(path: Path) -> None:
    first, second = log_files(path)[:2]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def zeroed_tail(path: Path) -> None:
    half = written(path) // 2
    for file in log_files(path):
        keep = min(max(half - int(file.name), 0), file.stat().st_size)
        file.write_bytes(file.read_bytes()[:keep].ljust(file.stat().st_size, b"\0"))


def cut_queue_files(path: Path) -> None:
    for file in sorted((path / "consumequeue").rglob("0" * 20))[:3]:
        os.truncate(file, 200)


def zeroed_queue_tails(path: Path) -> None:
    """The last ten units of each queue; its files have the sizes that they had."""
    for queue in (path / "consumequeue").glob("*/*"):
        files = sorted(queue.iterdir(), reverse=True)
        left = 10
        for file in files:
            units = -(-len(file.read_bytes().rstrip(b"\0")) // UNIT_SIZE)
            keep = max(units - left, 0) * UNIT_SIZE
            file.write_bytes(file.read_bytes()[:keep].ljust(file.stat().st_size, b"\0"))
            left = max(left - units, 0)


def garbled_index(path: Path) -> None:
    for file in (path / "index").iterdir():
        data = bytearray(file.read_bytes())
        data[40:4000] = b"\xa5" * 3960
        file.write_bytes(data)


DAMAGES: dict[str, Damage] = {
    "nothing": lambda _: None,
    **{f"four bytes at {tenth} tenths": damaged_at(tenth) for tenth in range(10)},
    "first file missing": without_file(0),
    "second file missing": without_file(1),
    "last file missing": without_file(-1),
    "first file short": short_file(0),
    "last file short": short_file(-1),
    "two files swapped": swapped_files,
    "tail zeroed": zeroed_tail,
    "queue files cut": cut_queue_files,
    "queue tails zeroed": zeroed_queue_tails,
    "index garbled": garbled_index,
}


STORES = ("RocketMQ 4.9.8, killed", "RocketMQ 5.3.3, closed", "this package, killed", "this package, closed")


@pytest.fixture
def store(request: pytest.FixtureRequest, golden_498: Path, golden_533: Path, tmp_path: Path) -> Path:
    """A store of a few log files, without damage."""
    path = tmp_path / "store"
    if request.param.startswith("RocketMQ"):
        shutil.copytree(golden_498 if "4.9.8" in request.param else golden_533, path)
    else:
        write(path, kills="killed" in request.param)
    return path


def write(path: Path, *, kills: bool) -> None:
    config = MessageStoreConfig(
        mapped_file_size_commit_log=64 << 10, mapped_file_size_consume_queue=4000, max_hash_slot_num=100,
        max_index_num=400,
    )  # fmt: skip
    store = MessageStore.open(path, config)
    for number in range(600):
        message = Message(
            topic=f"topic-{number % 3}", queue_id=number % 2, body=b"%06d" % number * 30, keys=[f"key-{number}"]
        )
        store.put_message(message).raise_for_status()
    store.dispatch()
    if kills:
        kill(store)
    else:
        store.close()


# The places in between make no other case.
_BETWEEN = {f"four bytes at {tenth} tenths" for tenth in (1, 3, 4, 6, 7, 8)}
_CASES = [(store, damage) for damage in DAMAGES if damage not in _BETWEEN for store in STORES]


def _is_often(number: int) -> bool:
    """Of the four stores each damage is done to two: in turns to the first and the last, and to the others."""
    return (number // len(STORES) % 2) == (number % len(STORES) in (1, 2))


@pytest.mark.parametrize(
    ("store", "damage"),
    [
        *(
            pytest.param(store, damage, marks=[] if _is_often(number) else [pytest.mark.stress])
            for number, (store, damage) in enumerate(_CASES)
        ),
        *(pytest.param(store, damage, marks=pytest.mark.stress) for damage in sorted(_BETWEEN) for store in STORES),
    ],
    indirect=["store"],
)
def test_opening_does_what_was_said(store: Path, damage: str) -> None:
    undamaged = in_all(verification_report(store))
    DAMAGES[damage](store)
    before = snapshot(store)
    forecast, repair, report = forecast_open(store), repair_store(store), verification_report(store)
    assert snapshot(store) == before, "looking changes nothing"
    lost, all_lost = repair.assessment.lost, sum(one.lost for one in report.topics)
    assert repair.loses == (forecast.loses or repair.assessment.verdict is Verdict.DAMAGED)
    assert lost == 0 or repair.loses
    assert lost in (0, all_lost), "it counts what verify counts, or knows of none"
    assert lost == all_lost or not repair.loses_nothing
    assert (repair.damage is None) == (forecast.refusal is None)
    assert report.forecast is not None
    assert (report.forecast.cut, str(report.forecast.refusal)) == (forecast.cut, str(forecast.refusal))
    assert report.errors or not forecast.loses
    if damage != "first file missing":  # as retention removes it
        assert in_all(report) == undamaged
    check_opening(store, forecast)
    if damage == "queue tails zeroed":
        assert in_all(verification_report(store)) == undamaged
        assert not verification_report(store).errors, "no offset is missing or given twice"


def test_a_look_foresees_that_the_disk_has_no_space_for_what_is_cut(tmp_path: Path) -> None:
    if not may_mount(tmp_path):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    program = "tests.store.recovery.cut_on_a_full_disk"
    done = quick_programs.run_with_own_mounts(program, tmp_path, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def in_all(report: VerificationReport) -> dict[str, int]:
    """Messages of each topic, found or lost. A damaged one that was prepared or rolled back has no place: none."""
    return {one.topic: one.found + one.lost for one in report.topics if one.found + one.lost}


def check_opening(store: Path, forecast: Forecast) -> None:
    if forecast.refusal is not None:
        with pytest.raises(type(forecast.refusal)) as caught:
            MessageStore.open(store)
        assert str(caught.value) == str(forecast.refusal)
        return
    records = whole_records(store)
    with MessageStore.open(store) as opened:
        assert start_of(opened) == forecast.start
        if opened.recovered is not None:
            assert opened.recovered.end == forecast.end
            assert opened.recovered.cut == forecast.cut
            kept = set() if opened.recovered.kept is None else whole_records(Path(opened.recovered.kept.path))
            assert records - whole_records(store) <= kept
