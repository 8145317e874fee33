"""A mirror's files have the sizes that its broker has: a broker does not start on others after a promotion."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import LogFollower, MessageStoreConfig, promote, verify_store
from commitlog_store.errors import PeerRefused
from commitlog_store.follower.broker_settings import with_settings_of_broker
from commitlog_store.format.index_file import file_size
from tests.store.follower.mirrors import master_of
from tests.store.follower.test_remoting_config import ANSWERS
from tests.store.owner.owned_store import put_ok
from tests.support.scripted_broker import ScriptedBroker
from tests.support.waiting import WAIT_LIMIT_S, wait_for

BROKER: dict[str, object] = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 16 << 10,
    "mappedFileSizeConsumeQueue": 30 * 20 - 7,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "messageDelayLevel": "7s 8s",
    "storePathRootDir": "C:\\store",
}


def answer(**changed: object) -> dict[int, bytes | tuple[int, str]]:
    """A broker's answers, as RocketMQ writes them: no character is escaped."""
    text = "".join(f"{key}={value}\n" for key, value in (BROKER | changed).items())
    start = b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"0"}}'
    return {**ANSWERS, 26: text.encode(), 28: start}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Any]:
    """Messages with keys, and delayed ones."""
    sizes = {"mapped_file_size_consume_queue": 30 * 20, "max_hash_slot_num": 50, "max_index_num": 200}
    with master_of(tmp_path / "master", message_delay_level="7s 8s", schedule_enable=False, **sizes) as store:
        for number in range(100):
            put_ok(store, body=b"x" * 99, keys=["k"], delay_level=number % 3)
        store.dispatch()
        yield store


@contextlib.contextmanager
def mirrored(master: Any, path: Path, answers: dict[int, Any], **settings: Any) -> Iterator[None]:
    """All of the master's log is in the mirror, dispatched, and it is closed."""
    with ScriptedBroker(answers) as broker:
        with LogFollower(
            master.ha_address, path, config_from=broker.address, config=MessageStoreConfig(**settings)
        ) as follower:
            end = master.physical_bounds()[1]
            assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
            wait_for(lambda: follower.config_rounds)
        yield


def sizes(path: Path, what: str) -> set[int]:
    return {file.stat().st_size for file in (path / what).rglob("*") if file.is_file()}


def units(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in (path / "consumequeue").rglob("*") if file.is_file()
    }


def assert_sound(path: Path) -> None:
    """Nothing is found but that the delays of the levels are not RocketMQ's."""
    assert {one.severity for one in verify_store(path)} <= {"note"}


def test_a_new_mirrors_files_are_those_of_its_broker(tmp_path: Path, master: Any) -> None:
    """Also the times of delivery in the queues of delayed messages, which the delays of the levels give."""
    mirror = tmp_path / "mirror"
    with mirrored(master, mirror, answer()):
        assert sizes(mirror, "commitlog") == {16 << 10}
        assert sizes(mirror, "consumequeue") == {30 * 20}, "rounded up to whole units, as the broker does"
        assert sizes(mirror, "index") == {file_size(50, 200)}
        assert units(mirror) == units(Path(master.path))
    promote(mirror)
    assert_sound(mirror)


def test_the_brokers_settings_hold_while_it_cannot_be_asked(tmp_path: Path, master: Any) -> None:
    """A mirror that has files does not wait for its broker; delayed messages have their time all the same."""
    mirror = tmp_path / "mirror"
    with mirrored(master, mirror, answer()):
        pass
    for number in range(40):
        put_ok(master, body=b"later", delay_level=1 + number % 2)
    master.dispatch()
    with LogFollower(master.ha_address, mirror, config_from="127.0.0.1:1") as follower:
        assert follower.wait_for(master.physical_bounds()[1], timeout_s=WAIT_LIMIT_S)
    assert units(mirror) == units(Path(master.path))


def test_a_promotion_that_builds_queues_again_keeps_the_brokers_settings(tmp_path: Path, master: Any) -> None:
    """After a kill, as far as they were not flushed."""
    mirror = tmp_path / "mirror"
    with mirrored(master, mirror, answer()):
        pass
    for directory in ("consumequeue", "index"):
        shutil.rmtree(mirror / directory)
    promote(mirror)
    assert sizes(mirror, "consumequeue") == {30 * 20}
    assert sizes(mirror, "index") == {file_size(50, 200)}
    theirs = units(mirror)
    assert all(theirs[name] == content for name, content in units(Path(master.path)).items())


def test_sizes_that_the_caller_gives_stay(tmp_path: Path, master: Any) -> None:
    mirror, own = tmp_path / "mirror", {"mapped_file_size_consume_queue": 40 * 20, "max_hash_slot_num": 60}
    for _ in range(2):
        with mirrored(master, mirror, answer(), **own):
            assert sizes(mirror, "consumequeue") == {40 * 20}
            assert sizes(mirror, "index") == {file_size(60, 200)}


@pytest.mark.parametrize(
    ("changed", "directory", "size", "setting"),
    [
        ({"mappedFileSizeConsumeQueue": 50 * 20}, "consumequeue", 50 * 20, "mapped_file_size_consume_queue"),
        ({"maxIndexNum": 300}, "index", file_size(50, 300), "max_hash_slot_num and max_index_num"),
    ],
)
def test_a_mirror_with_files_of_other_sizes_is_refused_until_they_are_removed(
    tmp_path: Path, master: Any, changed: dict[str, object], directory: str, size: int, setting: str
) -> None:
    mirror = tmp_path / "mirror"
    with mirrored(master, mirror, answer()):
        pass
    before = sizes(mirror, directory)
    words = rf"have {min(before)} bytes; expected {size}, by {setting}.*Remove"
    with pytest.raises(PeerRefused, match=words) as caught, mirrored(master, mirror, answer(**changed)):
        pass
    assert str(mirror / directory) in str(caught.value)
    assert sizes(mirror, directory) == before
    shutil.rmtree(mirror / directory)
    with mirrored(master, mirror, answer(**changed)):
        assert sizes(mirror, directory) == {size}
    promote(mirror)
    assert_sound(mirror)


def test_log_files_of_another_size_than_the_brokers_are_refused_at_once(tmp_path: Path, master: Any) -> None:
    mirror = tmp_path / "mirror"
    words = r"have 16384 bytes.*those of the mirror .* have 32768"
    given = {"mapped_file_size_commit_log": 32 << 10}
    with pytest.raises(PeerRefused, match=words), mirrored(master, mirror, answer(), **given):
        pass
    assert not mirror.exists()


def test_the_larger_of_two_limits_of_a_message_counts() -> None:
    """The log may have messages of a time with a higher limit."""
    config = MessageStoreConfig()
    assert with_settings_of_broker(config, {"max_message_size": 8 << 20}).max_message_size == 8 << 20
    assert with_settings_of_broker(config, {"max_message_size": 1 << 10}).max_message_size == config.max_message_size
