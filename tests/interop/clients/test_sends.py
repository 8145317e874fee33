"""Messages of RocketMQ's producers, in each of the ways that they are sent, reach a consumer as they were sent."""

from __future__ import annotations

import pytest

from tests.interop.clients.rocketmq_client import RocketMQClient, bodies, message


def test_synchronous_sends_say_where_the_message_is(client: RocketMQClient, server_address: str, unique: str) -> None:
    client.start_producer(unique, server_address)
    sent = client.send(
        unique, *(message(unique, f"body {number} äß水", tags="A", keys=f"k{number}") for number in range(8))
    )
    assert {one["status"] for one in sent} == {"SEND_OK"}
    assert {one["queueId"] for one in sent} == {0, 1, 2, 3}
    client.subscribe(unique, server_address, unique)
    found = {str(one["body"]): one for one in client.received(unique, 8)}
    assert len(found) == 8
    for number, one in enumerate(sent):
        received = found[f"body {number} äß水"]
        assert (received["queueId"], received["queueOffset"]) == (one["queueId"], one["queueOffset"])
        assert (received["tags"], received["keys"]) == ("A", f"k{number}")
        assert received["msgId"] == one["msgId"]
        assert received["reconsumeTimes"] == 0


@pytest.mark.parametrize("way", ["async", "oneway"])
def test_other_ways_of_sending_store_each_message(
    client: RocketMQClient, server_address: str, unique: str, way: str
) -> None:
    client.start_producer(unique, server_address)
    client.send(unique, message(unique, "the topic is created first"))
    sent = client.send(unique, *(message(unique, f"body {number}") for number in range(50)), way=way)
    assert way == "oneway" or {one.get("status") for one in sent} == {"SEND_OK"}, sent
    client.subscribe(unique, server_address, unique)
    found = bodies(client.received(unique, 51))
    assert sorted(found) == sorted(["the topic is created first", *(f"body {number}" for number in range(50))])


def test_a_batch_is_stored_in_one_queue_in_its_order(client: RocketMQClient, server_address: str, unique: str) -> None:
    client.start_producer(unique, server_address)
    batch = [message(unique, f"body {number}", tags="B", keys=f"k{number}") for number in range(20)]
    (sent,) = client.send(unique, *batch, batch=True)
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", 0)
    assert len(str(sent["offsetMsgId"]).split(",")) == 20
    client.subscribe(unique, server_address, unique)
    found = client.received(unique, 20)
    assert {one["queueId"] for one in found} == {sent["queueId"]}
    by_offset = sorted(found, key=lambda one: int(one["queueOffset"]))
    assert [one["queueOffset"] for one in by_offset] == list(range(20))
    assert bodies(by_offset) == [f"body {number}" for number in range(20)]
    assert [one["keys"] for one in by_offset] == [f"k{number}" for number in range(20)]


def test_compressed_bodies_and_properties_arrive_whole(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    """A client compresses bodies of more than 4 KiB by itself, and consumers decompress."""
    client.start_producer(unique, server_address, compressOver=1_000)
    properties = {"region": "Zürich", "empty-not": "0", "a b": "x=y"}
    client.send(unique, message(unique, "0123456789" * 5_000, properties=properties), message(unique, "small"))
    client.subscribe(unique, server_address, unique)
    found = {len(str(one["body"])): one for one in client.received(unique, 2)}
    assert found[50_000]["body"] == "0123456789" * 5_000
    assert found[50_000]["properties"].items() >= properties.items()
    assert found[5]["body"] == "small"


def test_messages_go_to_the_queue_that_the_producer_selects(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    client.start_producer(unique, server_address)
    chosen = client.send(unique, *(message(unique, "chosen", queueId=queue) for queue in (3, 1, 1)))
    assert [(one["queueId"], one["queueOffset"]) for one in chosen] == [(3, 0), (1, 0), (1, 1)]
    by_key = client.send(unique, *(message(unique, "by key", orderedBy=f"order {number % 2}") for number in range(8)))
    assert len({one["queueId"] for one in by_key[::2]}) == len({one["queueId"] for one in by_key[1::2]}) == 1


def test_a_delay_level_keeps_a_message_back(
    client: RocketMQClient, server_address: str, unique: str, topic: str
) -> None:
    """Level 2 is 2 s here."""
    client.start_producer(unique, server_address)
    client.subscribe(unique, server_address, topic)
    (delayed, _) = client.send(unique, message(topic, "later", delayLevel=2, tags="T"), message(topic, "at once"))
    assert delayed["status"] == "SEND_OK"
    first, second = client.received(unique, 2)
    assert bodies([first, second]) == ["at once", "later"]
    assert second["tags"] == "T"
    assert int(second["storeTimestamp"]) - int(second["bornTimestamp"]) >= 1_900
    assert second["topic"] == topic


def test_a_delay_in_milliseconds_keeps_a_message_back(
    client: RocketMQClient, server_address: str, unique: str, topic: str
) -> None:
    """RocketMQ 5 has times of delivery, whose precision is a second."""
    if not client.is_five and client.is_java:
        pytest.skip("RocketMQ 4 has no times of delivery")
    client.start_producer(unique, server_address)
    client.subscribe(unique, server_address, topic)
    client.send(unique, message(topic, "later", delayMs=3_000), message(topic, "at once"))
    received = client.received(unique, 2)
    assert sorted(bodies(received)) == ["at once", "later"]
    # Not which comes first: a slow machine may take longer to send the second than the first has to wait.
    (later,) = (one for one in received if one["body"] == "later")
    assert int(later["receivedTimestamp"]) - int(later["bornTimestamp"]) >= 1_900


def test_a_message_that_is_too_large_is_refused_by_code(
    java_client: RocketMQClient, server_address: str, unique: str
) -> None:
    """4 MiB is the most by default; MESSAGE_ILLEGAL is 13. A smaller one goes through on the same connection."""
    java_client.start_producer(unique, server_address, maxMessageSize=8 << 20, compressOver=16 << 20, retries=0)
    refused, taken = java_client.send(unique, message(unique, "x" * (5 << 20)), message(unique, "small"))
    assert refused["code"] == 13, refused
    assert taken["status"] == "SEND_OK"
