"""What operators see with mqadmin: topics, groups, their positions, single messages, and the broker itself."""

from __future__ import annotations

import re
import time

from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from tests.interop.clients.conftest import MqAdmin
from tests.interop.clients.rocketmq_client import RocketMQClient, bodies, message
from tests.interop.clients.servers import BROKER, CLUSTER, ask, broker_address
from tests.support.waiting import wait_for


def rows(output: str) -> list[list[str]]:
    """The words of the lines that are no heading."""
    return [line.split() for line in output.splitlines() if line.strip() and not line.startswith("#")]


def test_topics_are_created_listed_changed_and_deleted(mqadmin: MqAdmin, server_address: str, unique: str) -> None:
    broker = broker_address(server_address)
    created = mqadmin("updateTopic", "-b", broker, "-t", unique, "-r", "6", "-w", "5", "-p", "6")
    assert f"create topic to {broker} success." in created
    assert unique in mqadmin("topicList").split()
    route = mqadmin("topicRoute", "-t", unique)
    assert '"readQueueNums":6' in route
    assert '"writeQueueNums":5' in route
    assert '"perm":6' in route
    assert broker in route
    assert len(rows(mqadmin("topicStatus", "-t", unique).split("Topic Put TPS")[0])) == 6
    changed = mqadmin("updateTopicPerm", "-b", broker, "-t", unique, "-p", "4")
    assert "success" in changed
    wait_for(lambda: '"perm":4' in mqadmin("topicRoute", "-t", unique))
    assert "success" in mqadmin("deleteTopic", "-c", CLUSTER, "-t", unique)
    wait_for(lambda: unique not in mqadmin("topicList").split())


def test_settings_of_the_name_server_are_set_and_deleted(mqadmin: MqAdmin, server_address: str, unique: str) -> None:
    """An ordered topic has one, the number of its queues."""
    broker = broker_address(server_address)
    created = mqadmin("updateTopic", "-b", broker, "-t", unique, "-w", "3", "-o", "true")
    assert f"set broker orderConf. isOrder=true, orderConf=[{BROKER}:3]" in created
    where = ("-s", "NAMESPACE", "-k", unique)
    assert "success" in mqadmin("updateKvConfig", *where, "-v", "value")
    found = ask(server_address, RequestCode.GET_KV_CONFIG, {"namespace": "NAMESPACE", "key": unique})
    assert (found.code, found.fields["value"]) == (ResponseCode.SUCCESS, "value")
    assert "success" in mqadmin("deleteKvConfig", *where)
    found = ask(server_address, RequestCode.GET_KV_CONFIG, {"namespace": "NAMESPACE", "key": unique})
    assert (found.code, found.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        f"No config item, Namespace: NAMESPACE Key: {unique}",
    )


def test_groups_are_created_and_deleted(mqadmin: MqAdmin, server_address: str, unique: str) -> None:
    broker = broker_address(server_address)
    created = mqadmin("updateSubGroup", "-b", broker, "-g", unique, "-r", "3", "-q", "2")
    assert f"create subscription group to {broker} success." in created
    assert '"retryMaxTimes":3' in created.replace("retryMaxTimes=3", '"retryMaxTimes":3')
    deleted = mqadmin("deleteSubGroup", "-b", broker, "-g", unique)
    assert "success" in deleted


def test_progress_of_a_group_and_of_a_topic(
    java_client: RocketMQClient, mqadmin: MqAdmin, server_address: str, unique: str
) -> None:
    java_client.start_producer(unique, server_address)
    java_client.send(unique, *(message(unique, f"{number}", queueId=number % 4) for number in range(8)))
    status = rows(mqadmin("topicStatus", "-t", unique).split("Topic Put TPS")[0])
    assert [line[1:4] for line in status] == [[str(queue), "0", "2"] for queue in range(4)]
    group = f"{unique}-group"
    java_client.subscribe(unique, server_address, unique, group=group)
    java_client.received(unique, 8)

    def has_no_lag() -> bool:
        lines = [line for line in rows(mqadmin("consumerProgress", "-g", group)) if line[0] == unique]
        return [line[2:5] for line in lines] == [[str(queue), "2", "2"] for queue in range(4)]

    wait_for(has_no_lag)
    connection = mqadmin("consumerConnection", "-g", group)
    assert unique in connection
    assert "CLUSTERING" in connection
    assert "CONSUME_FROM_FIRST_OFFSET" in connection
    everything = mqadmin("consumerProgress")
    assert group in everything
    java_client.ask("close", name=unique)


def test_positions_of_a_running_group_are_reset_to_a_time(
    java_client: RocketMQClient, mqadmin: MqAdmin, server_address: str, unique: str
) -> None:
    """The consumer that runs is told so, and gets messages again."""
    java_client.start_producer(unique, server_address)
    java_client.send(unique, *(message(unique, f"old {number}", queueId=0) for number in range(3)))
    between = int(time.time() * 1_000) + 1
    wait_for(lambda: time.time() * 1_000 > between)
    java_client.send(unique, *(message(unique, f"new {number}", queueId=0) for number in range(3)))
    group = f"{unique}-group"
    java_client.subscribe(unique, server_address, unique, group=group)
    java_client.received(unique, 6)
    output = mqadmin("resetOffsetByTime", "-g", group, "-t", unique, "-s", str(between))
    lines = [line for line in rows(output) if line[0] == BROKER]
    assert ["0", "3"] in [line[1:3] for line in lines], output
    again = java_client.received(unique, 9, timeout_s=90)
    assert sorted(bodies(again)[6:]) == ["new 0", "new 1", "new 2"]


def test_single_messages_are_found(
    java_client: RocketMQClient, mqadmin: MqAdmin, server_address: str, unique: str
) -> None:
    java_client.start_producer(unique, server_address)
    (sent,) = java_client.send(unique, message(unique, "wanted", keys="order-1", tags="T", queueId=2))
    wait_for(lambda: str(sent["msgId"]) in mqadmin("queryMsgByKey", "-t", unique, "-k", "order-1"))
    where = ["-t", unique] if java_client.is_five else []
    for output in (
        mqadmin("queryMsgByUniqueKey", "-t", unique, "-i", str(sent["msgId"])),
        mqadmin("queryMsgById", *where, "-i", str(sent["offsetMsgId"])),
    ):
        assert re.search(r"Queue ID: +2\n", output), output
        assert re.search(r"Queue Offset: +0\n", output)
        assert re.search(r"Tags: +\[T\]\n", output)
        assert re.search(r"Keys: +\[order-1\]\n", output)
    assert "wanted" in mqadmin("printMsg", "-t", unique, "-d", "true")


def test_the_cluster_and_its_broker_are_described(mqadmin: MqAdmin, server_address: str) -> None:
    broker = broker_address(server_address)
    # 4.x fails at the line's statistics and prints why, since a broker of 5.x calls one of them otherwise.
    (line,) = [line for line in rows(mqadmin("clusterList")) if line[0] == CLUSTER]
    assert line[1:4] == [BROKER, "0", broker]
    status = dict(re.findall(r"^(\S+) *: (.*?)\s*$", mqadmin("brokerStatus", "-b", broker), re.MULTILINE))
    assert {"brokerVersion", "bootTimestamp", "commitLogMinOffset", "commitLogMaxOffset", "putTps"} <= set(status)
    assert int(status["commitLogMaxOffset"]) >= int(status["commitLogMinOffset"])
    config = mqadmin("getBrokerConfig", "-b", broker)
    assert "brokerName" in config
    assert "autoCreateTopicEnable" in config
