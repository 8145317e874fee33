"""The golden stores of ``tests/golden``, and what RocketMQ itself read back from them."""

from __future__ import annotations

import functools
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
ROCKETMQ_533 = "rocketmq-5.3.3"
ROCKETMQ_498 = "rocketmq-4.9.8-crashed"
ROCKETMQ_533_BROKER_CONFIG = "rocketmq-5.3.3-broker-config"
ROCKETMQ_533_HALF = "rocketmq-5.3.3-half"


@functools.cache
def expected(name: str) -> dict[str, list[dict[str, Any]]]:
    """RocketMQ's answers for the golden store ``name``, in file order, grouped by kind.

    Kinds are ``store``, ``queue``, ``message``, ``offsetByTime``, ``query``: ``tests/golden/README.md``. Offsets,
    times and codes are ints; property values and ``body`` (base64 of the stored bytes) are strings. The result is
    shared between tests: do not change it.
    """
    answers: dict[str, list[dict[str, Any]]] = {}
    with lzma.open(GOLDEN / name / "expected.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                answer = json.loads(line)
                answers.setdefault(answer["kind"], []).append(answer)
    return answers


def copy_golden(name: str, target: Path) -> Path:
    """Copy the store directory of the golden store ``name`` to ``target``, which must not exist, and return it."""
    source = GOLDEN / name
    store = source / "store"
    return Path(shutil.copytree(store if store.is_dir() else source, target))
