"""What RocketMQ's consumers get: filtered, shared, broadcast, in order, again after failures, and from where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.interop.clients.rocketmq_client import RocketMQClient, bodies, message
from tests.interop.clients.servers import positions, routes
from tests.interop.command_process import Json
from tests.support.waiting import wait_for


def test_tags_are_selected_and_the_rest_is_skipped(client: RocketMQClient, server_address: str, unique: str) -> None:
    """AaAa and BBBB have the same hash code, which is all that a broker compares; consumers compare the tags."""
    client.start_producer(unique, server_address)
    tags = ["AaAa", "BBBB", "C", None, "D"] * 4
    client.send(unique, *(message(unique, f"{tag}", **({"tags": tag} if tag else {})) for tag in tags))
    client.subscribe(unique, server_address, unique, "AaAa || D")
    client.received(unique, 8)
    client.send(unique, *(message(unique, "last", tags="D", queueId=queue) for queue in range(4)))
    assert sorted(bodies(client.received(unique, 12))) == ["AaAa"] * 4 + ["D"] * 4 + ["last"] * 4


def test_expressions_of_sql92_select_by_properties(client: RocketMQClient, server_address: str, unique: str) -> None:
    client.start_producer(unique, server_address)
    rows = [{"price": str(number), "region": region} for number in range(6) for region in ("EU", "US")]
    client.send(unique, *(message(unique, f"{row['region']} {row['price']}", properties=row) for row in rows))
    expression = "price BETWEEN 2 AND 4 AND region = 'EU'"
    client.subscribe(unique, server_address, unique, {"sql": expression})
    client.received(unique, 3)
    last = {"price": "3", "region": "EU"}
    client.send(unique, *(message(unique, "last", properties=last, queueId=queue) for queue in range(4)))
    assert sorted(bodies(client.received(unique, 7))) == ["EU 2", "EU 3", "EU 4", *["last"] * 4]


def test_a_waiting_consumer_is_given_messages_as_they_arrive(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    """Pulls are held for 15 to 20 s, and are answered by what arrives."""
    client.start_producer(unique, server_address)
    client.send(unique, *(message(unique, "first", queueId=queue) for queue in range(4)))
    client.subscribe(unique, server_address, unique)
    client.received(unique, 4)
    for number in range(5):
        client.send(unique, message(unique, f"one {number}"))
        arrived = client.received(unique, 5 + number)[-1]
        assert arrived["body"] == f"one {number}"
        assert int(arrived["receivedTimestamp"]) - int(arrived["storeTimestamp"]) < 10_000


def test_the_next_consumer_of_a_group_continues(
    client: RocketMQClient, another_client: RocketMQClient, server_address: str, unique: str
) -> None:
    """The first one is in a process that ends: Go's consumer says nothing when it is closed, and stays a member."""
    client.start_producer(unique, server_address)
    client.send(unique, *(message(unique, f"before {number}") for number in range(12)))
    group = f"{unique}-group"
    another_client.subscribe("first", server_address, unique, group=group)
    another_client.received("first", 12)
    wait_for(lambda: sum(positions(server_address, group, unique)) == 12)
    another_client.ask("close", name="first")
    another_client.kill()
    client.send(unique, *(message(unique, f"after {number}") for number in range(12)))
    client.subscribe(unique, server_address, unique, group=group)
    found = bodies(client.received(unique, 12))
    assert sorted(found) == sorted(f"after {number}" for number in range(12))


def test_a_new_group_begins_with_the_first_message_that_is_still_in_memory(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    """Even when it is to begin at the end: a broker answers 0 for its position then, as if it had one."""
    client.start_producer(unique, server_address)
    client.send(unique, *(message(unique, "before", queueId=queue) for queue in range(4)))
    client.subscribe(unique, server_address, unique, **{"from": "CONSUME_FROM_LAST_OFFSET"})
    client.received(unique, 4)
    client.send(unique, *(message(unique, "after", queueId=queue) for queue in range(4)))
    assert sorted(bodies(client.received(unique, 8))) == ["after"] * 4 + ["before"] * 4


def test_broadcasting_gives_each_consumer_everything(client: RocketMQClient, server_address: str, unique: str) -> None:
    client.start_producer(unique, server_address)
    client.send(unique, message(unique, "the topic is created first"))
    names = [f"{unique}-one", f"{unique}-two"]
    for name in names:
        client.subscribe(name, server_address, unique, group=f"{unique}-group", broadcasting=True)
    client.send(unique, *(message(unique, f"body {number}") for number in range(10)))
    for name in names:
        assert len(set(bodies(client.received(name, 11)))) == 11


def test_two_consumers_share_the_queues_and_one_takes_over(
    client: RocketMQClient, another_client: RocketMQClient, server_address: str, unique: str
) -> None:
    """One of them is killed: the server notices that its connection is gone, and says so to the other."""
    client.start_producer(unique, server_address)
    client.send(unique, message(unique, "the topic is created first"))
    group = f"{unique}-group"
    client.subscribe(unique, server_address, unique, group=group)
    another_client.subscribe("dies", server_address, unique, group=group)
    rounds = 0

    def both_have_some() -> bool:
        nonlocal rounds
        rounds += 1
        client.send(unique, *(message(unique, f"{rounds}", queueId=queue) for queue in range(4)))
        sides = [one.received(name, 0) for one, name in ((client, unique), (another_client, "dies"))]
        last = [{one["queueId"] for one in side if one["body"] == str(rounds)} for side in sides]
        return {len(queues) for queues in last} == {2} and last[0] | last[1] == {0, 1, 2, 3}

    wait_for(both_have_some)
    another_client.kill()
    client.send(unique, *(message(unique, "at last", queueId=queue) for queue in range(4)))
    wait_for(lambda: bodies(client.received(unique, 0)).count("at last") == 4)


def by_order(messages: Sequence[Json]) -> dict[str, list[str]]:
    """The numbers of the messages of each order, as they were taken."""
    found: dict[str, list[str]] = defaultdict(list)
    for one in messages:
        if one["taken"]:
            order, number = str(one["body"]).split(":")
            found[order].append(number)
    return found


def test_an_orderly_consumer_keeps_the_order_through_failures(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    client.start_producer(unique, server_address)
    orders = [message(unique, f"{number % 3}:{number}", orderedBy=str(number % 3)) for number in range(15)]
    client.send(unique, *orders)
    client.subscribe(unique, server_address, unique, orderly=True, failures=1, suspendMs=100)
    found = client.received(unique, 30, timeout_s=90)
    assert by_order(found) == {str(order): [str(number) for number in range(order, 15, 3)] for order in range(3)}
    client.ask("close", name=unique)


def test_an_orderly_consumer_that_dies_is_followed_by_another_in_order(
    client: RocketMQClient, another_client: RocketMQClient, server_address: str, unique: str
) -> None:
    """Its locks of queues end after 60 s. What it had not committed comes again."""
    client.start_producer(unique, server_address)
    orders = [message(unique, f"{number % 3}:{number}", orderedBy=str(number % 3)) for number in range(30)]
    client.send(unique, *orders[:15])
    group = f"{unique}-group"
    another_client.subscribe("dies", server_address, unique, group=group, orderly=True)
    before = by_order(another_client.received("dies", 15))
    another_client.kill()
    client.send(unique, *orders[15:])
    client.subscribe(unique, server_address, unique, group=group, orderly=True)
    client.received(unique, 15, timeout_s=100)
    lasts = {"0": "27", "1": "28", "2": "29"}
    wait_for(lambda: {order: one[-1] for order, one in by_order(client.received(unique, 0)).items()} == lasts)
    after = by_order(client.received(unique, 0))
    for order in ("0", "1", "2"):
        everything = [str(number) for number in range(int(order), 30, 3)]
        assert before[order] == everything[:5]
        assert after[order] == everything[-len(after[order]) :], "in order, up to the last"
        assert len(after[order]) >= 5


def test_what_fails_comes_again_and_ends_in_the_dead_letters(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    client.start_producer(unique, server_address)
    client.send(unique, message(unique, "fails", tags="A", keys="k"), message(unique, "fails, too", tags="A"))
    group = f"{unique}-group"
    client.subscribe(unique, server_address, unique, group=group, failures=-1, maxReconsumeTimes=2)
    found = client.received(unique, 6, timeout_s=100)
    for body in ("fails", "fails, too"):
        assert [one["reconsumeTimes"] for one in found if one["body"] == body] == [0, 1, 2]
    assert {one["topic"] for one in found} == {unique}, "clients give the topic that it was sent to"
    name, topic = f"{unique}-dead", f"%DLQ%{group}"
    wait_for(lambda: routes(server_address, topic))
    client.subscribe(name, server_address, topic)
    dead = client.received(name, 2, timeout_s=100)
    assert sorted(bodies(dead)) == ["fails", "fails, too"]
    assert {str(one["tags"]) for one in dead} == {"A"}
    assert {one["properties"]["RETRY_TOPIC"] for one in dead} <= {unique}


def test_a_message_that_fails_once_is_taken_at_its_second_time(
    client: RocketMQClient, server_address: str, unique: str
) -> None:
    client.start_producer(unique, server_address)
    (sent,) = client.send(unique, message(unique, "fails once", properties={"a": "b"}))
    client.subscribe(unique, server_address, unique, failures=1)
    first, second = client.received(unique, 2)
    assert (first["taken"], second["taken"]) == (False, True)
    assert second["reconsumeTimes"] == 1
    assert second["properties"]["a"] == "b"
    assert second["msgId"] == sent["msgId"]


@pytest.mark.parametrize("assigned", [True, False])
def test_lite_pull_consumers_poll_and_commit(
    java_client: RocketMQClient, server_address: str, unique: str, assigned: bool
) -> None:
    """With queues of their own choice and a place in them, and as members of a group."""
    java_client.start_producer(unique, server_address)
    java_client.send(unique, *(message(unique, f"{number}", queueId=number % 4) for number in range(40)))
    group = f"{unique}-group"
    where: Json = {"assign": [1, 2], "seek": 4} if assigned else {}
    java_client.ask("litePull", name=unique, group=group, namesrv=server_address, topic=unique, **where)
    expected = [str(number) for number in range(40) if not assigned or (number % 4 in (1, 2) and number // 4 >= 4)]
    found = java_client.ask("poll", name=unique, atLeast=len(expected), timeoutMs=60_000)["messages"]
    assert sorted(bodies(found), key=int) == expected
    java_client.ask("commitAll", name=unique)
    java_client.ask("close", name=unique)
    java_client.ask("pullConsumer", name="asks", group=group, namesrv=server_address)
    position = java_client.ask("offsets", name="asks", topic=unique, queueId=1, time=0)["position"]
    java_client.ask("close", name="asks")
    assert position == 10


def test_a_pull_says_what_it_found_and_where_to_continue(
    java_client: RocketMQClient, server_address: str, unique: str
) -> None:
    java_client.start_producer(unique, server_address)
    java_client.send(unique, *(message(unique, f"{number}", queueId=0, tags=f"T{number % 2}") for number in range(10)))
    java_client.ask("pullConsumer", name=unique, group=f"{unique}-group", namesrv=server_address)
    where = {"name": unique, "topic": unique, "queueId": 0}

    def pull(offset: int, **more: object) -> tuple[str, list[str], int]:
        answer = java_client.ask("pull", **where, offset=offset, **({"most": 32} | more))
        assert (answer["minOffset"], answer["maxOffset"]) == (0, 10)
        return answer["status"], bodies(answer["messages"]), answer["nextBeginOffset"]

    # A send is acknowledged before its message is in the queue.
    wait_for(lambda: java_client.ask("offsets", **where, time=0)["max"] == 10)
    assert pull(2, most=3) == ("FOUND", ["2", "3", "4"], 5)
    assert pull(0, tags="T1") == ("FOUND", ["1", "3", "5", "7", "9"], 10)
    assert pull(0, sql="TAGS = 'T0'") == ("FOUND", ["0", "2", "4", "6", "8"], 10)
    assert pull(0, tags="none") == ("NO_MATCHED_MSG", [], 10)
    assert pull(10) == ("NO_NEW_MSG", [], 10)
    assert pull(100)[0::2] == ("OFFSET_ILLEGAL", 10)
    assert java_client.ask("routes", name=unique, topic=unique)["queues"] == [0, 1, 2, 3]


def test_a_held_pull_is_answered_by_a_message_that_matches(
    java_client: RocketMQClient, another_client: RocketMQClient, server_address: str, unique: str
) -> None:
    java_client.start_producer(unique, server_address)
    java_client.send(unique, message(unique, "before", queueId=0))
    another_client.ask("pullConsumer", name="waits", group=f"{unique}-group", namesrv=server_address)
    where = {"name": "waits", "topic": unique, "queueId": 0, "tags": "B", "most": 32}
    another_client.begin("pull", **where, offset=1, block=True)
    java_client.send(unique, *(message(unique, tag, queueId=0, tags=tag) for tag in ("A", "B")))
    answer = another_client.result()
    assert bodies(answer["messages"]) == ["B"]
    assert answer["nextBeginOffset"] == 3


def test_offsets_by_time_and_positions_of_a_group(
    java_client: RocketMQClient, server_address: str, unique: str
) -> None:
    java_client.start_producer(unique, server_address)
    java_client.send(unique, *(message(unique, f"{number}", queueId=0) for number in range(3)))
    java_client.ask("pullConsumer", name=unique, group=f"{unique}-group", namesrv=server_address)
    where = {"name": unique, "topic": unique, "queueId": 0}
    wait_for(lambda: java_client.ask("offsets", **where, time=0)["max"] == 3)
    found = java_client.ask("pull", **where, offset=0, most=32)["messages"]
    times = [int(one["storeTimestamp"]) for one in found]
    answer = java_client.ask("offsets", **where, time=times[2])
    # A group without a position gets 0 where the first message is still in memory, so that it begins there.
    assert (answer["min"], answer["max"], answer["position"]) == (0, 3, 0)
    assert answer["earliestStoreTime"] == times[0]
    assert answer["atTime"] == times.index(times[2])
    assert java_client.ask("offsets", **where, time=0)["atTime"] == 0
    java_client.ask("commit", **where, offset=2)
    wait_for(lambda: java_client.ask("offsets", **where, time=0)["position"] == 2)


def test_messages_are_found_by_their_ids_and_keys(
    java_client: RocketMQClient, server_address: str, unique: str
) -> None:
    java_client.start_producer(unique, server_address)
    (sent,) = java_client.send(unique, message(unique, "wanted", keys="one two", tags="T"))
    java_client.send(unique, message(unique, "other", keys="three"))
    java_client.ask("pullConsumer", name=unique, group=f"{unique}-group", namesrv=server_address)
    for which in ("offsetMsgId", "msgId"):
        assert java_client.ask("view", name=unique, topic=unique, id=sent[which])["body"] == "wanted"
    bounds = {"most": 10, "begin": 0, "end": 1 << 50}
    for key in ("one", "two"):
        found = java_client.ask("query", name=unique, topic=unique, key=key, **bounds)["messages"]
        assert bodies(found) == ["wanted"]
