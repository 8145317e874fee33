"""``kill -9`` of a master and of its follower, again and again: the mirror has the master's bytes, and all that counts.

Their files are small, so that kills meet every step of both. docs/decisions/0025-replication.md has the rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog import MessageStore
from commitlog.follower.promote import promote
from tests.crash_kill.replicated_pair import Pair, assert_has
from tests.support.clean_store import assert_clean

__all__: list[str] = []


def kill_both_again_and_again(root: Path, role: str, kills: int, seed: int) -> None:
    with Pair(root, role, seed) as pair:
        chance = pair.chance
        pair.start_master()
        pair.start_follower()
        while pair.kills < kills:
            victims = chance.choice(["master", "follower", "follower", "master", "both"])
            pair.run(chance.choice([0, 0, 1, 2, 5]), chance.choice([0.001, 0.01, 0.05]) * chance.random())
            if victims != "follower":
                pair.kill_master()
            if victims != "master":
                pair.kill_follower()
                assert pair.follower_opens() >= pair.safe_end, "what was acknowledged is on the mirror's device"
            pair.look()
            if chance.random() < 0.2:
                assert_clean(pair.mirror)
                assert_clean(pair.master)
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
