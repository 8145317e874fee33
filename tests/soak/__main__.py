"""A campaign by hand, which keeps its directory: ``python -m tests.soak SECONDS [SEED] [DIRECTORY]``."""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path

from tests.soak.campaign import Campaign, prepare_environment
from tests.soak.comparison import all_faults


def main(seconds: str, seed: str = "", directory: str = "", spark: str = "spark") -> int:
    prepare_environment()
    place = Path(directory or tempfile.mkdtemp(prefix="soak-", dir="/var/tmp"))
    place.mkdir(exist_ok=True)
    campaign = Campaign(place, int(seed or secrets.randbelow(1 << 32)), spark=spark == "spark")
    print(f"seed {campaign.seed}, directory {place}", flush=True)
    try:
        campaign.run(float(seconds))
        for fault in all_faults(campaign.base, spark=campaign.spark):
            campaign.fault(fault)
    finally:
        print(campaign.report())
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
