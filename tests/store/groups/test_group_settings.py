"""subscriptionGroup.json and consumerFilter.json: read as brokers write them, changed with unknown members kept."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import CorruptConfig, InvalidValue
from commitlog_store.groups.consumer_filter import ConsumerFilters
from commitlog_store.groups.subscription_group import SubscriptionGroupConfig, SubscriptionGroups
from tests.crash.simulated_disk import CrashImages, RecordingDisk

__all__: list[str] = []

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
    assert {"SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER", "TOOLS_CONSUMER"} <= set(groups.groups())
    assert groups.get("SELF_TEST_C_GROUP") == SubscriptionGroupConfig(group_name="SELF_TEST_C_GROUP")
    assert groups.get("billing") is None
    assert ConsumerFilters(str(tmp_path)).filters() == []


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
    assert groups.groups() == []
    groups.put(SubscriptionGroupConfig(group_name="billing"))
    assert SubscriptionGroups(str(tmp_path)).groups() == ["billing"]


@pytest.mark.parametrize("config", [{"group_name": "bill@ing"}, {"group_name": ""}])
def test_an_impossible_group_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        SubscriptionGroups(str(tmp_path)).put(SubscriptionGroupConfig(**config))
    assert not list(tmp_path.iterdir())


def test_filters_are_read_and_removed(tmp_path: Path) -> None:
    path = _config(tmp_path, FILTERS, json.dumps(FILTER_LIST))
    filters = ConsumerFilters(str(tmp_path))
    assert [(one.topic, one.consumer_group) for one in filters.filters()] == [("orders", "billing")] * 3, (
        "each says its own names"
    )
    found = filters.get("billing", "orders")
    assert found is not None
    assert (found.expression, found.expression_type, found.is_dead) == ("a > 5", "SQL92", False)
    ended = filters.get("billing", "returns")
    assert ended is not None
    assert ended.is_dead
    assert filters.remove("billing", "returns") == ["returns"]
    assert filters.remove("billing", "returns") == []
    assert filters.remove("billing") == ["orders"]
    expected = json.loads(json.dumps(FILTER_LIST))
    del expected["filterDataByTopic"]["orders"]["groupFilterData"]["billing"]
    del expected["filterDataByTopic"]["returns"]["groupFilterData"]["billing"]
    assert json.loads(path.read_text()) == expected


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
    for name, kind in ((GROUPS, SubscriptionGroups), (FILTERS, ConsumerFilters)):
        path = _config(store, name, content)
        path.with_name(f"{name}.bak").write_bytes(good if backup is None else backup)
        try:
            kind(str(store))
        except CorruptConfig:
            assert backup is not None, "a good .bak was not read"
    with contextlib.suppress(CorruptConfig):
        ConsumerFilters(str(store)).remove("x")
        assert ConsumerFilters(str(store)).remove("x") == []
    try:
        groups = SubscriptionGroups(str(store))
        groups.put(SubscriptionGroupConfig(group_name="new"))
    except CorruptConfig:
        assert (store / "config" / GROUPS).read_bytes() == content
        return
    assert "new" in SubscriptionGroups(str(store)).groups()


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
            found.add(tuple(SubscriptionGroups(str(tmp_path / "crashed")).groups()))
    assert found == {(), ("billing",)}
