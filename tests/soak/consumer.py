"""Consumers of a group, until SIGTERM: ``python -m tests.soak.consumer NAME BASE``.

The journal has each message before it is acknowledged. Some are put back to be consumed again, once each.
``NAME`` is that of a journal; one that begins with "remoting" speaks RocketMQ's protocol.
"""

from __future__ import annotations

import logging
import sys
import time
import zlib
from contextlib import suppress

from commitlog_store import MessageExt, RemoteStore, connect
from commitlog_store.errors import PutNotConfirmed, PutRefused, RemoteFailed
from commitlog_store.serve.rocketmq.codes import RequestCode
from tests.soak.base import GROUP, LATER, PLAIN, REMOTING, REMOTING_GROUP, Base, Stopping
from tests.soak.journal import Journal
from tests.soak.producer import RPC_TIMEOUT_S
from tests.store.serve.rocketmq.remoting_client import COMMIT, SUBSCRIPTION, RemotingClient, records

QUEUES = range(4)
_FOUND, _PULL_RETRY, _OFFSET_MOVED = 0, 20, 21


def identity(body: bytes) -> str:
    """Which message it is: the body without its padding."""
    return body.rstrip(b".").decode()


def consume(base: Base, journal: Journal, store: RemoteStore, stopping: Stopping) -> None:
    with store.consumer(GROUP, [PLAIN, LATER]) as consumer:
        while not stopping:
            messages = consumer.poll(64, timeout_s=1.0)
            journal.write(
                *(
                    {**handled(message), "again": True} if wanted_again(message) else handled(message)
                    for message in messages
                )
            )
            for message in messages:
                if wanted_again(message):
                    with suppress(PutNotConfirmed, PutRefused):  # it comes again
                        consumer.retry(message, 1)
                else:
                    consumer.ack(message)


def handled(message: MessageExt) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": identity(message.body),
    }


def wanted_again(message: MessageExt) -> bool:
    return message.reconsume_times == 0 and zlib.crc32(identity(message.body).encode()) % 97 == 0


def pull(base: Base, journal: Journal, stopping: Stopping) -> None:
    """A consumer of RocketMQ's: it asks for the group's positions, and its pulls commit them."""
    with RemotingClient(f"127.0.0.1:{base.rocketmq_port}", timeout_s=RPC_TIMEOUT_S) as client:
        positions = {queue: stored_position(client, queue) for queue in QUEUES}
        while not stopping:
            got = 0
            for queue in QUEUES:
                answer = client.pull(
                    REMOTING,
                    queue,
                    positions[queue],
                    consumerGroup=REMOTING_GROUP,
                    commitOffset=positions[queue],
                    sysFlag=COMMIT | SUBSCRIPTION,
                )
                if answer.code == _FOUND:
                    found = records(answer)
                    journal.write(
                        *(
                            {
                                "topic": REMOTING,
                                "queue": queue,
                                "offset": one.queue_offset,
                                "id": identity(bytes(one.body)),
                            }
                            for one in found
                        )
                    )
                    got += len(found)
                if answer.code in (_FOUND, _PULL_RETRY, _OFFSET_MOVED):
                    positions[queue] = int(answer.fields["nextBeginOffset"])
            if not got:
                stopping.pause(0.1)


def stored_position(client: RemotingClient, queue: int) -> int:
    fields = {"consumerGroup": REMOTING_GROUP, "topic": REMOTING, "queueId": queue}
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.fields["offset"]) if not answer.code else 0


def main(name: str, directory: str) -> None:
    logging.basicConfig()
    stopping = Stopping()
    base = Base.read(directory)
    journal = Journal(base.journal(name))
    while not stopping:
        try:
            if name.startswith("remoting"):
                pull(base, journal, stopping)
            else:
                with connect(base.url, rpc_timeout_s=RPC_TIMEOUT_S) as store:
                    consume(base, journal, store, stopping)
        except (RemoteFailed, OSError) as error:
            print(time.strftime("%H:%M:%S"), repr(error), file=sys.stderr, flush=True)
            stopping.pause(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
