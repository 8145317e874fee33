"""A served store under everything at once, and kills: what was acknowledged is where it was said to be, once."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.soak.campaign import Campaign, prepare_environment
from tests.soak.comparison import all_faults
from tests.support.long_runs import Progress, part_of

pytestmark = [pytest.mark.stress, pytest.mark.spark, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize("seconds", [30, part_of(600)], ids=["short", "long"])
def test_a_campaign_of_kills_loses_and_repeats_nothing(seconds: int, progress: Progress) -> None:
    """``python -m tests.soak SECONDS SEED`` repeats one by hand. A seed decides the signals, not how threads meet."""
    prepare_environment()
    # A real disk: pytest's own directories may be in memory. A campaign that fails leaves its directory.
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=os.environ.get("SOAK_DIRECTORY", "/var/tmp")))
    campaign = Campaign(directory, seed=int.from_bytes(os.urandom(4), "big"))
    try:
        campaign.run(seconds)
        for fault in all_faults(campaign.base, spark=True):
            campaign.fault(fault)
    except BaseException:
        print(campaign.report())
        raise
    progress.count("kills", campaign.kills)
    assert not campaign.faults, campaign.report()
    shutil.rmtree(directory)
