"""``kill -9`` of the server under producers and consumers, again and again, on one store with SYNC_FLUSH.

Nothing acknowledged is lost, and a message is delivered twice only where RocketMQ delivers it twice: it was consumed,
and the group's position was not saved yet.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from commitlog_store import MessageStore
from commitlog_store.config_files.json_file import decode_config
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from tests.store.serve.rocketmq.remoting_client import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    RemotingClient,
    pull_fields,
    records,
)
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.long_runs import LONG_RUN_S, Progress
from tests.support.waiting import wait_for

TOPIC, QUEUES = "orders", 4
# One consumes as push consumers do, the other as pull consumers do.
PUSHED, PULLED = "billing", "audit"
HOLD_MS = 200
# Before a kill, each producer has so many answers, and each group so many messages.
ROUND = 40
SETTINGS = "flushDiskType=SYNC_FLUSH\nflushConsumerOffsetInterval=50\n"


class Producer(threading.Thread):
    """Sends to one queue until its connection ends, and notes what was acknowledged: offset and body."""

    def __init__(self, address: str, queue_id: int, name: str) -> None:
        super().__init__(name=name)
        self._client = RemotingClient(address)
        self._queue_id = queue_id
        self.acknowledged: list[tuple[int, bytes]] = []
        self._is_stopped = False

    def run(self) -> None:
        with self._client as client:
            for turn in itertools.count():
                body = b"%s-%d" % (self.name.encode(), turn)
                try:
                    answer = client.send(TOPIC, body, self._queue_id)
                except OSError:
                    return
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                self.acknowledged.append((int(answer.fields["queueOffset"]), body))
                if self._is_stopped:
                    return

    def stop(self) -> None:
        self._is_stopped = True


class Consumer(threading.Thread):
    """Consumes all queues from the group's positions on, until its connection ends."""

    def __init__(self, address: str, group: str) -> None:
        super().__init__(name=group)
        self._client = client = RemotingClient(address)
        self._group = group
        if group == PUSHED:
            body = msgspec.json.encode(heartbeat(consumers={group: {TOPIC: "*"}}))
            assert client.ask(RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS
        self.begins = [self._position(queue_id) for queue_id in range(QUEUES)]
        self.positions = list(self.begins)
        # By queue, in the order in which they came: offset and body.
        self.consumed: list[list[tuple[int, bytes]]] = [[] for _ in range(QUEUES)]

    def _position(self, queue_id: int) -> int:
        fields = {"consumerGroup": self._group, "topic": TOPIC, "queueId": queue_id}
        answer = self._client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return int(answer.fields["offset"])

    def run(self) -> None:
        with self._client as client:
            try:
                asked = {self._pull(queue_id): queue_id for queue_id in range(QUEUES)}
                while True:
                    answer = client.receive()
                    if answer.opaque in asked:
                        queue_id = asked.pop(answer.opaque)
                        self._consume(queue_id, answer)
                        asked[self._pull(queue_id)] = queue_id
            except OSError:
                return

    def _consume(self, queue_id: int, answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.SUCCESS:
            self.consumed[queue_id] += [(one.queue_offset, one.body) for one in records(answer)]
        else:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
        self.positions[queue_id] = int(answer.fields["nextBeginOffset"])

    def _pull(self, queue_id: int) -> int:
        """Ask for more, and commit the position: with the pull, or by a request of its own."""
        position = self.positions[queue_id]
        place = {"consumerGroup": self._group, "topic": TOPIC, "queueId": queue_id, "commitOffset": position}
        fields = {**pull_fields(TOPIC, queue_id, position, hold_ms=HOLD_MS, subVersion=1), **place}
        if self._group == PUSHED:
            return self._client.start(RequestCode.PULL_MESSAGE, {**fields, "sysFlag": SUSPEND | COMMIT})
        self._client.start(RequestCode.UPDATE_CONSUMER_OFFSET, place, one_way=True)
        return self._client.start(RequestCode.LITE_PULL_MESSAGE, {**fields, "sysFlag": SUSPEND | SUBSCRIPTION})


@dataclass
class Seen:
    """What all rounds have seen. ``check`` compares a round with those before it."""

    # By queue and offset: no other message may get the place of one that was consumed or acknowledged.
    bodies: dict[tuple[int, int], bytes] = field(default_factory=dict)
    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    consumed: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: {PUSHED: set(), PULLED: set()})

    def check(self, producers: list[Producer], consumers: list[Consumer]) -> None:
        for queue_id, producer in enumerate(producers):
            for offset, body in producer.acknowledged:
                self._note(self.acknowledged, queue_id, offset, body, is_new=True)
        for consumer in consumers:
            for queue_id, consumed in enumerate(consumer.consumed):
                begin = consumer.begins[queue_id]
                assert [offset for offset, _ in consumed] == list(range(begin, begin + len(consumed)))
                for offset, body in consumed:
                    self._note(self.consumed[consumer.name], queue_id, offset, body)

    def _note(
        self, noted: set[tuple[int, int]], queue_id: int, offset: int, body: bytes, *, is_new: bool = False
    ) -> None:
        place = queue_id, offset
        assert not is_new or place not in noted
        assert self.bodies.setdefault(place, body) == body
        noted.add(place)


def _saved(path: Path, group: str) -> list[int]:
    """The positions of the group that a killed server has left, as its file has them."""
    file = path / "config" / "consumerOffset.json"
    if not file.exists():
        return [0] * QUEUES
    positions = decode_config(file.read_bytes(), str(file), "")["offsetTable"].get(f"{TOPIC}@{group}", {})
    return [positions.get(str(queue_id), 0) for queue_id in range(QUEUES)]


@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.stress)])
def test_acknowledged_messages_and_saved_positions_outlive_kills(
    tmp_path: Path, kills: int, request: pytest.FixtureRequest
) -> None:
    path, config, progress = tmp_path / "s", tmp_path / "broker.conf", Progress(request.node)
    config.write_text(SETTINGS)
    with MessageStore.open(path) as store:
        store.create_topic(TOPIC, QUEUES)
    seen = Seen()
    for kill in range(kills + 1):
        _run_until_killed(path, config, kill, seen, is_last=kill == kills)
        progress.count("kills of a server under RocketMQ's clients", kill + 1)
    places = set(seen.bodies)
    assert seen.acknowledged <= places
    assert seen.consumed == {PUSHED: places, PULLED: places}
    # Only what was being sent at a kill is there without an acknowledgement, and nothing twice.
    assert len(places) <= len(seen.acknowledged) + kills * QUEUES
    assert len(set(seen.bodies.values())) == len(places)
    assert_clean(path, killed=True)


def _run_until_killed(path: Path, config: Path, kill: int, seen: Seen, *, is_last: bool) -> None:
    """Serve, produce and consume for a while, kill the server, and check what its clients have seen."""
    saved = {group: _saved(path, group) for group in (PUSHED, PULLED)}
    with ServeProcess(path, "--rocketmq", "127.0.0.1:0", "--config", config) as server:
        consumers = [Consumer(server.broker, group) for group in saved]
        # A message that comes twice is one after the saved position: what came before it was not delivered again.
        assert {one.name: one.begins for one in consumers} == saved
        producers = [Producer(server.broker, queue_id, f"{kill}-{queue_id}") for queue_id in range(QUEUES)]
        threads = [*producers, *consumers]
        for thread in threads:
            thread.start()
        wait_for(lambda: min(len(one.acknowledged) for one in producers) >= ROUND)
        if is_last:
            _finish(producers, consumers)
        else:
            wait_for(lambda: min(sum(map(len, one.consumed)) for one in consumers) >= ROUND)
            wait_for(lambda: all(any(_saved(path, group)) for group in saved))
        server.process.kill()
        for thread in threads:
            thread.join()
    seen.check(producers, consumers)


def _finish(producers: list[Producer], consumers: list[Consumer]) -> None:
    """Have the producers end, and the consumers consume what there is."""
    for producer in producers:
        producer.stop()
        producer.join()
    ends = [producer.acknowledged[-1][0] + 1 for producer in producers]
    wait_for(lambda: all(one.positions == ends for one in consumers))
