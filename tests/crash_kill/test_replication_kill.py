"""``kill -9`` of a master and of its follower, again and again: the mirror has the master's bytes, and all that counts.

Their files are small, so that kills meet every step of both. docs/decisions/0025-replication.md has the rules.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.follower.log_follower import LogFollower
from commitlog_store.follower.promote import promote
from tests.crash_kill.replicated_pair import Pair, assert_has
from tests.crash_kill.replication_master import SMALL
from tests.store.follower.mirrors import assert_identical, log_bytes
from tests.support.clean_store import assert_clean
from tests.support.forked_programs import ForkedProgram
from tests.support.long_runs import ONE_IN, TURN, part_of


def kill_both_again_and_again(root: Path, role: str, kills: int, seed: int) -> None:
    with Pair(root, role, seed) as pair:
        chance = pair.chance
        pair.start_master()
        pair.start_follower()
        while pair.kills < kills:
            victims = chance.choice(["master", "follower", "follower", "master", "both"])
            both = role == "SYNC_MASTER" and chance.random() < 0.5
            pair.run(chance.choice([0, 0, 1, 2, 5]), chance.choice([0.001, 0.01, 0.05]) * chance.random(), both=both)
            if victims != "follower":
                pair.kill_master()
            if victims != "master":
                pair.kill_follower()
                pair.kill_follower_while_it_opens()
                assert pair.follower_opens() >= pair.safe_end, "what was acknowledged is on the mirror's device"
            pair.look()
            if chance.random() < 0.3:
                pair.kill_master()
                pair.kill_follower()
                assert_clean(pair.mirror, killed=True)
                assert_clean(pair.master, killed=True)
                pair.look()
        pair.end()
        assert_has(pair.master, pair.acknowledged)
        assert_has(pair.mirror, pair.acknowledged)
        assert len(pair.acknowledged) > kills
        assert role == "ASYNC_MASTER" or sum(one.both for one in pair.acknowledged) > kills // 4


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_a_mirror_is_the_masters_log_after_kills_of_either(tmp_path: Path, role: str) -> None:
    kill_both_again_and_again(tmp_path, role, 20, seed=1)


def lose_masters(root: Path, generations: int, seed: int) -> int:
    """Masters are lost with their disks, each after some kills of both sides, and mirrors too; returns the kills."""
    with Pair(root, "SYNC_MASTER", seed) as pair:
        chance = pair.chance
        for generation in range(generations):
            pair.start_master()
            pair.start_follower()
            pair.run(3, 0, both=True)
            if chance.random() < 0.5:
                pair.kill_follower()
                pair.run(chance.choice([0, 2]), 0.01)
                if chance.random() < 0.5:
                    pair.lose_mirror()
                pair.look()
            if chance.random() < 0.5:
                pair.kill_master()
                pair.look()
            pair.run(chance.choice([1, 3, 9]), 0.03 * chance.random(), both=True)
            pair.lose_master()
            found = promote(pair.mirror)
            assert found.epoch == generation + 1
            assert found.end >= pair.safe_end
            assert_has(pair.mirror, pair.acknowledged)
            pair.promoted()
        pair.start_master()
        pair.start_follower()
        pair.run(3, 0, both=True)
        pair.end()
        assert_has(pair.master, pair.acknowledged)
        assert_has(pair.mirror, pair.acknowledged)
        return pair.kills


def test_what_a_sync_master_has_acknowledged_outlives_lost_machines(tmp_path: Path) -> None:
    assert lose_masters(tmp_path, 4, seed=1) >= 8


@contextmanager
def small_master(path: Path, batches: int) -> Iterator[MessageStore]:
    """A master with messages in many files, and batches within one file and over several: three times as many."""
    settings = SMALL | {"ha_listen_address": "127.0.0.1:0"}
    with MessageStore.open(path, MessageStoreConfig.from_mapping(settings)) as store:
        for version, rows in enumerate((3, 150, 20) * batches, 1):
            for number in range(15):
                store.put("single", b"%d" % number * 60, queue_id=number % 2, keys=["k"])
            with store.transaction("app", version) as batch:
                batch.put_messages(pa.table({"body": [b"%d" % row * 50 for row in range(rows)]}), topic="batch")
        yield store


def die_after_operations(root: Path, turns: Iterable[int], batches: int, *, within: bool) -> int:
    """A follower of a new mirror dies at one operation, its successor at another; the third one has everything.

    Returns the number of deaths: how many operations a transfer has depends on how the bytes arrive, and a follower
    that has caught up before its turn lives.
    """
    deaths = 0
    with (
        small_master(root / "master", batches) as master,
        ForkedProgram("tests.crash_kill.replication_follower") as followers,
    ):
        end = master.physical_bounds()[1]
        for turn in turns:
            mirror = root / f"mirror-{turn}"
            for operation in (turn, 1 + turn * 7 % 60):
                followers.start(master.ha_address, mirror, f"{operation}{'/' if within else ''}")
                deaths += followers.dies_before(str(end))
            assert_continues(master, mirror)
            shutil.rmtree(mirror)
    return deaths


def assert_continues(master: MessageStore, mirror: Path) -> None:
    """What a killed follower left is sound and the master's, and the next follower makes it whole."""
    if (mirror / "commitlog").exists():
        assert_clean(mirror, killed=True)
    with LogFollower(str(master.ha_address), mirror, config=MessageStoreConfig.from_mapping(SMALL)) as follower:
        end = follower.status.end
        assert log_bytes(mirror, 0, end) == log_bytes(Path(master.path), 0, end)
        assert_identical(master, follower)
    assert_clean(mirror)


@pytest.mark.parametrize(("first", "within"), [(1, False), (4, True)])
def test_a_follower_may_die_at_any_operation_of_a_transfer(tmp_path: Path, first: int, within: bool) -> None:
    assert die_after_operations(tmp_path, range(first, 120, 30), 2, within=within) >= 3


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_a_mirror_is_the_masters_log_after_a_thousand_kills(tmp_path: Path, role: str, seed: int) -> None:
    kill_both_again_and_again(tmp_path, role, 60, seed)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("within", [False, True])
def test_a_follower_may_die_at_every_operation_of_a_transfer(tmp_path: Path, within: bool) -> None:
    assert die_after_operations(tmp_path, range(1 + TURN, 151, ONE_IN), 5, within=within) >= part_of(200)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 104))
def test_what_a_sync_master_has_acknowledged_outlives_many_lost_machines(tmp_path: Path, seed: int) -> None:
    lose_masters(tmp_path, 25, seed)
