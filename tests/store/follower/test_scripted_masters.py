"""A mirror of a master that misbehaves, loses its log, or is another one: nothing wrong is ever stored."""

from __future__ import annotations

import os
import random
import resource
import struct
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.engine.flush import LogFlusher
from commitlog_store.errors import InvalidValue, LogDiverged, PeerRefused
from tests.store.follower.mirrors import follow, log_bytes
from tests.store.owner.owned_store import all_messages, open_store, put_ok
from tests.support.scripted_master import ScriptedMaster, Slave, frame
from tests.support.waiting import WAIT_LIMIT_S, wait_for

FILE_SIZE = 16 << 10


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Three files of a log and a piece of the fourth."""
    path = tmp_path_factory.mktemp("origin")
    with open_store(path) as store:
        number = 0
        while store.physical_bounds()[1] < 3 * FILE_SIZE + 2000:
            put_ok(store, body=b"%d " % number * 40)
            number += 1
        end = store.physical_bounds()[1]
    return log_bytes(path, 0, end)


def _records(log: bytes) -> Iterator[int]:
    """Where records and fillers of a log start."""
    at = 0
    while at < len(log):
        yield at
        at += struct.unpack_from(">i", log, at)[0]


def _holds(mirror: Path, log: bytes) -> None:
    """The mirror has a prefix of the log, whole records."""
    with StoreReader.open(mirror) as reader:
        end = max((one.physical_offset + one.store_size for one in _messages(reader)), default=0)
    assert log_bytes(mirror, 0, end) == log[:end]


def _messages(reader: StoreReader) -> list:  # type: ignore[type-arg]
    return [message for messages in all_messages(reader).values() for message in messages]


def test_a_log_that_begins_at_0_is_asked_for_from_byte_1_on(tmp_path: Path, log: bytes) -> None:
    """A request of 0 is answered from the last file on."""
    asked: list[int] = []

    def serve(slave: Slave) -> None:
        asked.append(slave.says())
        slave.send_log(log, asked[-1])
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, tmp_path) as follower:
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        assert asked == [1]
    assert log_bytes(tmp_path, 0, len(log)) == log


@pytest.mark.parametrize("ack", ["none", "received", "synced"])
def test_acknowledgements_never_claim_more_than_whole_records(tmp_path: Path, log: bytes, ack: str) -> None:
    starts = [*_records(log), len(log)]
    said: list[int] = []

    def serve(slave: Slave) -> None:
        said.append(slave.says())
        slave.send_log(log, 1, starts[5] + 50)
        while ack != "none" and said[-1] < starts[5]:
            said.append(slave.says())
        slave.send_log(log, starts[5] + 50, starts[6])
        while ack != "none" and said[-1] < starts[6]:
            said.append(slave.says())
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, tmp_path, ack=ack) as follower:
        assert follower.wait_for(starts[6], timeout_s=WAIT_LIMIT_S)
        if ack != "none":
            wait_for(lambda: said[-1] == starts[6])
    assert said[0] == 1
    assert all(one in starts for one in said[1:])


@pytest.mark.parametrize("most_unflushed", [1, 64 << 20])
def test_nothing_is_acknowledged_before_its_sync_while_more_comes(
    tmp_path: Path, log: bytes, most_unflushed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower's own syncs, and those of the store's thread, of small pieces of a log that comes at once."""
    flushers: list[LogFlusher] = []
    said: list[tuple[int, int]] = []

    def serve(slave: Slave) -> None:
        slave.says()
        slave.send_log(log, 1)
        while not said or said[-1][0] < len(log):
            said.append((slave.says(), flushers[-1].flushed_where))
        slave.wait_until_left()

    flush = LogFlusher.flush

    def noted(flusher: LogFlusher) -> None:
        flushers.append(flusher)
        flush(flusher)

    monkeypatch.setattr(LogFlusher, "flush", noted)
    monkeypatch.setattr("commitlog_store.follower.link._RECEIVED_SIZE", 1000)
    monkeypatch.setattr("commitlog_store.follower.log_follower._MOST_UNFLUSHED", most_unflushed)
    with ScriptedMaster(serve) as master, follow(master.address, tmp_path, ack="synced") as follower:
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        wait_for(lambda: bool(said) and said[-1][0] == len(log))
    starts = {*_records(log), len(log)}
    assert all(end in starts and end <= synced for end, synced in said)


def test_a_follower_continues_where_a_broken_connection_left_it(tmp_path: Path, log: bytes) -> None:
    """Each connection is cut at a random byte; what comes again is compared, not stored twice."""
    chance = random.Random(1)
    sent = iter(sorted(chance.sample(range(1, len(log)), 12)))

    def serve(slave: Slave) -> None:
        start = slave.says()
        stop = next(sent, None)
        slave.send_log(log, start, len(log) if stop is None else max(stop, start), chance.choice([7, 500, 4000]))
        if stop is None:
            slave.wait_until_left()
        elif chance.random() < 0.5:
            slave.reset()

    with ScriptedMaster(serve) as master, follow(master.address, tmp_path) as follower:
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    assert log_bytes(tmp_path, 0, len(log)) == log


def _frames_that_are_wrong(log: bytes) -> dict[str, tuple[Callable[[int], bytes], str]]:
    return {
        "a hole": (lambda at: frame(at + 1, log[at + 1 : at + 100]), "expected"),
        "a repetition": (lambda at: frame(at, log[at : at + 100]) * 2, "expected"),
        "a negative size": (lambda at: struct.pack(">qi", at, -5), "a frame of -5 bytes"),
        "a huge size": (lambda at: struct.pack(">qi", at, 2**31 - 1), "a frame of 2147483647 bytes"),
        "zeros": (lambda at: frame(at, bytes(500)), "not a record: zeros"),
        "garbage": (lambda at: frame(at, b"\x00\x00\x01\x00" + b"garbage!" * 60), "not a record: MAGICCODE"),
        "a record of another place": (lambda at: frame(at, log[:400]), "not a record: PHYSICALOFFSET"),
        "a damaged body": (lambda at: frame(at, _with_other_byte(log, at)), "not a record: BODYCRC"),
    }


def _with_other_byte(log: bytes, at: int) -> bytes:
    size = struct.unpack_from(">i", log, at)[0]
    data = bytearray(log[at : at + size])
    data[size // 2] ^= 1
    return bytes(data)


@pytest.mark.parametrize("fault", list(_frames_that_are_wrong(b"")))
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, log: bytes, fault: str) -> None:
    """Three connections in a row with the same fault end the following; nothing of it is stored."""
    make, message = _frames_that_are_wrong(log)[fault]
    good = list(_records(log))[4]

    def serve(slave: Slave) -> None:
        start = slave.says()
        slave.send_log(log, start, good)
        slave.send(make(good))
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, tmp_path) as follower:
        with pytest.raises(PeerRefused, match=message):
            follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        assert follower.status.end == good
        assert message in follower.status.error
    _holds(tmp_path, log)


def test_one_broken_connection_is_only_a_pause(tmp_path: Path, log: bytes) -> None:
    turns = count()

    def serve(slave: Slave) -> None:
        start = slave.says()
        if next(turns) == 0:
            slave.send_log(log, start, 3000)
            slave.send(b"\xff" * 40)
        else:
            slave.send_log(log, start)
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, tmp_path) as follower:
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        assert follower.status.error == ""
    assert log_bytes(tmp_path, 0, len(log)) == log


def test_files_of_another_size_are_named(tmp_path: Path, log: bytes) -> None:
    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says())
        slave.wait_until_left()

    settings = {"mapped_file_size_commit_log": FILE_SIZE // 2}
    with (
        ScriptedMaster(serve) as master,
        follow(master.address, tmp_path, settings=settings) as follower,
        pytest.raises(PeerRefused, match="Set mapped_file_size_commit_log to the master's"),
    ):
        follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)


def test_a_record_beyond_max_message_size_is_named_and_not_gathered(tmp_path: Path, log: bytes) -> None:
    def serve(slave: Slave) -> None:
        start = slave.says()
        slave.send(frame(start, (struct.pack(">iI", 1 << 23, 0xDAA320A7) + bytes(100))[start:]))
        slave.wait_until_left()

    with (
        ScriptedMaster(serve) as master,
        follow(master.address, tmp_path) as follower,
        pytest.raises(PeerRefused, match=r"8388608 bytes.*max_message_size"),
    ):
        follower.wait_for(1, timeout_s=WAIT_LIMIT_S)


@pytest.mark.parametrize("what", ["retention has removed it", "it lost its end, and waits"])
def test_heartbeats_without_data_at_the_mirrors_place_are_named(tmp_path: Path, log: bytes, what: str) -> None:
    def serve(slave: Slave) -> None:
        start = slave.says()
        if start == 1:
            slave.send_log(log, 1)
        else:
            slave.heartbeat(start)
        slave.wait_until_left()

    with ScriptedMaster(serve) as master:
        with follow(master.address, tmp_path) as follower:
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        with (
            follow(master.address, tmp_path) as follower,
            pytest.raises(LogDiverged, match="the master sends nothing from there on"),
        ):
            follower.wait_for(len(log) + 1, timeout_s=WAIT_LIMIT_S)
    assert log_bytes(tmp_path, 0, len(log)) == log


def test_a_broker_of_4_x_that_lost_its_end_is_named(tmp_path: Path, log: bytes) -> None:
    """It sends a heartbeat with the offset that was asked for, and closes when another number comes before that."""
    starts = list(_records(log))

    def serve(slave: Slave) -> None:
        start = slave.says()
        if start == 1:
            slave.send_log(log, 1)
        elif slave.says_within(0.3) is None:
            slave.heartbeat(start)
        else:
            return
        slave.wait_until_left()

    settings = {"ha_send_heartbeat_interval": 20}
    with ScriptedMaster(serve) as master:
        with follow(master.address, tmp_path) as follower:
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        with follow(master.address, tmp_path, settings=settings) as follower:
            with pytest.raises(LogDiverged, match="the master sends nothing from there on") as caught:
                follower.wait_for(len(log) + 1, timeout_s=WAIT_LIMIT_S)
            assert caught.value.offset == starts[-1]


def test_a_master_that_lost_its_end_and_grew_again_is_named(tmp_path: Path, log: bytes) -> None:
    starts = list(_records(log))
    turns = count()

    def serve(slave: Slave) -> None:
        start = slave.says()
        slave.send_log(log if next(turns) == 0 else log[: starts[-1]] + bytes(5000), start)
        slave.wait_until_left()

    with ScriptedMaster(serve) as master:
        with follow(master.address, tmp_path) as follower:
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        with follow(master.address, tmp_path) as follower:
            with pytest.raises(LogDiverged, match="the master has other bytes there") as caught:
                follower.wait_for(len(log) + 1, timeout_s=WAIT_LIMIT_S)
            assert starts[-1] <= caught.value.offset < len(log)
    assert log_bytes(tmp_path, 0, len(log)) == log


def test_an_end_before_a_mirrors_beginning_is_named(tmp_path: Path) -> None:
    """A mirror without a record yet, of a master that was made again since."""

    def serve(slave: Slave) -> None:
        slave.says()
        slave.heartbeat(500)

    with (
        ScriptedMaster(serve) as master,
        follow(master.address, tmp_path, start=2 * FILE_SIZE) as follower,
        pytest.raises(LogDiverged, match="at 500, the master's log ends") as caught,
    ):
        follower.wait_for(2 * FILE_SIZE + 1, timeout_s=WAIT_LIMIT_S)
    assert caught.value.offset == 500


def test_a_silent_master_is_left_after_the_housekeeping_interval(tmp_path: Path) -> None:
    with (
        ScriptedMaster(lambda slave: slave.wait_until_left()) as master,
        follow(master.address, tmp_path, settings={"ha_housekeeping_interval": 200}) as follower,
    ):
        wait_for(lambda: master.connections >= 2)
        assert "sent nothing" in follower.status.error


def test_a_log_that_does_not_begin_at_0_is_mirrored_from_one_of_its_files_on(tmp_path: Path, log: bytes) -> None:
    def serve(slave: Slave) -> None:
        start = slave.says()
        slave.send_log(log, start or 3 * FILE_SIZE)
        slave.wait_until_left()

    with ScriptedMaster(serve) as master:
        for name, start in (("file", 2 * FILE_SIZE), ("last", "latest")):
            with follow(master.address, tmp_path / name, start=start) as follower:
                assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
            begin = 3 * FILE_SIZE if start == "latest" else int(start)
            assert log_bytes(tmp_path / name, 0, len(log)) == log[begin:]
        with pytest.raises(InvalidValue, match="multiple of 16384"), follow(master.address, tmp_path / "x", start=100):
            pass


def test_what_a_second_request_claims_is_on_the_device(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master counts a request as an acknowledgement; an earlier connection may have ended before the flush."""
    starts = [*_records(log), len(log)]
    requests: list[tuple[int, int]] = []
    synced = [0]

    def serve(slave: Slave) -> None:
        requests.append((slave.says(), synced[0]))
        slave.send_log(log, requests[-1][0], starts[6])
        if len(requests) == 1:
            wait_for(lambda: any(log_bytes(tmp_path, starts[5], starts[6])))
            slave.reset()
        else:
            slave.wait_until_left()

    flush = LogFlusher.flush

    def noted(flusher: LogFlusher) -> None:
        flush(flusher)
        synced[0] = flusher.flushed_where

    monkeypatch.setattr(LogFlusher, "flush", noted)
    # Only what the follower asks for is flushed: the service waits for an hour.
    settings = {"flush_interval_commit_log": 3_600_000, "flush_commit_log_thorough_interval": 3_600_000}
    with ScriptedMaster(serve) as master, follow(master.address, tmp_path, ack="none", settings=settings):
        wait_for(lambda: len(requests) == 2)
    assert requests[1] == (starts[5], starts[6])


def test_a_follower_whose_socket_has_a_high_number_follows(tmp_path: Path, log: bytes) -> None:
    """A process with many open files: ``select`` takes no number of 1,024 and more."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < 1500:
        pytest.skip(f"at most {most} files may be open")
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with (
            ScriptedMaster(lambda slave: slave.send_log(log, slave.says())) as master,
            follow(master.address, tmp_path) as follower,
        ):
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    finally:
        for one in files:
            os.close(one)


def test_a_heartbeat_that_comes_with_the_compared_bytes_is_no_hole(tmp_path: Path, log: bytes) -> None:
    """A follower that was stopped for a while receives both at once."""
    starts = [*_records(log), len(log)]
    with (
        ScriptedMaster(lambda slave: slave.send_log(log, slave.says(), starts[3])) as master,
        follow(master.address, tmp_path) as follower,
    ):
        assert follower.wait_for(starts[3], timeout_s=WAIT_LIMIT_S)

    def serve(slave: Slave) -> None:
        start = slave.says()
        slave.send(frame(start, log[start : starts[3]]) + frame(starts[3], b""))
        slave.wait_until_left()

    with ScriptedMaster(serve) as master, follow(master.address, tmp_path) as follower:
        wait_for(lambda: follower.status.caught_up)
        assert master.connections == 1
