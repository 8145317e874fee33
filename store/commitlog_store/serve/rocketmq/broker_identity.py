"""BrokerIdentity: the names and the address by which clients know the broker that a server is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BrokerIdentity:
    """``address`` is ``HOST:PORT``, as routes have it."""

    address: str
    name: str = "broker-a"
    cluster: str = "DefaultCluster"

    def queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        """RocketMQ's MessageQueue, the members in the order in which Java clients write them."""
        return {"brokerName": self.name, "queueId": queue_id, "topic": topic}
