"""subscriptionGroup.json and consumerFilter.json: read as brokers write them; settings change, and the rest stays."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CorruptConfig, InvalidValue
from commitlog_store.groups.group_settings import SubscriptionGroupConfig, SubscriptionGroups, consumer_filters
from tests.crash.simulated_disk import CrashImages, RecordingDisk

GROUPS = "subscriptionGroup.json"
FILTERS = "consumerFilter.json"
FILTER = {
    "bloomFilterData": {"bitNum": 100, "bitPos": [1, 7]},
    "bornTime": 1_700_000_000_000,
    "clientVersion": 1_700_000_000_001,
    "consumerGroup": "billing",
    "deadTime": 0,
    "expression": "a > 5",
    "expressionType": "SQL92",
    "topic": "orders",
}
FILTER_LIST = {
    "filterDataByTopic": {
        "orders": {"topic": "orders", "groupFilterData": {"billing": FILTER, "audit": {**FILTER, "later": 1}}},
        "returns": {"topic": "returns", "groupFilterData": {"billing": {**FILTER, "deadTime": 1_800_000_000_000}}},
    },
    "later": True,
}


def _config(store: Path, name: str, text: str | bytes) -> Path:
    path = store / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_groups_of_a_real_broker_are_read(tmp_path: Path, golden_broker_config: Path) -> None:
    shutil.copytree(golden_broker_config, tmp_path / "config")
    groups = SubscriptionGroups(str(tmp_path))
    assert {"SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER", "TOOLS_CONSUMER"} <= {one.group_name for one in groups.all()}
    assert groups.get("SELF_TEST_C_GROUP") == SubscriptionGroupConfig(group_name="SELF_TEST_C_GROUP")
    assert groups.get("billing") is None
    assert consumer_filters(str(tmp_path)) == []


def test_a_changed_group_stands_in_the_brokers_list_and_all_else_stays(
    tmp_path: Path, golden_broker_config: Path
) -> None:
    shutil.copytree(golden_broker_config, tmp_path / "config")
    path = tmp_path / "config" / GROUPS
    old = path.read_text()
    groups = SubscriptionGroups(str(tmp_path))
    groups.put(SubscriptionGroupConfig(group_name="billing", retry_max_times=3))
    groups.put(SubscriptionGroupConfig(group_name="TOOLS_CONSUMER", consume_enable=False))
    new, expected = json.loads(path.read_text()), json.loads(old)
    assert new["dataVersion"].pop("timestamp") > 0
    expected["dataVersion"] = {"counter": 2, "stateVersion": 0}
    expected["subscriptionGroupTable"]["TOOLS_CONSUMER"]["consumeEnable"] = False
    entry = expected["subscriptionGroupTable"]["SELF_TEST_C_GROUP"]
    own = {"groupName": "billing", "retryMaxTimes": 3}
    expected["subscriptionGroupTable"]["billing"] = {
        name: own.get(name, value) for name, value in entry.items() if name not in ("attributes", "groupRetryPolicy")
    }
    assert new == expected, "attributes and groupRetryPolicy of TOOLS_CONSUMER included"
    again = SubscriptionGroups(str(tmp_path))
    assert again.get("billing") == SubscriptionGroupConfig(group_name="billing", retry_max_times=3)
    assert again.remove("billing")
    assert not again.remove("billing")
    assert SubscriptionGroups(str(tmp_path)).get("billing") is None


def test_the_first_group_creates_the_list(tmp_path: Path) -> None:
    groups = SubscriptionGroups(str(tmp_path))
    assert groups.all() == []
    groups.put(SubscriptionGroupConfig(group_name="billing"))
    assert SubscriptionGroups(str(tmp_path)).get("billing") is not None


@pytest.mark.parametrize("config", [{"group_name": "bill@ing"}, {"group_name": ""}])
def test_an_impossible_group_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        SubscriptionGroups(str(tmp_path)).put(SubscriptionGroupConfig(**config))
    assert not list(tmp_path.iterdir())


def test_filters_are_read_by_topic_and_group(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path):
        pass
    path = _config(tmp_path, FILTERS, json.dumps(FILTER_LIST))
    with StoreReader.open(tmp_path) as reader:
        filters = reader.group_filters()
        assert [(one.topic, one.consumer_group) for one in filters] == [("orders", "billing")] * 3, (
            "each says its own names"
        )
        _, found, ended = filters
        assert (found.expression, found.expression_type, found.is_dead) == ("a > 5", "SQL92", False)
        assert ended.is_dead
        assert reader.group_filters("billing") == filters
        assert reader.group_filters("other") == []
        path.write_text('{"filterDataByTopic":7}')
        with pytest.raises(CorruptConfig, match=FILTERS):
            reader.group_filters()


def test_settings_of_a_group_are_set_and_hold_for_its_next_consumer(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        with store.reader() as reader:
            assert reader.group_settings() == []
        store.set_group_settings(SubscriptionGroupConfig(group_name="billing", retry_max_times=0))
        store.put("orders", b"a", queue_id=0)
        store.dispatch()
        with store.consumer("billing", "orders") as consumer:
            (message,) = consumer.poll()
            consumer.retry(message)
        store.dispatch()
        with store.reader() as reader:
            (found,) = reader.dead_letters("billing")
            assert found.messages == 1, "no message of the group is tried again"
            assert [one.group_name for one in reader.group_settings()] == ["billing"]
            assert reader.group_settings("billing")[0].retry_max_times == 0
            assert reader.group_settings("other") == []


def test_a_group_that_may_not_consume_gets_no_consumer(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.set_group_settings(SubscriptionGroupConfig(group_name="billing", consume_enable=False))
        with pytest.raises(InvalidValue, match="consumeEnable is false"):
            store.consumer("billing", "orders")


@pytest.mark.parametrize("settings", [None, "billing", {"group_name": "billing"}])
def test_settings_of_another_type_are_refused(tmp_path: Path, settings: Any) -> None:
    with MessageStore.open(tmp_path) as store, pytest.raises(InvalidValue, match="SubscriptionGroupConfig"):
        store.set_group_settings(settings)


ANY = st.one_of(
    st.binary(max_size=40),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["groupFilterData", "retryMaxTimes", "topic", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    ).map(
        lambda value: json.dumps({"filterDataByTopic": {"t": value}, "subscriptionGroupTable": {"g": value}}).encode()
    ),
)


@given(content=ANY, backup=st.none() | ANY)
def test_whatever_the_bytes_are_the_settings_are_read_or_the_error_is_named(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, backup: bytes | None
) -> None:
    store = tmp_path_factory.mktemp("store", numbered=True)
    good = json.dumps({"subscriptionGroupTable": {"good": {}}, "filterDataByTopic": {"good": {}}}).encode()
    for name, kind in ((GROUPS, SubscriptionGroups), (FILTERS, consumer_filters)):
        path = _config(store, name, content)
        path.with_name(f"{name}.bak").write_bytes(good if backup is None else backup)
        try:
            kind(str(store))
        except CorruptConfig:
            assert backup is not None, "a good .bak was not read"
    try:
        groups = SubscriptionGroups(str(store))
        groups.put(SubscriptionGroupConfig(group_name="new"))
    except CorruptConfig:
        assert (store / "config" / GROUPS).read_bytes() == content
        return
    assert SubscriptionGroups(str(store)).get("new") is not None


def test_after_a_crash_anywhere_the_settings_are_the_old_or_the_new_ones(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _config(store, GROUPS, "{}")
    recorded = RecordingDisk(store)
    with recorded.recording():
        SubscriptionGroups(str(store)).put(SubscriptionGroupConfig(group_name="billing"))
    images, found = CrashImages(recorded), set()
    chance = random.Random(7)
    for point in range(recorded.now + 1):
        images.advance(point)
        for _ in range(10):
            images.write(tmp_path / "crashed", chance)
            found.add(tuple(one.group_name for one in SubscriptionGroups(str(tmp_path / "crashed")).all()))
    assert found == {(), ("billing",)}
