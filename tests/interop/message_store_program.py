"""``MessageStore`` as a program: ``python -m tests.interop.message_store_program``, commands and replies as JSON lines.

It is RocketMqStore.java's counterpart, and puts in the ways that RocketMQ has not: tables and transactions.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pyarrow as pa

from commitlog_store import (
    BodyCompression,
    CompressionType,
    FlushDiskType,
    Message,
    MessageExtBrokerInner,
    MessageStore,
    MessageStoreConfig,
)
from commitlog_store.format.compression import compress
from tests.interop.command_process import Json

_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def open_store(path: str, settings: Json) -> MessageStore:
    """The store, opened with settings as JSON has them."""
    flush = FlushDiskType(settings.get("flush_disk_type", "ASYNC_FLUSH"))
    # Every message is counted: none is to be delivered in between, unless a test asks for that.
    fixed: dict[str, object] = {"flush_disk_type": flush}
    return MessageStore.open(path, MessageStoreConfig.from_mapping({"schedule_enable": False, **settings, **fixed}))


def put(store: MessageStore, operation: Json) -> Json:
    """The status, and for each message where it went, as far as the store says."""
    return {"message": _put_message, "batch": _put_batch, "table": _put_table, "transaction": _put_transaction}[
        operation["kind"]
    ](store, operation)


def _put_message(store: MessageStore, operation: Json) -> Json:
    (given,) = operation["messages"]
    body, sys_flag = base64.b64decode(given["body"]), given["sysFlag"]
    if given["compression"]:
        packing = BodyCompression(CompressionType[given["compression"]], over=0)
        body, sys_flag = compress(body, packing.type), sys_flag | packing.sys_flag
    properties = dict(given["properties"])
    if given["delayLevel"]:
        properties["DELAY"] = str(given["delayLevel"])
    message = MessageExtBrokerInner(
        topic=given["topic"],
        body=body,
        tags=given["tags"],
        keys=given["keys"],
        queue_id=given["queueId"],
        flag=given["flag"],
        properties=properties,
        sys_flag=sys_flag,
        born_timestamp=given["bornTimestamp"],
        born_host=given["bornHost"],
        store_host=given["storeHost"],
        reconsume_times=given["reconsumeTimes"],
        prepared_transaction_offset=given["preparedTransactionOffset"],
    )
    result = store.put_message(message)
    place = _place(given) | {"queueOffset": result.queue_offset, "physicalOffset": result.physical_offset}
    return {"status": result.status.value, "reason": result.reason, "messages": [place]}


def _put_batch(store: MessageStore, operation: Json) -> Json:
    messages = [
        Message(
            topic=given["topic"],
            body=base64.b64decode(given["body"]),
            tags=given["tags"],
            keys=given["keys"],
            queue_id=given["queueId"],
            flag=given["flag"],
            properties=given["properties"],
        )
        for given in operation["messages"]
    ]
    result = store.put_message_batch(messages)
    places = [
        _place(given)
        | {"queueOffset": result.queue_offset + at, "physicalOffset": None if at else result.physical_offset}
        for at, given in enumerate(operation["messages"])
    ]
    return {"status": result.status.value, "reason": result.reason, "messages": places}


def _put_table(store: MessageStore, operation: Json) -> Json:
    result = store.put_messages(_table(operation["messages"]))
    rows = result.rows.select(["queueOffset", "physicalOffset"]).to_pylist()
    places = [_place(given) | row for given, row in zip(operation["messages"], rows, strict=True)]
    return {"status": result.status.value, "reason": result.reason, "messages": places}


def _put_transaction(store: MessageStore, operation: Json) -> Json:
    with store.transaction(operation["application"], operation["version"]) as batch:
        batch.put_messages(_table(operation["messages"]))
    return {"status": "PUT_OK", "messages": [_place(given) for given in operation["messages"]]}


def _table(messages: list[Json]) -> pa.Table:
    def column(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([message[name] for message in messages], kind)

    return pa.table(
        {
            "topic": column("topic", pa.string()),
            "queueId": column("queueId", pa.int32()),
            "body": pa.array([base64.b64decode(message["body"]) for message in messages], pa.binary()),
            "tags": column("tags", pa.string()),
            "keys": column("keys", pa.list_(pa.string())),
            "flag": column("flag", pa.int32()),
            "delayLevel": column("delayLevel", pa.int32()),
            "properties": pa.array(
                [list(message["properties"].items()) for message in messages], pa.map_(pa.string(), pa.string())
            ),
        }
    )


def _place(given: Json) -> Json:
    """Where a message goes, before it is known at which offsets."""
    level = given["delayLevel"]
    topic, queue_id = (_SCHEDULE_TOPIC, level - 1) if level else (given["topic"], given["queueId"])
    return {"topic": topic, "queueId": queue_id, "queueOffset": None, "physicalOffset": None}


def main() -> None:
    """Run the commands until the store is closed, or stdin ends."""
    opened: MessageStore | None = None
    for line in sys.stdin:
        command: Any = json.loads(line)
        reply: Json
        if command["command"] == "open":
            opened = open_store(command["path"], command["settings"])
            reply = {"opened": True}
        else:
            assert opened is not None
            if command["command"] == "close":
                opened.close()
                reply = {"closed": True}
            else:
                reply = put(opened, command)
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
