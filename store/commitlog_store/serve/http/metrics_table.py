"""The metrics of ``commitlog serve``: names, kinds, labels and meanings. docs/metrics.md shows this table.

What RocketMQ's brokers export has their name: that of their Prometheus exporter, which is the name of RIP-46 with the
unit at the end. Everything else begins with ``commitlog_``.

Source: RocketMQ ``broker/metrics/BrokerMetricsConstant.java``, ``store/metrics/DefaultStoreMetricsConstant.java``, and
the answer of a broker 5.3.3 (``tests/store/serve/http/golden/broker-5.3.3.prom``).
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.Enum):
    """A metric's type, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Shown(enum.Enum):
    """Whose metric it is: of a store that this process owns, or also of one that it only reads."""

    BOTH = "both"
    OWNED = "owned"


class Metric(NamedTuple):
    """``labels`` are those besides ``BASE_LABELS``."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    shown: Shown = Shown.OWNED


BASE_LABELS = ("cluster", "node_type", "node_id")
_STORAGE = ("storage_type", "storage_medium")
_TOPIC = ("topic", "is_system")
_TIMED = ("topic", *_STORAGE)
_GROUP = ("consumer_group", "topic", "is_retry", "is_system")
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

_ROCKETMQ = (
    Metric("rocketmq_messages_in_total", _C,
           "Messages stored in the topic since the store was opened; of a store that is only read, since the "
           "topic began.", _TOPIC, Shown.BOTH),
    Metric("rocketmq_throughput_in_total", _C, "Bytes of records stored in the topic since the opening.", _TOPIC),
    Metric("rocketmq_messages_out_total", _C, "Messages of the topic given to readers since the opening.", _TOPIC),
    Metric("rocketmq_throughput_out_total", _C, "Bytes of these messages.", _TOPIC),
    Metric("rocketmq_message_size", _H, "Bytes of the records of puts; messages put together have their mean size."),
    Metric("rocketmq_topic_number", _G, "Topics in config/topics.json.", (), Shown.BOTH),
    Metric("rocketmq_consumer_group_number", _G, "Groups with settings or a position.", (), Shown.BOTH),
    Metric("rocketmq_processor_watermark", _G,
           "Requests of RocketMQ's clients that wait for a thread, by the processor that answers them.",
           ("processor",)),
    Metric("rocketmq_rpc_latency_milliseconds", _H,
           "How long requests of RocketMQ's clients took, until their answers were sent.",
           ("protocol_type", "request_code", "response_code", "is_long_polling", "result")),
    Metric("rocketmq_topic_create_execution_time_milliseconds", _H,
           "How long it took to create or change a topic for RocketMQ's clients.", ("invocation_status", "is_system")),
    Metric("rocketmq_consumer_group_create_execution_time_milliseconds", _H,
           "How long it took to create or change a consumer group for RocketMQ's clients.", ("invocation_status",)),
    Metric("rocketmq_broker_permission", _G, "6: messages are read and put; 4: they are only read; 0: neither."),
    Metric("rocketmq_consumer_lag_messages", _G, "Messages of the topic that wait for the group.", _GROUP, Shown.BOTH),
    Metric("rocketmq_consumer_lag_latency_milliseconds", _G,
           "For how long the oldest of them has been in the store.", _GROUP, Shown.BOTH),
    Metric("rocketmq_consumer_ready_messages", _G, "Waiting messages that no consumer has pulled.", _GROUP),
    Metric("rocketmq_consumer_queueing_latency_milliseconds", _G,
           "The age of the oldest waiting message that no consumer has pulled.", _GROUP),
    Metric("rocketmq_consumer_inflight_messages", _G,
           "Waiting messages that consumers of the group have pulled and not acknowledged.", _GROUP),
    Metric("rocketmq_send_to_dlq_messages_total", _C,
           "Messages stored in the group's dead-letter topic since the opening.", ("consumer_group", "is_system")),
    Metric("rocketmq_half_messages", _G, "Half messages that are neither committed nor rolled back."),
    Metric("rocketmq_commit_messages_total", _C,
           "Half messages for the topic committed since the opening.", ("topic",)),
    Metric("rocketmq_rollback_messages_total", _C,
           "Half messages for the topic rolled back since the opening.", ("topic",)),
    Metric("rocketmq_finish_message_latency_milliseconds", _H,
           "For how many seconds half messages waited for their commit. As with a broker, the name says milliseconds.",
           ("topic",)),
    Metric("rocketmq_timing_messages", _G,
           "Timer messages that wait for their time, by the topic that they go to.", _TIMED, Shown.BOTH),
    Metric("rocketmq_timer_message_snapshot", _G,
           "Timer messages that are due within so many seconds and not within the bound before; overdue ones in "
           "the first.", ("timer_bound_s", *_STORAGE), Shown.BOTH),
    Metric("rocketmq_timer_enqueue_total", _C,
           "Timer messages taken into the timer log since the opening, and those that came too late for it.", _TIMED),
    Metric("rocketmq_timer_dequeue_total", _C, "Timer messages delivered to the topic since the opening.", _TIMED),
    Metric("rocketmq_delay_message_latency_seconds", _H,
           "For how long messages that were taken in were to wait, from their birth on.", _TIMED),
    Metric("rocketmq_timer_enqueue_lag", _G, "Timer messages that are not in the timer log yet.", _STORAGE),
    Metric("rocketmq_timer_enqueue_latency_milliseconds", _G,
           "For how long the first message that is not in the timer log has been in the store.", _STORAGE),
    Metric("rocketmq_timer_dequeue_lag", _G, "Timer messages that wait for their time.", _STORAGE, Shown.BOTH),
    Metric("rocketmq_timer_dequeue_latency_milliseconds", _G,
           "How long ago the next timer message was due; 0 up to 15 seconds.", _STORAGE, Shown.BOTH),
    Metric("rocketmq_producer_connections", _G,
           "Producers of RocketMQ's protocol, by their heartbeats; one counts in each of its groups.",
           ("language", "version", "protocol_type")),
    Metric("rocketmq_consumer_connections", _G,
           "Consumers of RocketMQ's protocol, by their heartbeats.",
           ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system")),
    Metric("rocketmq_storage_size_bytes", _G, "Bytes used on the disk of the store's directory.", _STORAGE, Shown.BOTH),
    Metric("rocketmq_storage_flush_behind_bytes", _G, "Bytes of the log that are not synced.", _STORAGE),
    Metric("rocketmq_storage_dispatch_behind_bytes", _G, "Bytes of the log that queues and index lack.", _STORAGE),
    Metric("rocketmq_storage_message_reserve_time_milliseconds", _G,
           "The age of the oldest message in the log.", _STORAGE, Shown.BOTH),
)  # fmt: skip

_OWN = (
    Metric("commitlog_put_seconds", _H, "How long puts took, by message: with the sync and the slaves they wait for."),
    Metric("commitlog_put_failed_total", _C, "Puts that did not end with PUT_OK."),
    Metric("commitlog_pulls_total", _C, "Pulls by outcome: found gave messages, miss gave none.", ("outcome",)),
    Metric("commitlog_pull_seconds", _H, "How long pulls took."),
    Metric("commitlog_log_min_offset_bytes", _G, "The physical offset of the log's first byte.", (), Shown.BOTH),
    Metric("commitlog_log_max_offset_bytes", _G, "The physical offset after the log's last byte."),
    Metric("commitlog_disk_used_ratio", _G, "The used share of the fullest disk of the store.", (), Shown.BOTH),
    Metric("commitlog_disk_warning_ratio", _G, "The share from which on puts are refused (disk_space_warning_level)."),
    Metric("commitlog_writable", _G, "1 while messages are accepted, else 0."),
    Metric("commitlog_halted", _G, "1 once a failure has halted the store, until it is opened again."),
    Metric("commitlog_disk_full", _G, "1 while puts are refused since the disk is full."),
    Metric("commitlog_unconfirmed", _G, "1 while slaves do not confirm the puts that wait for them."),
    Metric("commitlog_slaves", _G, "Slaves that are connected."),
    Metric("commitlog_slave_behind_bytes", _G, "Bytes of the log that the slave has not acknowledged.", ("slave",)),
    Metric("commitlog_delayed_delivered_total", _C, "Delayed messages delivered since the opening."),
    Metric("commitlog_delayed_skipped_total", _C, "Delayed messages that could not be delivered and were skipped."),
    Metric("commitlog_delayed_waiting_messages", _G,
           "Delayed messages that wait, by level; level 0 has timer messages.", ("level",), Shown.BOTH),
    Metric("commitlog_delayed_overdue_seconds", _G,
           "How long ago the level's next message was due; 0 up to 15 seconds.", ("level",), Shown.BOTH),
    Metric("commitlog_archive_stop_offset_bytes", _G, "The archive has the log up to there.", (), Shown.BOTH),
    Metric("commitlog_archive_waiting_bytes", _G, "Closed log files that the archive does not have.", (), Shown.BOTH),
    Metric("commitlog_archive_uploaded_bytes_total", _C, "Bytes uploaded to the archive.", (), Shown.BOTH),
    Metric("commitlog_archive_failed_total", _C, "Steps of archiving that failed.", (), Shown.BOTH),
    Metric("commitlog_archive_failing", _G, "1 while the last step of archiving failed, else 0.", (), Shown.BOTH),
    Metric("commitlog_connections", _G,
           "Connections of the server, by listener (grpc, http, rocketmq) and state: beginning, active or idle.",
           ("listener", "state"), Shown.BOTH),
    Metric("commitlog_connections_refused_total", _C,
           "Connections that were closed because there were too many.", ("listener",), Shown.BOTH),
    Metric("commitlog_owned", _G, "1: this process owns the store; 0: it only reads it.", (), Shown.BOTH),
    Metric("commitlog_up", _G, "1: the store could be asked; 0: the log of the server says why not.", (), Shown.BOTH),
    Metric("commitlog_scrape_seconds", _G, "How long it took to ask the store for this answer.", (), Shown.BOTH),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_ROCKETMQ, *_OWN)}
