"""A store whose machine lost power, recovered and used here: RocketMQ opens it and reads the same."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.interop.agreement import agree_on_closed
from tests.interop.rocketmq import RocketMq
from tests.power_cut.block_device import power_cuts, why_not
from tests.power_cut.promises import check_promises
from tests.power_cut.test_power_cuts import points_of, write_until_cut
from tests.power_cut.writer import SETTINGS

CUTS = 6
# What RocketMQ's store takes of them.
STORE_SETTINGS = {name: value for name, value in SETTINGS.items() if name.startswith(("mapped_file_size", "max_"))}

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_rocketmq_reads_what_power_cuts_have_left(rocketmq: RocketMq, flush: str, tmp_path: Path) -> None:
    """Without cleaning: RocketMQ begins to read a queue whose messages have all expired before the log does."""
    with power_cuts(tmp_path) as device:
        notes = write_until_cut(device, "interop", 120, flush, "clean")
        for number, point in enumerate(points_of(notes, random.Random(flush), CUTS)):
            copy = tmp_path / f"store-{number}"
            with device.after_cut(point, f"interop/{number}") as image:
                if image is None:
                    continue
                check_promises(image, [note for note in notes if note.point <= point], flush)
                shutil.copytree(image / "store", copy)
            agree_on_closed(copy, rocketmq, STORE_SETTINGS)
