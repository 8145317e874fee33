"""A producer that speaks RocketMQ's protocol, until SIGTERM: ``python -m tests.soak.remoting_producer NAME BASE``.

It sends messages by themselves, and half messages that it commits or rolls back. A connection that breaks before the
answer leaves the outcome open: such a message is in the store once or not at all.
"""

from __future__ import annotations

import logging
import sys
import time

from commitlog_store.serve.rocketmq.codes import RequestCode
from tests.soak.base import REMOTING, Base, Stopping
from tests.soak.producer import RPC_TIMEOUT_S, Producer
from tests.store.serve.rocketmq.remoting_client import RemotingClient

_OK = 0
_HALF, _COMMIT, _ROLLBACK = 4, 8, 12


def send(producer: Producer, client: RemotingClient) -> None:
    number = producer.next()
    if producer.random.random() < 0.25:
        send_half(producer, client, number)
        return
    producer.journal.write({"n": number, "topic": REMOTING, "t": int(time.time() * 1000)})
    answer = client.send(REMOTING, producer.body(number), number % 4)
    if answer.code == _OK:
        place = [
            int(answer.fields["queueId"]),
            int(answer.fields["queueOffset"]),
            int(answer.fields["msgId"][-16:], 16),
        ]
        producer.journal.write({"n": number, "places": [place]})
    else:
        producer.journal.write({"n": number, "refused": f"{answer.code} {answer.remark}"})


def send_half(producer: Producer, client: RemotingClient, number: int) -> None:
    """A half message whose end is not repeated: what a broken connection leaves pending is not in the topic, or is
    there once."""
    outcome = producer.random.choice(["commit", "commit", "rollback"])
    producer.journal.write({"n": number, "topic": REMOTING, "outcome": outcome})
    key = f"{producer.name}-{number}"
    properties = {"TRAN_MSG": "true", "PGROUP": producer.name, "UNIQ_KEY": key}
    answer = client.send(REMOTING, producer.body(number), number % 4, properties, f=_HALF)
    if answer.code != _OK:
        producer.journal.write({"n": number, "unprepared": f"{answer.code} {answer.remark}"})
        return
    header = {
        "producerGroup": producer.name,
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": int(answer.fields["msgId"][-16:], 16),
        "commitOrRollback": _COMMIT if outcome == "commit" else _ROLLBACK,
        "msgId": key,
        "transactionId": answer.fields.get("transactionId", key),
    }
    ended = client.ask(RequestCode.END_TRANSACTION, header)
    producer.journal.write({"n": number, "ended" if ended.code == _OK else "wrong": f"{outcome} {ended.remark}"})


def main(name: str, directory: str) -> None:
    logging.basicConfig()
    stopping = Stopping()
    base = Base.read(directory)
    producer = Producer(name, base, stopping)
    while not stopping:
        try:
            with RemotingClient(f"127.0.0.1:{base.rocketmq_port}", timeout_s=RPC_TIMEOUT_S) as client:
                while not stopping:
                    send(producer, client)
                    stopping.pause(0.03)
        except OSError as error:
            print(time.strftime("%H:%M:%S"), repr(error), file=sys.stderr, flush=True)
            stopping.pause(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
