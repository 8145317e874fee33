"""/metrics: what is counted, the names and labels, how many series there are, and what a scrape waits for."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from commitlog_store import Message, MessageExtBrokerInner, MessageStore, StoreReader
from commitlog_store.engine.stats import LATENCY_BUCKETS_S
from commitlog_store.format.half_messages import HALF_TOPIC
from commitlog_store.serve.http.metrics import StoreCollector
from commitlog_store.serve.http.metrics_table import BASE_LABELS, METRICS, Kind, Shown
from commitlog_store.serve.http.samples import REST, BoundedNames, Samples
from commitlog_store.serve.http.store_samples import StoreSamples
from commitlog_store.serve.tokens import Role, new_token
from commitlog_store.store import owned_by
from tests.store.half.brokers import put_half
from tests.store.owner.owned_store import open_store, put_ok
from tests.store.serve.http.fronts import browsing, shown
from tests.store.serve.http.scrapes import families, own_labels, scrape, value, values
from tests.support.delayed import is_taken_in
from tests.support.waiting import WAIT_LIMIT_S, wait_for

GOLDEN = Path(__file__).parent / "golden" / "broker-5.3.3.prom"
# Brokers have these only after something has happened that the golden one has not seen; the labels are those of
# BrokerMetricsManager (initTransactionMetrics, initConnectionMetrics), EndTransactionProcessor, AdminBrokerProcessor,
# AbstractSendMessageProcessor and NettyRemotingAbstract (writeResponse).
NOT_IN_GOLDEN = {
    "rocketmq_half_messages": {"topic"},
    "rocketmq_commit_messages_total": {"topic"},
    "rocketmq_rollback_messages_total": {"topic"},
    "rocketmq_finish_message_latency_milliseconds": {"topic"},
    "rocketmq_rpc_latency_milliseconds": {"protocol_type", "request_code", "response_code"}
    | {"is_long_polling", "result"},
    "rocketmq_topic_create_execution_time_milliseconds": {"invocation_status", "is_system"},
    "rocketmq_consumer_group_create_execution_time_milliseconds": {"invocation_status"},
    "rocketmq_producer_connections": {"language", "version", "protocol_type"},
    "rocketmq_consumer_connections": {"consumer_group", "language", "version", "consume_mode"}
    | {"protocol_type", "is_system"},
    "rocketmq_send_to_dlq_messages_total": {"consumer_group", "topic", "is_system"},
}


# What docs/metrics.md says of labels.
LEFT_OUT = {
    "rocketmq_messages_in_total": {"message_type"},
    "rocketmq_throughput_in_total": {"message_type"},
    "rocketmq_messages_out_total": {"consumer_group"},
    "rocketmq_throughput_out_total": {"consumer_group"},
    "rocketmq_message_size": {"topic", "message_type", "is_system"},
    "rocketmq_half_messages": {"topic"},
    "rocketmq_send_to_dlq_messages_total": {"topic"},
}


def lag_store(store: MessageStore) -> None:
    """Two queues of orders with five messages, of which a group has consumed one and another all."""
    for number in range(5):
        put_ok(store, queue_id=number % 2)
    store.dispatch()
    store.commit_group_offsets("billing", {("orders", 0): 1})
    store.commit_group_offsets("audit", {("orders", 0): 3, ("orders", 1): 2})


def test_what_is_put_and_pulled_is_counted(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        for _ in range(3):
            put_ok(store)
        put_ok(store, topic="%DLQ%billing")
        with store.transaction("loader", 1) as batch:
            batch.put_messages([{"body": b"x"}] * 4, topic="bills")
        store.put_message(Message(topic="", body=b""))
        store.dispatch()
        store.get_message("orders", 0, 0, 2)
        store.get_message("orders", 0, 3, 2)
        found = scrape(client)
        end = store.physical_bounds()[1]
    stored = values(found, "rocketmq_messages_in_total", "topic")
    assert (stored["orders",], stored["bills",]) == (3, 4)
    assert ("%DLQ%billing",) not in stored, "as with a broker"
    assert values(found, "rocketmq_send_to_dlq_messages_total", "consumer_group") == {("billing",): 1}
    assert values(found, "rocketmq_messages_out_total", "topic") == {("orders",): 2}
    assert value(found, "rocketmq_throughput_out_total") == 2 * (91 + len(b"body") + len("orders"))
    assert values(found, "commitlog_pulls_total", "outcome") == {("found",): 1, ("miss",): 1}
    assert value(found, "commitlog_pull_seconds_count") == 2
    assert value(found, "commitlog_put_failed_total") == 1
    assert value(found, "commitlog_put_seconds_count") == value(found, "rocketmq_message_size_count") == 4
    assert value(found, "commitlog_log_max_offset_bytes") == end
    assert value(found, "rocketmq_storage_dispatch_behind_bytes") == 0


def test_histograms_have_ascending_buckets_that_end_with_all(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        store.put_messages([{"body": b"x"}] * 100, topic="orders")
        found = scrape(client)
    buckets = values(found, "commitlog_put_seconds_bucket", "le")
    ends = [float(end) for (end,) in buckets]
    assert ends == [*LATENCY_BUCKETS_S, float("inf")]
    counts = list(buckets.values())
    assert counts == sorted(counts)
    assert counts[-1] == 100, "a table counts by its rows"


@pytest.mark.parametrize("is_owner", [True, False])
def test_lag_is_by_group_and_topic(tmp_path: Path, is_owner: bool) -> None:
    with open_store(tmp_path) as store:
        lag_store(store)
        with browsing(owned=store) if is_owner else browsing(tmp_path) as client:
            found = scrape(client)
    labels = ("consumer_group", "topic", "is_retry", "is_system")
    assert values(found, "rocketmq_consumer_lag_messages", *labels) == {
        ("billing", "orders", "false", "false"): 4,
        ("audit", "orders", "false", "false"): 0,
    }
    waited = values(found, "rocketmq_consumer_lag_latency_milliseconds", "consumer_group")
    assert waited["audit",] == 0
    assert 0 < waited["billing",] < 1000 * WAIT_LIMIT_S
    assert value(found, "rocketmq_consumer_group_number") == 2


def test_a_store_that_is_only_read_counts_by_the_ends_of_its_queues(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lag_store(store)
        put_ok(store, topic="bills")
    with browsing(tmp_path) as client:
        found = scrape(client)
    assert values(found, "rocketmq_messages_in_total", "topic") == {("orders",): 5, ("bills",): 1}
    assert (value(found, "commitlog_owned"), value(found, "commitlog_up")) == (0, 1)
    names = {one.name for one in found}
    of_owners = {name for name, metric in METRICS.items() if metric.shown is Shown.OWNED}
    assert not names & of_owners
    assert value(found, "rocketmq_topic_number") == 2


def test_the_series_of_several_stores_differ_in_their_node(tmp_path: Path) -> None:
    for name, topic in (("first", "orders"), ("second", "bills")):
        with open_store(tmp_path / name) as store:
            put_ok(store, topic=topic)
    with browsing(a=tmp_path / "first", b=tmp_path / "second") as client:
        found = scrape(client)
    assert values(found, "rocketmq_messages_in_total", "node_id", "topic") == {("a", "orders"): 1, ("b", "bills"): 1}


def test_a_store_that_cannot_be_read_is_down_and_the_others_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("first", "second"):
        with open_store(tmp_path / name) as store:
            put_ok(store)
    away = tmp_path / "away"
    with shown(a=tmp_path / "first", b=tmp_path / "second") as front:
        collector = StoreCollector(front.stores)
        assert _up(collector) == {"a": 1, "b": 1}
        (tmp_path / "second").rename(away)
        for _ in range(2):
            assert _up(collector) == {"a": 1, "b": 0}
        away.rename(tmp_path / "second")
        assert _up(collector) == {"a": 1, "b": 1}
    texts = [record.getMessage() for record in caplog.records if record.name.endswith("http.metrics")]
    assert len(texts) == 2, "once when it is down, and once when it is up again"
    assert "The store 'b' cannot be asked for its metrics" in texts[0]
    assert "can be asked for its metrics again" in texts[1]


def _up(collector: StoreCollector) -> dict[str, float]:
    (family,) = (one for one in collector.collect() if one.name == "commitlog_up")
    return {one.labels["node_id"]: one.value for one in family.samples}


def test_what_the_owner_has_in_memory_is_shown_though_a_file_is_damaged(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        lag_store(store)
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (tmp_path / "config" / name).write_text("{")
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        put_ok(store)
        found = scrape(client)
    assert value(found, "commitlog_up") == 0
    assert value(found, "commitlog_put_seconds_count") == 1


def test_openmetrics_is_given_to_those_who_accept_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        put_ok(store)
        store.dispatch()  # which counts by topic
        answer = client.get(
            "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"}
        )
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    named = {family.name: family for family in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]
    assert named["rocketmq_messages_in"].type == "counter"
    assert named["commitlog_put_seconds"].type == "histogram"


def test_every_metric_is_in_the_table_with_its_kind_and_labels(tmp_path: Path) -> None:
    with open_store(tmp_path, ha_listen_address="127.0.0.1:0") as store, browsing(owned=store) as client:
        lag_store(store)
        store.put_message(Message(topic="orders", body=b"", properties={"DELAY": "1"}))
        store.put_message(Message(topic="orders", body=b"", properties={"TIMER_DELAY_SEC": "3600"}))
        wait_for(lambda: is_taken_in(store))
        owned = client.get("/metrics").text
    seen = set()
    for name, family in families(owned).items():
        if name.startswith("process_"):
            continue
        known = METRICS.get(name) or METRICS[f"{name}_total"]
        seen.add(known.name)
        assert family.type == known.kind.value
        assert family.documentation == known.text
        for sample in family.samples:
            assert set(BASE_LABELS) <= set(sample.labels)
            assert own_labels(sample.labels) == set(known.labels), sample
    quiet = {"rocketmq_producer_connections", "rocketmq_consumer_connections", "rocketmq_processor_watermark"}
    quiet |= {"rocketmq_commit_messages_total", "rocketmq_rollback_messages_total"}
    quiet |= {"rocketmq_finish_message_latency_milliseconds", "rocketmq_rpc_latency_milliseconds"}
    quiet |= {f"rocketmq_{one}_create_execution_time_milliseconds" for one in ("topic", "consumer_group")}
    quiet |= {"rocketmq_send_to_dlq_messages_total", "rocketmq_messages_out_total", "rocketmq_throughput_out_total"}
    of_archives = {name for name in METRICS if name.startswith("commitlog_archive_")}
    assert set(METRICS) - seen == quiet | {"commitlog_slave_behind_bytes"} | of_archives


def _broker_families() -> dict[str, Metric]:
    """A broker writes the unit behind the names of series, but not behind those of families."""
    return families(GOLDEN.read_text())


def test_rocketmqs_names_kinds_and_labels_are_those_of_a_broker() -> None:
    kinds = {name: family.type for name, family in _broker_families().items()}
    series: dict[str, set[str]] = {}
    for family in _broker_families().values():
        for sample in family.samples:
            labels = set(own_labels(sample.labels)) - {"otel_scope_name"}
            series.setdefault(sample.name, set()).update(labels)
    for metric in METRICS.values():
        if not metric.name.startswith("rocketmq_"):
            continue
        left_out = LEFT_OUT.get(metric.name, set())
        if metric.name in NOT_IN_GOLDEN:
            assert set(metric.labels) == NOT_IN_GOLDEN[metric.name] - left_out
            continue
        name = f"{metric.name}_count" if metric.kind is Kind.HISTOGRAM else metric.name
        assert name in series, "it is no metric of a broker: the name begins with commitlog_"
        assert set(metric.labels) == series[name] - left_out
        if metric.kind is not Kind.GAUGE:
            # The broker writes units in the names of series, and not in those of families.
            assert kinds[metric.name.removesuffix("_total").removesuffix("_seconds")] == metric.kind.value
    assert METRICS["rocketmq_consumer_lag_messages"].labels == ("consumer_group", "topic", "is_retry", "is_system")


def test_topics_and_groups_beyond_the_limit_are_summed_up(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(6):
            for _ in range(number + 1):
                put_ok(store, topic=f"t{number}")
            store.commit_group_offsets(f"g{number}", {(f"t{number}", 0): 0})
        store.dispatch()
        with shown(owned=store) as front:
            collector = StoreCollector(front.stores, most_topics=2, most_lags=2)
            stored, lag = (_by(collector, name, "topic") for name in ("messages_in", "consumer_lag_messages"))
            assert stored == {"t5": 6, "t4": 5, REST: 1 + 2 + 3 + 4}
            assert lag == {"t5": 6, "t4": 5, REST: 1 + 2 + 3 + 4}
            for _ in range(10):
                put_ok(store, topic="t0")
            store.dispatch()
            stored = _by(collector, "messages_in", "topic")
            assert stored == {"t5": 6, "t4": 5, REST: 11 + 2 + 3 + 4}, "a counter does not go back"


def _by(collector: StoreCollector, name: str, label: str) -> dict[str, float]:
    (family,) = (one for one in collector.collect() if one.name == f"rocketmq_{name}")
    return {one.labels[label]: one.value for one in family.samples}


def test_a_rest_is_only_there_when_names_are_left() -> None:
    names: BoundedNames[str] = BoundedNames(2)
    names.admit({"a": 1, "b": 2})
    assert names.split({"a": 1, "b": 2}) == ({"a": 1, "b": 2}, None)
    assert names.split({"a": 1, "c": 5, "d": 6}) == ({"a": 1}, 11)


def test_a_scrape_waits_for_no_put(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, browsing(owned=store) as client:
        put_ok(store)
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with owned_by(store).engine.log.writer.lock:
                held.set()
                done.wait(WAIT_LIMIT_S)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            assert held.wait(WAIT_LIMIT_S)
            assert value(scrape(client), "commitlog_put_seconds_count") == 1
        finally:
            done.set()
            thread.join()


def test_queues_that_take_long_to_ask_are_asked_seldom(tmp_path: Path) -> None:
    now = 0.0

    def clock() -> float:
        """A second goes by with each look, so that each step takes one."""
        nonlocal now
        now += 1
        return now

    with open_store(tmp_path) as store:
        put_ok(store)
        with StoreReader.open(tmp_path) as reader:
            asked = StoreSamples(None, monotonic=clock)

            def stored() -> float:
                samples = Samples([], [])
                asked.read(samples, reader)
                (count,) = (one for name, _, one in samples.values if name == "rocketmq_messages_in_total")
                return count

            store.dispatch()
            assert stored() == 1
            put_ok(store)
            store.dispatch()
            assert stored() == 1
            now += 20
            assert stored() == 2


def test_half_messages_that_wait_are_counted(tmp_path: Path) -> None:
    def pending(collector: StoreCollector) -> float:
        (family,) = (one for one in collector.collect() if one.name == "rocketmq_half_messages")
        return family.samples[0].value

    with open_store(tmp_path, transaction_time_out=0) as store, shown(owned=store) as front:
        collector = StoreCollector(front.stores)
        assert pending(collector) == 0
        handles = [store.half_messages.prepare(Message(topic="orders", body=b"x"), "payments") for _ in range(3)]
        store.dispatch()
        assert pending(collector) == 3
        store.half_messages.commit(handles[0])
        store.half_messages.rollback(handles[1])
        assert pending(collector) == 1
        assert store.half_messages.check(lambda _: "rollback").rolled_back == 1
        other = store.half_messages.prepare(Message(topic="bills", body=b"x"), "payments")
        store.half_messages.commit(other)
        assert _by(collector, "commit_messages", "topic") == {"orders": 1, "bills": 1}
        assert _by(collector, "rollback_messages", "topic") == {"orders": 2, "bills": 0}
        few = StoreCollector(front.stores, most_topics=1)
        assert _by(few, "commit_messages", "topic") == {"orders": 1, REST: 1}
        assert _by(few, "rollback_messages", "topic") == {"orders": 2, REST: 0}


def test_how_long_half_messages_waited_is_shown_in_seconds_by_topic(tmp_path: Path) -> None:
    name = "rocketmq_finish_message_latency_milliseconds"
    born = int(time.time() * 1000) - 90_000
    with open_store(tmp_path) as store, shown(owned=store) as front:
        messages = [Message(topic=one, body=b"x", born_timestamp=born) for one in ("orders", "orders", "bills")]
        for message in messages:
            store.half_messages.commit(store.half_messages.prepare(message, "payments"))
        store.half_messages.rollback(store.half_messages.prepare(messages[0], "payments"))

        def shown_by(collector: StoreCollector, ending: str, **where: str) -> dict[tuple[str, ...], float]:
            (family,) = (one for one in collector.collect() if one.name == name)
            return values(family.samples, name + ending, "topic", **where)

        every, few = StoreCollector(front.stores), StoreCollector(front.stores, most_topics=1)
        assert shown_by(every, "_count") == {("orders",): 2, ("bills",): 1}, "what is rolled back does not count"
        assert shown_by(every, "_bucket", le="60.0") == {("orders",): 0, ("bills",): 0}
        assert shown_by(every, "_bucket", le="600.0") == {("orders",): 2, ("bills",): 1}
        assert 90 <= shown_by(every, "_sum")["bills",] < 600
        assert shown_by(few, "_count") == {("orders",): 2, (REST,): 1}


def test_a_half_message_that_ends_during_a_scrape_does_not_count_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store, shown(owned=store) as front:
        half, whole = store.half_messages, store.half_messages.counts

        def counts() -> object:
            found = whole()
            half.commit(half.prepare(Message(topic="orders", body=b"x"), "payments"))
            return found

        monkeypatch.setattr(half, "counts", counts)
        collector = StoreCollector(front.stores)
        shown_topics = [
            sample.labels["topic"]
            for _ in range(2)
            for family in collector.collect()
            if family.name == "rocketmq_finish_message_latency_milliseconds"
            for sample in family.samples
        ]
        assert set(shown_topics) == {"orders"}, "a rest would be gone as soon as the topic has its own series"


def test_half_messages_for_no_topic_have_no_series_when_they_are_rolled_back(tmp_path: Path) -> None:
    with open_store(tmp_path, transaction_time_out=0) as store, shown(owned=store) as front:
        for topic in ("orders", "no topic"):
            put_half(store, b"x", REAL_TOPIC=topic)
        without = MessageExtBrokerInner(topic=HALF_TOPIC, body=b"x", properties={"TRAN_MSG": "true"})
        store.put_message(without).raise_for_status()
        store.dispatch()
        assert store.half_messages.check(lambda _: "rollback").rolled_back == 3
        assert _by(StoreCollector(front.stores), "rollback_messages", "topic") == {"orders": 1}


def test_where_there_are_tokens_a_scrape_needs_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        put_ok(store)
    tokens = str(tmp_path / "tokens.jsonl")
    token = new_token(tokens, "prometheus", Role.READ)
    with browsing(tmp_path / "store", tokens=tokens) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_a_closed_store_is_down(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        with shown(owned=store) as front:
            collector = StoreCollector(front.stores)
            assert _up(collector) == {"broker-a": 1}
            store.close()
            assert _up(collector) == {"broker-a": 0}
