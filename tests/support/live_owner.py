"""Another process that appends to a store while tests read it: ``python -m tests.support.live_owner STORE SEED KEEP``.

Its files are of 16 KiB and of 50 units, so that they come, and go when more than ``KEEP`` log files are there, by the
dozen. Message *n* of the log has the body ``live_body(n)`` and lies in queue *n* modulo ``LIVE_QUEUES``, so each
queue's messages are known. It ends when the store has a file ``stop``, and prints their number.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.support.store_builder import StoreBuilder

LIVE_QUEUES = 3
_MOST = 1_000_000


def live_body(number: int) -> bytes:
    return f"live {number} ".encode() * (1 + number % 17)


def main(store: str, seed: int, keep: int) -> None:
    """Append messages in portions of random size until the store has a file ``stop``."""
    chance = random.Random(seed)
    builder = StoreBuilder(Path(store), log_file_size=16 << 10, queue_file_units=50)
    number = 0
    while number < _MOST and not (builder.path / "stop").exists():
        portion = chance.choice((1, 1, 2, 7, 40))
        turns = [(number + at) % LIVE_QUEUES for at in range(min(portion, LIVE_QUEUES))]
        builder.append("live", turns, [live_body(number + at) for at in range(portion)])
        number += portion
        files = sum(1 for _ in (builder.path / "commitlog").iterdir())
        builder.delete_log_files(max(files - keep, 0))
    print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
