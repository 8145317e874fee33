"""Half messages and op messages put as a broker puts them, and the positions that it notes."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import MessageExtBrokerInner, MessageStore, PutMessageResult
from commitlog_store.format.half_messages import HALF_TOPIC, OP_TOPIC


def put_half(store: MessageStore, body: bytes, *, born: int | None = None, **properties: str) -> PutMessageResult:
    """A half message for topic ``orders``, queue 0, of the group ``payments``."""
    given = {"TRAN_MSG": "true", "PGROUP": "payments", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    message = MessageExtBrokerInner(
        topic=HALF_TOPIC, body=body, born_timestamp=born, properties={**given, **properties}
    )
    return store.put_message(message).raise_for_status()


def put_op(store: MessageStore, body: bytes, tags: str = "d") -> PutMessageResult:
    return store.put_message(MessageExtBrokerInner(topic=OP_TOPIC, body=body, tags=tags)).raise_for_status()


def note_positions(path: Path, half: int, op: int) -> None:
    """Write consumerOffset.json as a broker leaves it."""
    text = (
        '{\n\t"offsetTable":{\n'
        f'\t\t"{HALF_TOPIC}@CID_RMQ_SYS_TRANS":{{0:{half}}},\n'
        f'\t\t"{OP_TOPIC}@CID_RMQ_SYS_TRANS":{{0:{op}}},\n'
        '\t\t"orders@billing":{0:12}\n\t}\n}'
    )
    config = path / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(text)


def positions(path: Path) -> tuple[int, int]:
    """The positions in the half queue and in the op queue."""
    from commitlog_store.groups.consumer_offset import ConsumerOffsets

    offsets = ConsumerOffsets(str(path))
    return tuple(offsets.get("CID_RMQ_SYS_TRANS", topic).get(0, -1) for topic in (HALF_TOPIC, OP_TOPIC))  # type: ignore[return-value]
