"""Writes ``tests/golden/rocketmq-5.3.3-half``: a store with half messages, and what RocketMQ itself says is pending.

``python -m tests.interop.write_half_golden DIRECTORY`` keeps RocketMQ's jars in DIRECTORY. A broker's own service wrote
all of it; its answer is one round of checks on a copy of the store.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.interop.rocketmq import RocketMq, install
from tests.interop.transactions import FOR_EVER_HOURS, SUCCESS, BrokerTransactions
from tests.support.golden import GOLDEN, ROCKETMQ_533_HALF

_SETTINGS = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "file_reserved_time": FOR_EVER_HOURS,
}
_IMMUNE = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1000000000"}


def main(cache: str) -> None:
    """Write the store, and ask RocketMQ."""
    rocketmq = install("5.3.3", Path(cache))
    target = GOLDEN / ROCKETMQ_533_HALF
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        _write(rocketmq, store)
        answer = _answer(rocketmq, Path(shutil.copytree(store, store.with_name("copy"))))
        shutil.copytree(store, target / "store")
    (target / "expected.json").write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")


def _write(rocketmq: RocketMq, store: Path) -> None:
    with rocketmq.open(store, _SETTINGS) as process:
        broker = BrokerTransactions(process)
        first = [broker.prepare(b"first-%d" % number) for number in range(6)]
        broker.prepare(b"immune", **_IMMUNE)
        ended = broker.prepare(b"immune-ended", **_IMMUNE)
        assert broker.end("commit", first[0]) == broker.end("rollback", first[1]) == SUCCESS
        broker.write_ops()  # one op message for both
        asked = broker.check().asked  # all others are put back, the immune ones with a link
        assert broker.end("commit", asked[b"first-2"], is_check=True) == SUCCESS
        assert broker.end("rollback", asked[b"first-3"], is_check=True) == SUCCESS
        broker.write_ops()
        broker.check()
        assert broker.end("rollback", ended) == SUCCESS  # by the place of the first one
        later = [broker.prepare(b"later-%d" % number) for number in range(4)]
        assert broker.end("commit", later[3]) == broker.end("rollback", later[1]) == SUCCESS
        broker.write_ops()
        broker.prepare(b"checked-too-often", TRANSACTION_CHECK_TIMES="15")
        broker.stop()


def _answer(rocketmq: RocketMq, copy: Path) -> dict[str, list[str]]:
    """The bodies that a broker asks its producers for, those that it gives up, and those of immune messages."""
    with rocketmq.open(copy, _SETTINGS) as process:
        before = process.ask("describe")["messages"]
        found = BrokerTransactions(process).check()
        after = process.ask("describe")["messages"]
    linked = [one["properties"] for one in after[len(before) :] if "TRAN_PREPARED_QUEUE_OFFSET" in one["properties"]]
    return {
        "asked": [body.decode() for body in found.asked],
        "givenUp": [body.decode() for body in found.given_up],
        "immune": [properties["UNIQ_KEY"].removeprefix("key-of-") for properties in linked],
    }


if __name__ == "__main__":
    main(sys.argv[1])
