"""The transactions of a RocketMQ 5 broker on an open store: its own service, processor and positions."""

from __future__ import annotations

import base64
import time
from typing import NamedTuple

from commitlog_store import HalfMessageHandle
from tests.interop.command_process import Json
from tests.interop.operations import message_of
from tests.interop.store_process import StoreProcess
from tests.support.waiting import wait_for

# RocketMQ gives up what is older than this; born times of the tests are fixed.
FOR_EVER_HOURS = 24 * 365 * 60
BORN = 1_700_000_000_000
SUCCESS, ILLEGAL_OPERATION = 0, 604


class Round(NamedTuple):
    """What a broker asked its producers for in a round of checks, and what it gave up: bodies and handles."""

    asked: dict[bytes, HalfMessageHandle]
    given_up: list[bytes]


def broker_message(topic: str, body: bytes, **fields: object) -> Json:
    """A message as a broker puts it, for the program's commands."""
    return message_of(topic, body) | {"bornTimestamp": BORN, "bornHost": "192.168.1.9:40000"} | fields


def half_properties(key: str) -> dict[str, str]:
    """The properties that a broker's half message has besides its own."""
    real = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "payments"}
    return {**real, "UNIQ_KEY": key, "__transactionId__": key}


class BrokerTransactions:
    """Commands of ``java/v5/Transactions.java``, for messages of the topic ``orders`` and the group ``payments``."""

    def __init__(self, process: StoreProcess) -> None:
        self._process = process

    def prepare(self, body: bytes, **properties: str) -> HalfMessageHandle:
        given = {"TRAN_MSG": "true", "PGROUP": "payments", "UNIQ_KEY": f"key-of-{body.decode()}", **properties}
        message = broker_message("orders", body, properties=given, sysFlag=4, keys=["k1"], tags="paid", flag=3)
        reply = self._process.ask("prepare", message=message)
        assert reply["status"] == "PUT_OK", reply
        place = reply["messages"][0]
        return HalfMessageHandle(place["physicalOffset"], place["queueOffset"], "payments", given["UNIQ_KEY"])

    def end(self, how: str, handle: HalfMessageHandle, *, is_check: bool = False) -> int:
        """Commit or roll back, as a producer asks for. Returns the response's code."""
        code: int = self._process.ask(
            "endTransaction",
            how=how,
            physicalOffset=handle.physical_offset,
            queueOffset=handle.queue_offset,
            group=handle.producer_group,
            isCheck=is_check,
        )["code"]
        return code

    def write_ops(self) -> None:
        """Write the op messages that were gathered: a broker does every three seconds, and not when it stops."""
        self._process.ask("writeOps")

    def check(self, check_max: int = 15) -> Round:
        """One round of checks, of all that was put before."""
        now = time.time()
        wait_for(lambda: time.time() - now > 0.005)  # what was stored in the millisecond of its begin is left
        reply = self._process.ask("checkTransactions", timeOut=0, checkMax=check_max)
        asked = {
            base64.b64decode(one["body"]): HalfMessageHandle(
                one["physicalOffset"], one["queueOffset"], "payments", one["properties"].get("UNIQ_KEY", "")
            )
            for one in reply["asked"]
        }
        return Round(asked, [base64.b64decode(one["body"]) for one in reply["givenUp"]])

    def stop(self) -> None:
        """Write the positions as a broker that stops, and close the store."""
        self._process.ask("endTransactions")
        self._process.close()
