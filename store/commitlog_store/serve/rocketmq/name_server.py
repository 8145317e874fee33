"""NameServerRegistration: registers this broker and its topics with real name servers, again and again.

A name server forgets a broker when its connection ends, so each connection is kept.

Source: RocketMQ ``broker/out/BrokerOuterAPI.java`` (``registerBrokerAll``), ``BrokerController.java``
(``registerNameServerPeriod``, ``getHAServerAddr``), ``BrokerStartup.java`` (``haListenPort``),
``remoting/protocol/body/RegisterBrokerBody.java``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from commitlog_store.errors import CommitLogError
from commitlog_store.format.message_id import MAX_PORT
from commitlog_store.format.remoting_command import LENGTH_SIZE, MAX_FRAME, RemotingCommand, decode
from commitlog_store.queue.topic_config import TopicSettings
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors.route import MASTER_ID, own_topics

_LOG = logging.getLogger(__name__)
# A broker registers at least so often; a name server forgets it after 120 s.
PERIOD_S = 30.0
# How often new topics are looked for: their producers wait until the name servers know them.
_LOOK_S = 0.5
# RocketMQ's registerBrokerTimeoutMills.
_TIMEOUT_S = 24.0
DEFAULT_PORT = 9876


def ha_server_address(broker: str, replication: str | None, slaves_ip: str = "") -> str:
    """The HOST:PORT at which slaves find a broker's log, by the broker's address and that of replication, if any.

    The host is ``slaves_ip`` (brokerIP2) if it is given. Else replication that listens on all addresses, or where only
    this machine reaches it, is given by the broker's host. Without replication it is the port after the broker's, where
    a broker of RocketMQ listens for slaves.
    """
    own = ListenSettings.parse(broker)
    host = slaves_ip or own.host
    if replication is None:
        return str(ListenSettings(host=host, port=min(own.port + 1, MAX_PORT)))
    found = ListenSettings.parse(replication)
    if found.is_loopback and not own.is_loopback:
        _LOG.warning(
            "The broker at %s registers %s:%d for its slaves, and no other host reaches it: replication listens on %s. "
            "Set haListenAddress and haAllow.",
            *(broker, host, found.port, replication),
        )
    is_of_network = not slaves_ip and not found.is_loopback and not found.is_unspecified
    return str(found if is_of_network else ListenSettings(host=host, port=found.port))


class NameServerRegistration:
    """One broker at several name servers. ``run`` is a task of the listener's loop."""

    def __init__(
        self,
        addresses: Sequence[ListenSettings],
        identity: BrokerIdentity,
        ha_address: str,
        topics: Callable[[], Mapping[str, TopicSettings]],
        in_thread: Callable[[Callable[[], Mapping[str, TopicSettings]]], Awaitable[Mapping[str, TopicSettings]]],
    ) -> None:
        """``ha_address`` is where slaves find the log: ``ha_server_address``.

        ``topics`` reads the list of topics; it may wait for the disk, and is called ``in_thread``.
        """
        self._servers = [_NameServer(address) for address in addresses]
        self._identity = identity
        self._ha_address = ha_address
        self._topics = topics
        self._in_thread = in_thread
        self._counter = 0

    async def run(self) -> None:
        """Register at once, when topics change, and every ``PERIOD_S``; the end of the task unregisters."""
        known: Mapping[str, TopicSettings] | None = None
        registered_at = 0.0
        try:
            while True:
                with contextlib.suppress(CommitLogError):  # a list that cannot be read is reported where it is used
                    topics = await self._in_thread(self._topics)
                    is_lost = any(not server.is_connected for server in self._servers)
                    if topics != known or is_lost or time.monotonic() - registered_at >= PERIOD_S:
                        self._counter += topics != known
                        registered_at = time.monotonic()
                        known = topics if await self._send_to_all(self._registration(topics)) else None
                await asyncio.sleep(_LOOK_S if known is not None else 10 * _LOOK_S)
        finally:
            with contextlib.suppress(asyncio.TimeoutError):
                farewell = RemotingCommand(code=RequestCode.UNREGISTER_BROKER, opaque=1, fields=self._header())
                await asyncio.wait_for(self._send_to_all(farewell), 1.0)
            for server in self._servers:
                server.close()

    async def _send_to_all(self, request: RemotingCommand) -> bool:
        """Whether all name servers took it."""
        return all(await asyncio.gather(*(server.send(request) for server in self._servers)))

    def _registration(self, topics: Mapping[str, TopicSettings]) -> RemotingCommand:
        """RegisterBrokerBody. Without the CRC of the body, which is checked only if it is given."""
        version = {"counter": self._counter, "stateVersion": 0, "timestamp": int(time.time() * 1000)}
        table = {
            name: _topic_config(name, settings) for name, settings in {**own_topics(self._identity), **topics}.items()
        }
        body: dict[str, Any] = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table},
        }
        fields = {**self._header(), "haServerAddr": self._ha_address, "compressed": "false", "bodyCrc32": "0"}
        return RemotingCommand(code=RequestCode.REGISTER_BROKER, opaque=1, fields=fields, body=orjson.dumps(body))

    def _header(self) -> dict[str, str]:
        identity = self._identity
        return {
            "brokerAddr": identity.address,
            "brokerId": str(MASTER_ID),
            "brokerName": identity.name,
            "clusterName": identity.cluster,
        }


def _topic_config(name: str, settings: TopicSettings) -> dict[str, object]:
    return {
        "order": False,
        "perm": settings.perm,
        "readQueueNums": settings.read_queue_nums,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": settings.topic_sys_flag,
        "writeQueueNums": settings.write_queue_nums,
    }


class _NameServer:
    """One name server and the connection to it."""

    def __init__(self, address: ListenSettings) -> None:
        self._address = address
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        # What went wrong the last time; empty when it took the request.
        self._said = ""

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection[0].at_eof()

    async def send(self, request: RemotingCommand) -> bool:
        """Whether it took the request. What is wrong is logged once."""
        try:
            answer = await asyncio.wait_for(self._ask(request), _TIMEOUT_S)
            said = "" if answer.code == ResponseCode.SUCCESS else f"it answers {answer.code}: {answer.remark}"
        except (TimeoutError, CommitLogError, OSError, asyncio.IncompleteReadError) as error:
            self.close()
            said = str(error) or type(error).__name__
        if said and said != self._said:
            _LOG.warning("The name server %s does not take the broker's registration: %s", self._address, said)
        elif self._said and not said:
            _LOG.info("The name server %s knows the broker again", self._address)
        self._said = said
        return not said

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        if not self.is_connected or self._connection is None:
            self.close()
            self._connection = await asyncio.open_connection(self._address.host, self._address.port)
        reader, writer = self._connection
        writer.write(request.encode())
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(LENGTH_SIZE), "big")
        return decode(await reader.readexactly(min(size, MAX_FRAME)))

    def close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None
