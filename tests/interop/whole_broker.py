"""A whole broker of RocketMQ in a process of its own, without a name server, and a client of its remoting port."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from commitlog_store.errors import RemotingFailed
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.follower.remoting import RemotingClient
from commitlog_store.replication.handshake import receive_exactly
from commitlog_store.replication.peer import MasterAddress
from tests.interop.rocketmq import RocketMqBroker
from tests.support.quick_spark import JAVA_OPTIONS
from tests.support.scripted_broker import remoting_frame
from tests.support.waiting import WAIT_LIMIT_S, wait_for

SEND_MESSAGE, PULL_MESSAGE, QUERY_MESSAGE, RUNTIME_INFO = 10, 11, 12, 28


def free_ports(count: int) -> int:
    """The first of so many ports in a row on which nothing listens, and which no client is given by the system."""
    while True:
        first = random.randrange(12_000, 30_000)
        try:
            for port in range(first, first + count):
                socket.create_server(("", port)).close()
        except OSError:
            continue
        return first


class WholeBroker:
    """A broker of the store at ``path``, as a context manager: it is killed at the end. Its home is beside the store.

    Four ports in a row are its own: ``port`` is the third, for remoting (the first is the one for producers, which is
    lower by two), and the one after it is for slaves.
    """

    def __init__(
        self,
        broker: RocketMqBroker,
        path: Path,
        first_port: int,
        settings: Mapping[str, object],
        keys: AccessKeys | None = None,
    ) -> None:
        """Starts it, and returns at once. ``keys`` are those of an account, which the home's files know."""
        self.port = first_port + 2
        self.address = f"127.0.0.1:{self.port}"
        self.ha_address = f"127.0.0.1:{self.port + 1}"
        self._keys = keys
        home = path.with_name("home")
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "logback_broker.xml").write_text("<configuration/>")  # 4.x wants one
        own = {
            "brokerName": "broker-a",
            "brokerClusterName": "interop",
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": path,
            "storePathCommitLog": path / "commitlog",
            "timerWheelEnable": "false",
        }
        file = home / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in (own | dict(settings)).items()))
        environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
        command = [*broker.java(home), "org.apache.rocketmq.broker.BrokerStartup", "-c", str(file)]
        with (home / "output").open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=home, env=environment | {"ROCKETMQ_HOME": str(home)}
            )

    def wait_until_it_answers(self) -> None:
        """Its log is loaded, and all of its services run."""

        def answers() -> bool:
            assert self._process.poll() is None, "the broker has ended: see its home's 'output'"
            try:
                self.bounds()
            except RemotingFailed:
                return False
            return True

        wait_for(answers)

    def bounds(self) -> tuple[int, int]:
        with RemotingClient(MasterAddress("127.0.0.1", self.port), keys=self._keys) as client:
            return client.log_bounds()

    def send(self, topic: str, body: bytes, key: str, delay_level: int = 0) -> None:
        delay = f"DELAY\x01{delay_level}\x02" if delay_level else ""
        fields = {
            "producerGroup": "interop",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "0",
            "properties": f"KEYS\x01{key}\x02WAIT\x01true\x02{delay}",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        assert self.ask(SEND_MESSAGE, fields, body)[0] == 0

    def pull(self, topic: str, offset: int) -> bytes:
        """The records of up to 32 messages of queue 0."""
        fields = {
            "consumerGroup": "interop",
            "topic": topic,
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        code, body = self.ask(PULL_MESSAGE, fields)
        return body if code == 0 else b""

    def query(self, topic: str, key: str) -> bytes:
        """The records of the messages with a key, by the broker's index."""
        times = {"beginTimestamp": "0", "endTimestamp": str(2**62)}
        code, body = self.ask(QUERY_MESSAGE, {"topic": topic, "key": key, "maxNum": "10", **times})
        return body if code == 0 else b""

    def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
        """The code and the body of its answer. Requests are signed as RocketMQ's clients do."""
        sent = dict(fields)
        if self._keys is not None:
            sent["AccessKey"] = self._keys.access_key
            content = "".join(sent[name] for name in sorted(sent)).encode() + body
            digest = hmac.new(self._keys.secret_key.encode(), content, hashlib.sha1).digest()
            sent["Signature"] = base64.b64encode(digest).decode()
        header = {"code": code, "language": "JAVA", "version": 435, "opaque": 1, "flag": 0, "extFields": sent}
        with socket.create_connection(("127.0.0.1", self.port), WAIT_LIMIT_S) as connection:
            connection.sendall(remoting_frame(header | {"serializeTypeCurrentRPC": "JSON"}, body))
            deadline = time.monotonic() + WAIT_LIMIT_S
            (length,) = struct.unpack(">i", receive_exactly(connection, 4, deadline))
            frame = receive_exactly(connection, length, deadline)
        size = struct.unpack_from(">i", frame)[0]
        return int(json.loads(frame[4 : 4 + size])["code"]), frame[4 + size :]

    def end(self) -> None:
        """Let it end by itself, which closes its store."""
        self._process.terminate()
        self._process.wait(WAIT_LIMIT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_LIMIT_S)

    def __enter__(self) -> WholeBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
