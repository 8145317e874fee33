"""Transactions of RocketMQ's producers: committed, rolled back, and unknown until the broker asks."""

from __future__ import annotations

from tests.interop.clients.rocketmq_client import RocketMQClient, bodies, message
from tests.support.waiting import wait_for


def send(client: RocketMQClient, name: str, topic: str, body: str, outcome: str, checked: str = "UNKNOW") -> str:
    """Send half a message; its transaction's id."""
    messages = [message(topic, body, tags="T", keys=body)]
    (result,) = client.ask("sendInTransaction", name=name, messages=messages, outcome=outcome, checked=checked)[
        "results"
    ]
    assert (result["status"], result["state"]) == ("SEND_OK", outcome)
    return str(result["transactionId"])


def test_a_committed_message_arrives_and_one_rolled_back_does_not(
    client: RocketMQClient, server_address: str, unique: str, topic: str
) -> None:
    client.start_producer(unique, server_address, transactional=True)
    client.subscribe(unique, server_address, topic)
    send(client, unique, topic, "rolled back", "ROLLBACK_MESSAGE")
    transaction = send(client, unique, topic, "committed", "COMMIT_MESSAGE")
    (found,) = client.received(unique, 1)
    assert (found["body"], found["tags"], found["keys"]) == ("committed", "T", "committed")
    assert found["topic"] == topic
    assert found["msgId"] == transaction
    send(client, unique, topic, "the last", "COMMIT_MESSAGE")
    assert bodies(client.received(unique, 2)) == ["committed", "the last"]


def test_the_broker_asks_for_the_outcome_that_is_unknown(
    client: RocketMQClient, server_address: str, unique: str, topic: str
) -> None:
    """What the producer answers then is what happens."""
    client.start_producer(unique, server_address, transactional=True)
    client.subscribe(unique, server_address, topic)
    rolled_back = send(client, unique, topic, "rolled back", "UNKNOW", "ROLLBACK_MESSAGE")
    committed = send(client, unique, topic, "committed", "UNKNOW", "COMMIT_MESSAGE")
    (found,) = client.received(unique, 1, timeout_s=90)
    assert found["body"] == "committed"
    checks = client.ask("checks", name=unique, atLeast=2)["checks"]
    assert {rolled_back, committed} <= set(checks)
    send(client, unique, topic, "the last", "COMMIT_MESSAGE")
    assert bodies(client.received(unique, 2)) == ["committed", "the last"]


def test_another_producer_of_the_group_is_asked_when_the_first_has_died(
    client: RocketMQClient, another_client: RocketMQClient, server_address: str, unique: str
) -> None:
    """It does not know of the transaction, so it stays unknown until the broker asks no more."""
    group = {"group": f"{unique}-producers"}
    another_client.ask("producer", name="dies", namesrv=server_address, transactional=True, **group)
    transaction = send(another_client, "dies", unique, "half", "UNKNOW")
    another_client.kill()
    client.ask("producer", name=unique, namesrv=server_address, transactional=True, **group)
    send(client, unique, f"{unique}-other", "brings the producer's heartbeat", "COMMIT_MESSAGE")
    wait_for(lambda: transaction in client.ask("checks", name=unique, atLeast=0)["checks"])
