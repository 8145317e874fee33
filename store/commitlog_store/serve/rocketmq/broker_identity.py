"""BrokerIdentity: how clients know the broker: its address, its names, and what it creates for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# RocketMQ's name of a cluster. A broker's own name is that of its host, which clients would keep with their positions.
DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_NAME = "broker-a"


@dataclass(frozen=True)
class BrokerIdentity:
    """``address`` is ``HOST:PORT``, as routes have it. ``creates_topics``: a topic's first message creates it, and
    ``creates_groups``: the first consumer of a group does."""

    address: str
    name: str = DEFAULT_NAME
    cluster: str = DEFAULT_CLUSTER
    creates_topics: bool = True
    creates_groups: bool = True

    def queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        """RocketMQ's MessageQueue, the members in the order in which Java clients write them."""
        return {"brokerName": self.name, "queueId": queue_id, "topic": topic}
