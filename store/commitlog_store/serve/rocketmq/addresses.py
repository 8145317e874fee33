"""Names and addresses by which clients find this broker, and what a broker of RocketMQ is called by default.

Source: RocketMQ ``common/BrokerIdentity.java``, ``common/MixAll.java``, ``common/topic/TopicValidator.java``.
"""

from __future__ import annotations

from dataclasses import dataclass

MASTER_ID = 0
# The topic whose settings a topic gets that is made by its first message.
AUTO_CREATE_TOPIC = "TBW102"
# RocketMQ's defaultTopicQueueNums: a client asks for 4, and gets no more than these.
AUTO_CREATE_QUEUES = 8


@dataclass(frozen=True, kw_only=True)
class BrokerIdentity:
    """``address`` is HOST:PORT, which is in routes."""

    address: str
    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
