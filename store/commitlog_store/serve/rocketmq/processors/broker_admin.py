"""BrokerAdminProcessor: the broker itself as ``mqadmin`` looks at it: its cluster, its settings, and its figures.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java`` (``getBrokerConfig``, ``getBrokerRuntimeInfo``),
``store/StoreStatsService.java`` (``getRuntimeInfo``), ``namesrv/processor/DefaultRequestProcessor.java``
(``getBrokerClusterInfo``), ``tools/command/cluster/ClusterListSubCommand.java``.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Mapping
from dataclasses import fields

from commitlog_store.config import MessageStoreConfig
from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import CommitLogError
from commitlog_store.format.remoting_command import VERSION, RemotingCommand
from commitlog_store.serve.rocketmq.answering import InThread, answered_here, answered_in_thread
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.fastjson import encode_body, number_names
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor
from commitlog_store.store import MessageStore, owned_by

_VERSION_NAME = "V5_3_3"
# The windows of rates, in seconds.
_WINDOWS = (10, 60, 600)
# What a broker's pools of threads say, which do not exist here; ``clusterList`` reads them as numbers.
_NO_POOLS = {
    f"{pool}ThreadPoolQueue{what}": "0"
    for pool in ("send", "pull", "query", "ack", "litePull")
    for what in ("Size", "Capacity", "HeadWaitTimeMills")
}
_NO_TIMERS = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class BrokerAdminProcessor(Processor):
    """GET_BROKER_CLUSTER_INFO, GET_BROKER_CONFIG, GET_BROKER_RUNTIME_INFO, GET_ALL_DELAY_OFFSET."""

    def __init__(
        self, store: MessageStore, identity: BrokerIdentity, readers: LentReaders, in_thread: InThread
    ) -> None:
        self._store = store
        self._owned = owned_by(store)
        self._identity = identity
        self._readers = readers
        self._in_thread = in_thread
        self._started_ms = int(time.time() * 1000)

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: answered_here(self._cluster),
            RequestCode.GET_BROKER_CONFIG: answered_here(self._config),
            RequestCode.GET_BROKER_RUNTIME_INFO: answered_in_thread(self._in_thread, self._runtime_info),
            RequestCode.GET_ALL_DELAY_OFFSET: answered_in_thread(self._in_thread, self._delay_offsets),
        }

    def _cluster(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        own = self._identity
        broker = {"brokerAddrs": number_names({0: own.address}), "brokerName": own.name, "cluster": own.cluster}
        body = {"brokerAddrTable": {own.name: broker}, "clusterAddrTable": {own.cluster: [own.name]}}
        return request.answer(ResponseCode.SUCCESS, body=encode_body(body))

    def _config(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """The settings as a file of properties, with RocketMQ's names."""
        host, port = self._identity.address.rsplit(":", 1)
        found = {
            **_settings_of(self._store.config),
            "autoCreateSubscriptionGroup": str(self._identity.creates_groups).lower(),
            "autoCreateTopicEnable": str(self._identity.creates_topics).lower(),
            "brokerClusterName": self._identity.cluster,
            "brokerId": "0",
            "brokerIP1": host,
            "brokerName": self._identity.name,
            "listenPort": port,
            "storePathRootDir": self._store.path,
        }
        body = "".join(f"{name}={value}\n" for name, value in sorted(found.items()))
        version = '{"counter":0,"stateVersion":0,"timestamp":0}'
        return request.answer(ResponseCode.SUCCESS, fields={"version": version}, body=body.encode())

    def _delay_offsets(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """How far each delay level is delivered: what slaves copy."""
        with self._readers.lent() as reader:
            table = {one.level: one.position for one in reader.delay_levels()}
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"offsetTable": number_names(table)}))

    def _runtime_info(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        stats, now_ms = self._store.stats(), int(time.time() * 1000)
        first, end = self._store.physical_bounds()
        put, got = _rates(stats.put_tps), _rates(stats.get_tps)
        table = {
            **_NO_POOLS,
            **_NO_TIMERS,
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
            "bootTimestamp": str(self._started_ms),
            "brokerActive": "true",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": _VERSION_NAME,
            "commitLogDiskRatio": f"{self._owned.engine.disk_use().used:.4f}",
            "commitLogMaxOffset": str(end),
            "commitLogMinOffset": str(first),
            "consumeQueueDiskRatio": f"{self._owned.engine.disk_use().used:.4f}",
            "dispatchBehindBytes": str(stats.dispatch_behind_bytes),
            "earliestMessageTimeStamp": str(self._earliest_ms(first)),
            "getFoundTps": got,
            "getTotalTps": got,
            "getTransferredTps": got,
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalTodayNow": str(stats.get_message_transferred_msg_count),
            "msgGetTotalYesterdayMorning": "0",
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalTodayNow": str(stats.put_message_times_total),
            "msgPutTotalYesterdayMorning": "0",
            "pageCacheLockTimeMills": "0",
            "putMessageEntireTimeMax": f"{stats.put_message_entire_time_max_ms:.0f}",
            "putMessageFailedTimes": str(stats.put_message_failed_times),
            "putMessageSizeTotal": str(stats.put_message_size_total),
            "putMessageTimesTotal": str(stats.put_message_times_total),
            "putTps": put,
            "remainHowManyDataToFlush": f"{end - self._store.flushed_where()} B",
            "runtime": _duration((now_ms - self._started_ms) // 1000),
            "startAcceptSendRequestTimeStamp": str(self._started_ms),
        }
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"table": table}))

    def _earliest_ms(self, log_start: int) -> int:
        """When the log's first message was stored; -1 where there is none, or where it cannot be read."""
        with contextlib.suppress(CommitLogError), self._readers.lent() as reader:
            return reader.message_at(log_start, verify_crc=False).store_timestamp
        return -1


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _rates(per_second: Mapping[int, float]) -> str:
    return " ".join(f"{per_second.get(window, 0.0):.2f}" for window in _WINDOWS)


def _settings_of(config: MessageStoreConfig) -> dict[str, str]:
    """By RocketMQ's names. Without the names of files with secrets."""
    found = {}
    for setting in fields(config):
        value = getattr(config, setting.name)
        if value is None or "token" in setting.name or "tls" in setting.name:
            continue
        first, *rest = setting.name.split("_")
        name = first + "".join(part.capitalize() for part in rest)
        text = value.name if isinstance(value, enum.Enum) else value
        found[name] = str(text).lower() if isinstance(text, bool) else str(text)
    return found
